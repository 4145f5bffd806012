package topology

import (
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestDemotedMasterDoesNotSayGone: a replica knows nothing of a lock while it is
// filled anew after its demotion. What it is asked meanwhile is refused, not
// answered with "not held": the hold would end although it stands on the new
// master.
func TestDemotedMasterDoesNotSayGone(t *testing.T) {
	set := testbed.Replicas(t, 1)
	replica := set.Replicas()[0]
	eval := func(s *luascript.Script, keys []string, args ...string) (string, error) {
		cmd := append([]string{"EVAL", s.Body, string(rune('0' + len(keys)))}, append(keys, args...)...)
		m, err := replica.Try(cmd...)
		if err != nil {
			return "", err
		}
		return m.String(), nil
	}
	m, err := replica.Try("EVAL", luascript.Renew.Body, "1", "absent", "c:g1-1", "1000")
	if err != nil {
		t.Fatal(err)
	}
	vals, err := m.AsIntSlice()
	if err != nil || len(vals) != 1 || vals[0] != -1 {
		t.Errorf("renew on a replica: %v %v, want -1", vals, err)
	}
	for name, run := range map[string]func() (string, error){
		"reenter": func() (string, error) { return eval(luascript.Reenter, []string{"absent"}, "c:g1-1", "2", "1000") },
		"partial release": func() (string, error) {
			return eval(luascript.Release, []string{"absent"}, "c:g1-1", "1", "1000", "ch", "PUBLISH", "0", "0")
		},
		"release": func() (string, error) {
			return eval(luascript.Release, []string{"absent"}, "c:g1-1", "0", "0", "ch", "PUBLISH", "0", "0")
		},
		"acquire": func() (string, error) {
			return eval(luascript.Acquire, []string{"absent", "void"}, "c:g1-1", "1000", "", "")
		},
	} {
		if got, err := run(); err == nil || !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("%s on a replica: %v %v, want READONLY", name, got, err)
		}
	}
}
