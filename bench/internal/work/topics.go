package work

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// topicsJob measures what a new waiter costs a client of which many others wait, each for another lock. One contender
// holds all of those locks; the waiters are the other one's. Each probe is a new key: the first holds it, the other one
// waits for it, and as soon as somebody listens for it the first lets go.
type topicsJob struct {
	holder Contender
	held   []Hold
	ctx    context.Context // of the waiters
	cancel context.CancelFunc
	others sync.WaitGroup
	probes sync.WaitGroup
	count  uint64
	waits  *Histogram // until somebody listens
	wakes  *Histogram
}

// probePause lies between two probes: what the one before left to do is done by then.
const probePause = time.Millisecond

func (j *topicsJob) start(ctx context.Context, m *measurement) (Ready, error) {
	j.waits, j.wakes = NewHistogram(), NewHistogram()
	var err error
	if j.holder, err = m.open(); err != nil {
		return Ready{}, err
	}
	j.ctx, j.cancel = context.WithCancel(ctx)
	j.held = make([]Hold, m.Holds)
	if err := eachOf(m.Holds, func(i int) (err error) {
		j.held[i], err = j.holder.Locker(topic(m, i)).Lock(ctx)
		return err
	}); err != nil {
		return Ready{}, err
	}
	for i := range m.Holds {
		l := m.contender.Locker(topic(m, i))
		j.others.Go(func() {
			h, err := l.Lock(j.ctx)
			if err == nil {
				err = errors.Join(errors.New("a lock that is held was acquired"), h.Unlock(context.Background()))
			}
			if j.ctx.Err() == nil {
				m.fail(fmt.Errorf("%s: waiting: %w", m.Contender, err))
			}
		})
	}
	if err := j.allWait(ctx, m); err != nil {
		return Ready{}, err
	}
	j.probes.Go(func() {
		if err := j.probe(j.ctx, m); err != nil && j.ctx.Err() == nil {
			m.fail(fmt.Errorf("%s: %w", m.Contender, err))
		}
	})
	return Ready{}, context.Cause(ctx)
}

func topic(m *measurement, i int) string { return fmt.Sprintf("%s:%d", m.Key, i) }

// allWait returns when as many channels have a listener as there are waiters.
func (j *topicsJob) allWait(ctx context.Context, m *measurement) error {
	client, err := dial(m.Spec)
	if err != nil {
		return err
	}
	defer client.Close()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		n, err := channels(ctx, client)
		if err != nil || n >= m.Holds {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d waiters listen", n, m.Holds)
		}
	}
}

func (j *topicsJob) probe(ctx context.Context, m *measurement) error {
	client, err := dial(m.Spec)
	if err != nil {
		return err
	}
	defer client.Close()
	type grant struct {
		hold Hold
		err  error
		at   time.Time
	}
	for number := 0; ctx.Err() == nil && m.phase.Load() != ended; number++ {
		key := fmt.Sprintf("%s:probe:%d", m.Key, number)
		held, err := j.holder.Locker(key).Lock(ctx)
		if err != nil {
			return err
		}
		l, granted := m.contender.Locker(key), make(chan grant, 1)
		began := time.Now()
		j.probes.Go(func() {
			h, err := l.Lock(ctx)
			granted <- grant{h, err, time.Now()}
		})
		if err := subscribed(ctx, client, key); err != nil {
			return errors.Join(err, held.Unlock(context.Background()))
		}
		listens := time.Now()
		// The waiter's next attempt comes as soon as it listens: it must find the lock held, or nobody has to be woken.
		time.Sleep(probePause)
		gave := time.Now()
		if err := held.Unlock(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		g := <-granted
		if g.err != nil {
			return g.err
		}
		if m.phase.Load() == counting {
			j.count++
			j.waits.Add(listens.Sub(began))
			j.wakes.Add(g.at.Sub(gave))
		}
		if err := g.hold.Unlock(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (j *topicsJob) drain() {}

func (j *topicsJob) finish(r *Result) error {
	// The probe under way comes to its end by itself; the ctx ends it at the latest.
	j.cancel()
	j.probes.Wait()
	j.others.Wait()
	r.Counts, r.Waits, r.Wakes = []uint64{j.count}, j.waits.Sparse(), j.wakes.Sparse()
	j.holder.Close()
	return nil
}
