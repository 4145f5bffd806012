package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/examples/internal/demoserver"
)

// shop is two tills that share their locks.
type shop struct {
	ledger

	tills []*till
	tag   string

	nights atomic.Int64
}

// till is one client with telemetry of its own, as a replica of a service has.
type till struct {
	*telemetry
	name   string
	client *redlatch.Client
	goods  rueidis.Client // what is for sale, and who has bought
}

// lease is short, so that renewals are to be seen soon.
const lease = 2 * time.Second

func openShop(ctx context.Context, server *demoserver.Server, listen string, log *slog.Logger) (_ *shop, err error) {
	addrs, err := addresses(listen)
	if err != nil {
		return nil, err
	}
	s := &shop{tag: server.Tag}
	defer func() {
		if err != nil {
			_ = s.close() // the error is why
		}
	}()
	for i, addr := range addrs {
		t := &till{name: fmt.Sprintf("till-%d", i+1)}
		if t.telemetry, err = newTelemetry(ctx, t.name, addr); err != nil {
			return nil, err
		}
		s.tills = append(s.tills, t)
		if t.client, err = redlatch.Open(server.URL, redlatch.WithConfig(func(c *redlatch.Config) {
			c.Name, c.LeaseTime = "shop/"+t.name, lease
			c.TracerProvider, c.MeterProvider, c.Logger = t.tracing, t.meters, log
			c.Telemetry.LockName = s.template
		})); err != nil {
			return nil, err
		}
		option, err := rueidis.ParseURL(server.URL)
		if err != nil {
			return nil, err
		}
		option.DisableCache = true
		if t.goods, err = rueidis.NewClient(option); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// template makes a few names of many: "{tag}item:17" is "item:*".
func (s *shop) template(name string) string {
	if strings.HasPrefix(name, "[") {
		return "bundle" // a MultiLock's name lists its members
	}
	name = strings.ReplaceAll(name, s.tag, "")
	return strings.TrimRight(name, "0123456789") + "*"
}

func (s *shop) targets() []string {
	var out []string
	for _, t := range s.tills {
		out = append(out, t.addr)
	}
	return out
}

func (s *shop) close() error {
	errs := []error{s.clear()}
	for _, t := range s.tills {
		if t.client != nil {
			t.client.Close()
		}
		if t.goods != nil {
			t.goods.Close()
		}
		errs = append(errs, t.close())
	}
	return errors.Join(errs...)
}

// work runs until ctx ends.
func (s *shop) work(ctx context.Context) {
	var wg sync.WaitGroup
	for _, t := range s.tills {
		for _, w := range []struct {
			goroutines int
			task       func(context.Context, *till) error
		}{
			{4, s.sell}, {3, s.queueUp}, {4, s.browse}, {1, s.restock}, {1, s.bundle}, {2, s.glance}, {1, s.nightly},
		} {
			for range w.goroutines {
				wg.Go(func() { // ends with ctx
					for ctx.Err() == nil {
						taskCtx, span := t.tracing.Tracer("shop").Start(ctx, "task")
						if err := w.task(taskCtx, t); err != nil {
							span.RecordError(err)
						}
						span.End()
						pause(ctx, 5*time.Millisecond)
					}
				})
			}
		}
	}
	wg.Wait()
}

func (s *shop) number(n int) string { return strconv.Itoa(rand.N(n)) } //nolint:gosec // a load

func (s *shop) name(kind string, n int) string { return s.tag + kind + s.number(n) }

// pause works for about d.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d/2 + rand.N(d)) //nolint:gosec // a load
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// queueUp waits its turn.
func (s *shop) queueUp(ctx context.Context, t *till) error {
	return t.client.FairLock(s.tag+"checkout:0").Do(ctx, func(ctx context.Context) error {
		pause(ctx, 10*time.Millisecond)
		return nil
	})
}

// browse reads the catalogue while nobody writes it.
func (s *shop) browse(ctx context.Context, t *till) error {
	return t.client.ReadWriteLock(s.name("catalogue:", 2)).ReadLock().Do(ctx, func(ctx context.Context) error {
		pause(ctx, 8*time.Millisecond)
		return nil
	})
}

// restock writes it.
func (s *shop) restock(ctx context.Context, t *till) error {
	pause(ctx, 100*time.Millisecond)
	return t.client.ReadWriteLock(s.name("catalogue:", 2)).WriteLock().Do(ctx, func(ctx context.Context) error {
		pause(ctx, 30*time.Millisecond)
		return nil
	})
}

// bundle sells two things at once.
func (s *shop) bundle(ctx context.Context, t *till) error {
	both := redlatch.MultiLock(t.client.RLock(s.name("item:", things)), t.client.RLock(s.name("coupon:", 3)))
	return both.Do(ctx, func(ctx context.Context) error {
		pause(ctx, 10*time.Millisecond)
		return nil
	})
}

// glance gives up soon.
func (s *shop) glance(ctx context.Context, t *till) error {
	h, err := t.client.RLock(s.name("item:", things)).TryLock(ctx, 5*time.Millisecond, 0)
	if errors.Is(err, redlatch.ErrNotAcquired) {
		return nil
	}
	if err != nil {
		return err
	}
	return h.Unlock(ctx)
}

// nightly is a long job; now and then an operator takes its lock away.
func (s *shop) nightly(ctx context.Context, t *till) error {
	l := t.client.RLock(s.tag + "job:0")
	h, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = h.Unlock(ctx) }() // lost, most of the time: that is the point
	pause(h.Context(), lease)
	if s.nights.Add(1)%2 == 1 {
		if _, err := l.ForceUnlock(ctx); err != nil {
			return err
		}
		<-h.Context().Done()
	}
	return nil
}
