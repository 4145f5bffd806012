package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

func init() {
	Role("failing", func(context.Context, *Worker) error { return errors.New("as planned") })
	// host starts a server and says its process id.
	Role("host", func(ctx context.Context, w *Worker) error {
		s, err := Start(ctx)
		if err != nil {
			return err
		}
		w.Say("dir %s", s.dir)
		w.Say("pid %d", s.Pid())
		<-ctx.Done()
		return s.Stop()
	})
}

func TestWorkerErrorIsSeen(t *testing.T) {
	for role, want := range map[string]string{"failing": "as planned", "nobody": `no role "nobody"`} {
		p := Spawn(t, role, nil)
		if err := p.Wait(t); err == nil || !strings.Contains(p.Stderr(), want) {
			t.Errorf("%s: %v, %q", role, err, p.Stderr())
		}
	}
}

func TestServerDiesWithItsKilledParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ties a child's life to its parent's")
	}
	p := Spawn(t, "host", nil)
	dir := p.Expect(t, "dir") // a killed process can't remove it
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	pid, err := strconv.Atoi(p.Expect(t, "pid"))
	Must(t, err)
	if !alive(pid) {
		t.Fatalf("server process %d does not live", pid)
	}
	p.Kill(t)
	eventually(t, "the end of the server", func() error {
		if alive(pid) {
			return errors.New("it lives on")
		}
		return nil
	})
}

// alive says whether a process runs: one that has ended but was not reaped (by
// an init that does not care) counts as dead.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
