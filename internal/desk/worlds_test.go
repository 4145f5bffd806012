package desk

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// profiles are the worlds that are tried; docs/SAFETY.md has the promises that hold in all of them.
var profiles = []profile{
	{name: "calm", nested: 100, leavers: 200, lies: 320 * ms},
	{name: "all wishes", noAcks: 20, refused: 10, once: 200, fixed: 200, fenced: 200, nested: 200, extends: 200, leavers: 200, fellows: true, lies: 600 * ms},
	{name: "slow", slow: 100, once: 100, fixed: 100, nested: 200, extends: 100, leavers: 300, drift: true},
	{name: "lost requests", unsent: 30, lateRun: 30, notRun: 30, nested: 200, once: 100, leavers: 200, extends: 50, drift: true},
	{name: "lost replies", noReply: 40, twice: 40, lateRun: 20, nested: 200, once: 100, fixed: 100, leavers: 200, extends: 50, fellows: true},
	{name: "lost messages", silent: 100, leavers: 200, once: 100, nested: 100},
	{name: "deaf", silent: 20, leavers: 200, nested: 100, trouble: 50 * ms, troubles: []func(*world){deafened, broken}},
	{name: "pauses", leavers: 200, nested: 100, fixed: 100, extends: 100, lateRun: 10, trouble: 200 * ms, troubles: []func(*world){stopped}},
	{name: "sleeps", leavers: 100, nested: 100, fixed: 200, extends: 100, drift: true, trouble: 100 * ms, troubles: []func(*world){asleep}},
	{name: "wall clocks", leavers: 100, nested: 100, fixed: 200, extends: 100, drift: true, trouble: 100 * ms, troubles: []func(*world){wallSet}},
	{name: "server's clock", leavers: 100, nested: 100, fixed: 100, drift: true, noReply: 10, trouble: 300 * ms, troubles: []func(*world){serverSet}},
	{name: "forced", leavers: 100, nested: 200, fixed: 100, noReply: 20, lateRun: 30, trouble: 30 * ms, troubles: []func(*world){forced}},
	{name: "long sections", users: 2, lease: 300 * ms, section: 2 * time.Second, think: 2 * time.Second, slow: 300, unsent: 300, drift: true, fixed: 300, extends: 300},
	{name: "restarts", leavers: 100, nested: 100, noReply: 20, lateRun: 20, trouble: 30 * ms, troubles: []func(*world){restarted, broken}},
	{name: "ends", leavers: 100, nested: 100, once: 50, noReply: 20, lateRun: 20, trouble: 100 * ms, troubles: []func(*world){closes, drains, dies}},
	{name: "others", others: 1, leavers: 100, nested: 50, once: 50, trouble: 50 * ms, troubles: []func(*world){deafened}},
	{name: "uncounted", uncounted: true, leavers: 300, nested: 50, silent: 10},
	{name: "short leases", lease: 30 * ms, nested: 200, fixed: 200, extends: 200, once: 100, slow: 50, noReply: 20, leavers: 200, drift: true},
	{name: "sparse", clients: 3, users: 1, keys: []string{"a"}, section: 20 * ms, think: time.Second, leavers: 500, lies: 320 * ms},
	{name: "sparse, lost messages", clients: 2, users: 1, keys: []string{"a"}, lease: 30 * time.Second, section: 2 * time.Second, think: 4 * time.Second,
		leavers: 200, silent: 200, lies: 1300 * ms},
	{name: "sparse, others", clients: 2, users: 1, keys: []string{"a"}, lease: 30 * time.Second, section: 50 * ms, think: 2 * time.Second, others: 1, lies: 320 * ms},
	{name: "sparse, forced", once: 300, clients: 2, users: 2, keys: []string{"a"}, lease: 30 * time.Second, section: 10 * time.Second, think: time.Second,
		lies: 1300 * ms, trouble: 4 * time.Second, troubles: []func(*world){forced}},
	{name: "crowd", clients: 12, users: 1, keys: []string{"a"}, leavers: 50},
	{name: "all", noAcks: 5, refused: 5, once: 100, fixed: 100, fenced: 50, nested: 150, extends: 100, leavers: 200, fellows: true, slow: 10, unsent: 10, lateRun: 10, noReply: 10,
		twice: 10, notRun: 10, silent: 10, drift: true, others: 1, trouble: 100 * ms,
		troubles: []func(*world){forced, restarted, deafened, broken, stopped, asleep, closes, drains, dies}},
}

// given sets what a profile leaves out.
func (p profile) given(seed uint64) profile {
	r := rng(seed)
	if p.clients == 0 {
		p.clients = 2 + r.n(2)
	}
	if p.users == 0 {
		p.users = 1 + r.n(4)
	}
	if p.keys == nil {
		p.keys = []string{"a", "b"}[:1+r.n(2)]
	}
	if p.lease == 0 {
		p.lease = []Time{300 * ms, 3 * time.Second, 30 * time.Second}[r.n(3)]
	}
	p.tenure = []Time{6 * ms, 6 * ms, 0}[r.n(3)]
	p.lag = 300 * time.Microsecond
	if p.section == 0 {
		p.section, p.think = []Time{2 * ms, 2 * ms, 2 * ms, 20 * ms}[r.n(4)], 2*ms
	}
	if p.lies == 0 { // a lost call, an answer that never comes, and the pause after it
		p.lies = 4 * time.Second
		if p.trouble > 0 || p.slow > 0 {
			p.lies += 3 * p.lease
		}
	}
	return p
}

// worldSteps is how many steps a world has before it gets quiet.
const worldSteps = 2500

// Whatever happens to commands, messages, clocks, processes and the server, the promises of docs/SAFETY.md hold at every
// moment, and nothing is left at the end.
func TestWorlds(t *testing.T) {
	worlds := number(t, "REDLATCH_DESK_WORLDS", 25)
	began := number(t, "REDLATCH_DESK_SEED", 1)
	only, lasts := os.Getenv("REDLATCH_DESK_PROFILE"), time.Duration(0)
	if text := os.Getenv("REDLATCH_DESK_FOR"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		lasts = d / time.Duration(len(profiles))
	}
	for _, p := range profiles {
		if only != "" && only != p.name {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			events, grants, start := 0, 0, time.Now()
			for seed := uint64(began); seed < uint64(began+worlds) || time.Since(start) < lasts; seed++ {
				w := newWorld(p.given(seed), seed)
				if bad := w.play(worldSteps); bad != "" {
					w = newWorld(p.given(seed), seed)
					w.tracing = true
					w.play(worldSteps)
					t.Fatalf("seed %d, after %d events: %s\n%v", seed, events+w.steps, bad, w)
				}
				events, grants = events+w.steps, grants+w.grants
			}
			t.Logf("%d events, %d grants of the server, %.0f events/s", events, grants, float64(events)/time.Since(start).Seconds())
		})
	}
}

// number is a number of the environment's, or the one that is given.
func number(t *testing.T, name string, given int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return given
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s=%q: %v", name, text, err)
	}
	return n
}
