package pubsub

import (
	"slices"
	"testing"
)

// TestSlotsThatANodeIsLosing are read from its own line alone, and those that it gets are not among them.
func TestSlotsThatANodeIsLosing(t *testing.T) {
	const a, b = "07c37dfeb235213a872192d90877d0cd55635b91", "67ed2db8d677e59ec4a4cefb06858cf2a1a89fa1"
	text := a + " 127.0.0.1:1@2,host myself,master - 0 1426238317239 4 connected 0-5460 [93->-" + b + "] [77-<-" + b + "] [16383->-" + b + "]\n" +
		b + " 127.0.0.1:3@4 master - 0 1426238316232 2 connected 5461 [94->-" + a + "] [95-<-" + a + "]\n"
	if got := losing(text); !slices.Equal(got, []uint16{93, 16383}) {
		t.Error(got)
	}
	for _, text := range []string{"", "myself", a + " x myself,slave " + b + " 0 0 4 connected", a + " x myself,master - 0 0 4 connected [99999->-" + b + "] [->-]"} {
		if got := losing(text); len(got) > 0 {
			t.Errorf("%q: %v", text, got)
		}
	}
}
