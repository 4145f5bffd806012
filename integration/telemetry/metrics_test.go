package telemetry

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

// What is told is bounded, and text, whatever names locks have, and whatever kinds of errors there are.
func TestWhatIsToldIsBounded(t *testing.T) {
	const names = 400
	for _, tc := range []struct {
		name     string
		template func(string) string
		most     int
	}{
		{"no names without a template", nil, 1},
		{"a template", func(name string) string { return name[:5] + "*" }, 1},
		{"a template that lets everything through", func(name string) string { return name }, 201},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, func(c *redlatch.Config) { c.Telemetry.LockName = tc.template })
			for i := range names {
				name := fmt.Sprintf("order:%d%s", i, strings.Repeat("\xff\x00", 500))
				bed.Unlock(t, bed.Lock(t, t.Context(), r.client.RLock(name)))
			}
			for _, s := range r.spans() {
				for _, a := range s.Attributes {
					if v := a.Value.String(); strings.Contains(v, "\xff") || len(v) > 1000 {
						t.Fatalf("%s: %s has %d bytes, as %.20q…", s.Name, a.Key, len(v), v)
					}
				}
			}
			all := r.collect()
			for name, m := range all {
				got, most := points(m), tc.most
				if name == "lock.renewals" { // kinds of errors begin at 0
					most *= 4
				}
				if text := fmt.Sprint(got); len(got) > most || strings.Contains(text, "\xff") {
					t.Errorf("%s has %d series, want %d: %.200q", name, len(got), most, text)
				}
			}
			total := int64(0)
			for _, n := range points(all["lock.acquire.duration"]) {
				total += n
			}
			if total != names {
				t.Errorf("%d of %d acquisitions are told", total, names)
			}
		})
	}
}
