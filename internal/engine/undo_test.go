package engine_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/lock"
)

// An acquisition's memory is used again, but not while an answer to it is out: what is
// granted to a caller who has gone is given back under that one's name, whoever came and
// went meanwhile.
func TestALateAnswerFindsItsOwnAcquisition(t *testing.T) {
	onFake(t, func(t *testing.T, f *fakeRedis, core *engine.Core) {
		answer := make(chan struct{})
		var late atomic.Int32
		f.onAfter(func(cmd conn.Command) error { // it ran; the reply takes long
			if cmd.Script == luascript.Acquire && late.Add(1) <= 3 {
				<-answer
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		var leaving []*got
		for i := range 3 {
			leaving = append(leaving, locking(ctx, core, "left"+strconv.Itoa(i)))
		}
		cancel()
		for _, g := range leaving {
			g.ends(t, context.Canceled)
		}
		var stay []lock.Hold
		for i := range 50 { // in the memory of whoever ended before
			h := take(t, t.Context(), core, "other"+strconv.Itoa(i))
			if i%2 == 0 {
				stay = append(stay, h)
			} else {
				free(t, h)
			}
		}
		close(answer)
		time.Sleep(time.Second)
		for i := range 3 {
			testbed.Equal(t, f.count("left"+strconv.Itoa(i)), 0, "holds of somebody who gave up, of left", i)
		}
		for _, h := range stay {
			testbed.Equal(t, f.count(h.Name()), 1, "holds of", h.Name())
		}
		free(t, stay...)
	})
}

// What comes while a carrier is on its way, or busy, travels in one write.
func TestWhatComesTogetherTravelsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newServer()
		f.latency = time.Millisecond
		writes := &counting{Runner: f.link()}
		core := newCore(t, writes, f.link(), nil)
		const many = 200
		var wg sync.WaitGroup
		for i := range many {
			wg.Go(func() { take(t, t.Context(), core, "l"+strconv.Itoa(i)) })
		}
		wg.Wait()
		testbed.AtMost(t, writes.n.Load(), many/4, "writes for commands:", many)
	})
}

// counting counts what a client writes.
type counting struct {
	conn.Runner
	n atomic.Int32
}

func (c *counting) Run(ctx context.Context, cmd conn.Command) (conn.Reply, error) {
	c.n.Add(1)
	return c.Runner.Run(ctx, cmd)
}

func (c *counting) RunMulti(ctx context.Context, cmds []conn.Command, out []conn.Result) []conn.Result {
	c.n.Add(1)
	return c.Runner.RunMulti(ctx, cmds, out)
}
