package topology

import (
	"strconv"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// What is asked of a replica that is filled anew after its demotion is refused, not answered with
// "not held": the hold would end although it stands on the new master.
func TestDemotedMasterDoesNotSayGone(t *testing.T) {
	set := testbed.Replicas(t, 1)
	replica := set.Replicas()[0]
	// A read hold whose last renewal this replica has not heard of.
	set.Master().Do(t, "HSET", "stale", "mode", "read", "c:g1-1", "2")
	set.AwaitSync(t)

	const field = "c:g1-1"
	keys := func(n int, first string) []string {
		out := []string{first}
		for i := 1; i < n; i++ {
			out = append(out, "other"+strconv.Itoa(i))
		}
		return out
	}
	type call struct {
		script *luascript.Script
		keys   []string
		args   []string
	}
	refused := map[string]call{
		"acquire":           {luascript.Acquire, keys(2, "absent"), []string{field, "1000", ""}},
		"reenter":           {luascript.Reenter, keys(1, "absent"), []string{field, "2", "1000"}},
		"partial release":   {luascript.Release, keys(1, "absent"), []string{field, "1"}},
		"release":           {luascript.Release, keys(1, "absent"), []string{field, "0", "ch", "PUBLISH"}},
		"group acquire":     {luascript.GroupAcquire, keys(2, "absent"), []string{"1000", "2", field, "0", "", ""}},
		"group re-entry":    {luascript.GroupAcquire, keys(1, "absent"), []string{"1000", "1", field, "2", "", ""}},
		"rw re-entry":       {luascript.RWReenter, keys(3, "absent"), []string{field, "2", "1000"}},
		"rw stale re-entry": {luascript.RWReenter, keys(3, "stale"), []string{field, "3", "1000"}},
		"read release":      {luascript.RWReadRelease, keys(8, "absent"), []string{field, "ch", "PUBLISH", "0", "absent", "0", "0", "1"}},
		"write release":     {luascript.RWWriteRelease, keys(7, "absent"), []string{field, "ch", "PUBLISH", "0", "0", "0", "1"}},
		"fair release":      {luascript.FairRelease, keys(7, "absent"), []string{"PUBLISH", "ch", "ch2", field, "0", "0", "0"}},
		"renew":             {luascript.Renew, keys(1, "absent"), []string{field, "1000"}},
		"check":             {luascript.Renew, keys(1, "absent"), []string{field, "0"}},
		"rw renew read":     {luascript.RWRenew, keys(3, "absent"), []string{field, "1000"}},
		"rw check":          {luascript.RWRenew, keys(3, "absent"), []string{field, "0"}},
		"rw renew write":    {luascript.RWRenew, []string{"absent", "other1", "absent"}, []string{field, "1000"}},
		"rw renew stale":    {luascript.RWRenew, keys(3, "stale"), []string{field, "1000"}},
		"rw check stale":    {luascript.RWRenew, keys(3, "stale"), []string{field, "0"}},
	}
	eval := func(c call) (string, error) {
		cmd := append([]string{"EVAL", c.script.Body, strconv.Itoa(len(c.keys))}, append(c.keys, c.args...)...)
		m, err := replica.Try(cmd...)
		if err != nil {
			return "", err
		}
		return m.String(), nil
	}
	for name, c := range refused {
		if got, err := eval(c); err == nil || !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("%s on a replica: %v %v, want READONLY", name, got, err)
		}
	}
}
