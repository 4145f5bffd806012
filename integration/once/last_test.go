package once

import (
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Last tells when a job ran, by whom, and when it is due again; and that nothing is known where no run was made, where
// it was forgotten, and where no record stands.
func TestLast(t *testing.T) {
	s := server(t)
	c := bed.Client(t, s.Addr(), func(c *redlatch.Config) { c.Name = "shop/1" })
	op := bed.Client(t, s.Addr()).Once("report")
	known := func(want bool) redlatch.OnceRun {
		t.Helper()
		run, err := op.Last(t.Context())
		if err != nil || run.Began.IsZero() == want || run.Due.IsZero() == want {
			t.Errorf("%+v, %v", run, err)
		}
		return run
	}
	known(false)
	before := now(t, s)
	must(t, c.Once("report"), hour)
	run := known(true)
	if at := run.Began.UnixMilli(); at < before || at > now(t, s) || (run.Due.Sub(run.Began)-hour).Abs() > time.Second {
		t.Errorf("%+v, it ran at %d or later", run, before)
	}
	if run.ClientID != c.ID() || run.Client != "shop/1" || !strings.HasPrefix(run.Addr, "127.0.0.1:") {
		t.Errorf("it was run by %+v", run.Process)
	}
	testbed.Equal(t, must(t, c.Once("report"), hour), false, "ran again")
	testbed.Equal(t, known(true).Began, run.Began, "the last run")
	_, err := op.Reset(t.Context())
	testbed.Must(t, err)
	known(false)

	// Of a run by an earlier version it is not known who made it; what is no record tells nothing.
	key := luascript.OnceKey("report")
	s.Do(t, "SET", key, itoa(now(t, s))+" 343714c0-5d1f-4c0a-9b6e-2f6c1d2a9e11 0", "PX", "60000")
	testbed.Equal(t, known(true).ClientID, "", "who made it")
	for _, no := range []string{"", "x", "1 y", "99999999999999999999 x 0", strings.Repeat("9", 2000)} {
		s.Do(t, "SET", key, no, "PX", "60000")
		known(false)
	}
}
