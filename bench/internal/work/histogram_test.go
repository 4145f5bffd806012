package work

import (
	"math"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

func TestHistogramQuantiles(t *testing.T) {
	h, half := NewHistogram(), NewHistogram()
	for i := 1; i <= 100_000; i++ {
		if i%2 == 0 {
			h.Add(time.Duration(i) * time.Microsecond)
		} else {
			half.Add(time.Duration(i) * time.Microsecond)
		}
	}
	h.AddSparse(half.Sparse())
	testbed.Equal(t, h.total, 100_000, "observations")
	for q, want := range map[float64]float64{0.01: 1e3, 0.5: 50e3, 0.99: 99e3, 1: 100e3} {
		if got := float64(h.Quantile(q).Microseconds()); math.Abs(got-want) > want/100 {
			t.Errorf("quantile %v is %v µs, not %v", q, got, want)
		}
	}
	testbed.Equal(t, NewHistogram().Quantile(0.5), 0, "the quantile of nothing")
	h.Add(-time.Second)
	h.Add(1000 * time.Hour)
}
