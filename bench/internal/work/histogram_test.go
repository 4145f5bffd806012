package work

import (
	"math"
	"testing"
	"time"
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
	if h.total != 100_000 {
		t.Errorf("%d observations", h.total)
	}
	for q, want := range map[float64]float64{0.01: 1e3, 0.5: 50e3, 0.99: 99e3, 1: 100e3} {
		if got := float64(h.Quantile(q).Microseconds()); math.Abs(got-want) > want/100 {
			t.Errorf("quantile %v is %v µs, not %v", q, got, want)
		}
	}
	if got := NewHistogram().Quantile(0.5); got != 0 {
		t.Errorf("the quantile of nothing is %v", got)
	}
	h.Add(-time.Second)
	h.Add(1000 * time.Hour)
}
