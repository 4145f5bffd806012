package pubsub

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// called is a topic whose client is called with a place; waits says that somebody stands in its line.
func called(place string, waits bool) (*Hub, *topic) {
	h := &Hub{topics: map[string]*topic{}}
	t := &topic{spec: Spec{ID: "x", Unheard: func() {}}, node: &node{hub: h}}
	if waits {
		t.head = &Waiter{hub: h, topic: t, C: make(chan struct{}, 1)}
	}
	h.topics["x"] = t
	t.calledLocked(&Wake{One: true, Place: place})
	return h, t
}

// TestACallThatOvertakesARefusalKeepsItsPlace: the holder's release may call a client before it hears that its
// ask was refused. Its next ask tells the place, so that it stands in front again if it loses once more.
func TestACallThatOvertakesARefusalKeepsItsPlace(t *testing.T) {
	const place = "1700000000000000"
	h, topic := called(place, true)
	if got := h.Asks("x"); got != place {
		t.Fatalf("the ask after a call tells %q", got)
	}
	topic.calledLocked(&Wake{One: true, Place: place})
	topic.refusedLocked(Holder{Owner: "another"})
	if got := h.Asks("x"); got != place {
		t.Errorf("the next ask tells %q", got)
	}
	topic.refusedLocked(Holder{Owner: "another"}) // the refusal of the ask that told it: done with
	if got := h.Asks("x"); got != placeListed {
		t.Errorf("the ask after that tells %q", got)
	}
}

// TestACallThatOvertakesARefusalIsHeeded: beside another library's clients who is called asks some milliseconds later. The
// refusal of an ask that was under way then does not put that off until somebody looks.
func TestACallThatOvertakesARefusalIsHeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const place = "1700000000000000"
		h, topic := called(place, true)
		topic.refusedLocked(Holder{Owner: "its", Foreign: true})
		h.Asks("x")
		topic.calledLocked(&Wake{One: true, Place: place})
		due := time.Now().Add(javaFirst)
		topic.refusedLocked(Holder{Owner: "another"})
		h.HasLooked("x")
		if !topic.calls.look.Equal(due) {
			t.Errorf("it asks %v after the call", topic.calls.look.Sub(due)+javaFirst)
		}
	})
}

// TestACallForNobodyLeavesNoPlace: whoever comes later asks as a newcomer, behind those who wait.
func TestACallForNobodyLeavesNoPlace(t *testing.T) {
	h, _ := called("1700000000000000", false)
	if got := h.Asks("x"); got != placeNew {
		t.Errorf("a newcomer tells %q", got)
	}
}

// TestAnotherLibraryGetsAGap: its clients are told later than ours, by milliseconds. For a while after one of them was
// met, who is called waits for them, and who has called somebody stands back.
func TestAnotherLibraryGetsAGap(t *testing.T) {
	for name, tc := range map[string]struct {
		met, others, waits, stands bool
	}{
		"nobody of it was met":        {false, true, false, false},
		"one was met":                 {true, true, true, true},
		"one was met, nobody listens": {true, false, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, topic := called("1700000000000000", true)
			topic.refusedLocked(Holder{Owner: "its", Foreign: tc.met})
			for _, waits := range []bool{tc.waits, false} { // the second time it was long ago
				wk := &Wake{One: true, Place: "1700000000000000"}
				topic.calledLocked(wk)
				if wk.One == waits || waits && (len(topic.head.C) != 1 || !topic.calls.look.Equal(time.Now().Add(javaFirst))) {
					t.Errorf("%s: it asks at once: %v; in %v", name, wk.One, time.Until(topic.calls.look))
				}
				topic.grantedLocked()
				h.Released("x", Release{Called: true, Heard: tc.others})
				if stands := h.Asks("x") == placeStands; stands != (waits && tc.stands) {
					t.Errorf("%s: it stands back: %v", name, stands)
				}
				time.Sleep(besideOthers)
			}
		})
	}
}

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
