package telemetry

import (
	"context"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/redlatch/redlatch"
)

// spy is a provider whose instruments call back.
type spy struct {
	noop.MeterProvider
	called func()
}

func (s spy) Meter(string, ...metric.MeterOption) metric.Meter { return spyMeter{called: s.called} }

type spyMeter struct {
	noop.Meter
	called func()
}

func (s spyMeter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return spyHistogram{called: s.called}, nil
}

type spyHistogram struct {
	noop.Float64Histogram
	called func()
}

func (s spyHistogram) Record(context.Context, float64, ...metric.RecordOption) { s.called() }

// TestObserverMayAskAMultiLock: what is told of a hold's end is told under no mutex of
// the hold, so that a provider that looks at the hold does not stand still.
func TestObserverMayAskAMultiLock(t *testing.T) {
	var now atomic.Pointer[redlatch.Hold]
	looked := atomic.Int64{}
	r := newRig(t)
	c := r.open(func(cfg *redlatch.Config) {
		cfg.LeaseTime = checked
		cfg.MeterProvider = spy{called: func() {
			if h := now.Load(); h != nil {
				_ = (*h).ValidUntil()
				_ = (*h).Token()
				looked.Add(1)
			}
		}}
	})
	m := redlatch.MultiLock(c.RLock("a"), c.FairLock("b"))
	for _, how := range []string{"released", "lost"} {
		h := must[redlatch.Hold](t)(m.Lock(t.Context()))
		now.Store(&h)
		before := looked.Load()
		wait := begin(t, func() {
			if how == "lost" {
				r.server.Do(t, "DEL", "a")
				<-h.Context().Done()
			}
			_ = h.Unlock(context.Background())
		})
		wait()
		if looked.Load() == before {
			t.Errorf("%s: nothing was told", how)
		}
		now.Store(nil)
	}
}
