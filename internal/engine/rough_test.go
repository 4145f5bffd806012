package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
)

// rough is a way to a server on which commands are slow, late and lost, as a seed says.
type rough struct {
	mu   sync.Mutex // guards all below, and the server
	rand *rand.Rand
	calm bool     // nothing is lost, and nothing takes long
	hist []string // what happened, for who looks for a fault
}

// luck is a number below 60; some of them mean that something goes wrong.
func (r *rough) luck() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calm {
		return -1
	}
	return r.rand.IntN(60)
}

// lag is how long something takes on its way.
func (r *rough) lag() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := time.Duration(r.rand.IntN(1000)) * time.Microsecond
	switch {
	case r.calm:
	case r.rand.IntN(300) == 0:
		d += time.Duration(r.rand.IntN(4000)) * time.Millisecond // longer than a lease
	case r.rand.IntN(20) == 0:
		d += time.Duration(r.rand.IntN(30)) * time.Millisecond
	}
	return d
}

// note says what became of a command on its way.
func (r *rough) note(cmd conn.Command, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteLocked(cmd, what)
}

func (r *rough) noteLocked(cmd conn.Command, what string) {
	r.hist = append(r.hist, fmt.Sprintf("%d %s %v %v: %s", time.Now().UnixMicro(), cmd.Script.Name, cmd.Keys, cmd.Args, what))
}

// side runs commands side by side, for RunMulti of a conn.Runner.
func side(ctx context.Context, run func(context.Context, conn.Command) (conn.Reply, error), cmds []conn.Command) []conn.Result {
	out := make([]conn.Result, len(cmds))
	var wg sync.WaitGroup
	for i, cmd := range cmds {
		wg.Go(func() { out[i].Reply, out[i].Err = run(ctx, cmd) })
	}
	wg.Wait()
	return out
}
