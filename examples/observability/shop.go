package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	tills []*till
	tag   string
	clean bool // remove what was for sale: the server stays

	sold, wrong, nights atomic.Int64
}

// till is one client with telemetry of its own, as a replica of a service has.
type till struct {
	*telemetry
	*redlatch.Client
	name  string
	goods rueidis.Client // what is for sale, and who has bought
}

// lease is short, so that renewals are to be seen soon.
const lease = 2 * time.Second

// openShop opens both tills, with their metrics at two addresses.
func openShop(ctx context.Context, server *demoserver.Server, listen string, names bool, log *slog.Logger) (_ *shop, err error) {
	first, second, ok := strings.Cut(listen, ",")
	if !ok {
		return nil, fmt.Errorf("-listen needs two addresses with a comma between, not %q", listen)
	}
	s := &shop{tag: server.Tag, clean: server.Foreign}
	defer func() {
		if err != nil {
			_ = s.close() // the error is why
		}
	}()
	for i, addr := range []string{first, second} {
		t := &till{name: fmt.Sprintf("till-%d", i+1)}
		if t.goods, err = server.Client(); err != nil {
			return nil, err
		}
		s.tills = append(s.tills, t)
		if t.telemetry, err = newTelemetry(ctx, t.name, addr); err != nil {
			return nil, err
		}
		if t.Client, err = redlatch.Open(server.URL, redlatch.WithConfig(func(c *redlatch.Config) {
			c.Name, c.LeaseTime = "shop/"+t.name, lease
			c.TracerProvider, c.MeterProvider, c.Logger = t.tracing, t.meters, log
			if names {
				c.Telemetry.LockName = s.template
			}
		})); err != nil {
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

// close also closes a shop of which only a part was opened.
func (s *shop) close() error {
	var errs []error
	for i, t := range s.tills {
		if i == 0 && s.clean {
			errs = append(errs, s.clear(t.goods))
		}
		if t.Client != nil {
			t.Close()
		}
		t.goods.Close()
		if t.telemetry != nil {
			errs = append(errs, t.close())
		}
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
