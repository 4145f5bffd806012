package work

import (
	"math/bits"
	"time"
)

// A Histogram counts durations in log-linear buckets, 128 to each power of two, so that a quantile is off by less than
// one per cent whatever its size. Sum and maximum are exact. It is not safe for concurrent use: each worker fills its
// own.
type Histogram struct {
	counts  []uint32
	total   uint64
	sum     time.Duration
	longest time.Duration
}

// A Sparse is the form in which a histogram travels from a child process.
type Sparse struct {
	Buckets []uint32 // bucket and count in turn
	SumNs   int64
	MaxNs   int64
}

const (
	subBits    = 7
	subBuckets = 1 << subBits
)

// NewHistogram returns an empty one.
func NewHistogram() *Histogram {
	// 2^40 ns is 18 minutes: no wait of a round is longer.
	return &Histogram{counts: make([]uint32, (40-subBits+1)*subBuckets)}
}

func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < subBuckets {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return (shift+1)*subBuckets + int(v>>shift) - subBuckets
}

// valueOf is the middle of a bucket.
func valueOf(bucket int) time.Duration {
	if bucket < subBuckets {
		return time.Duration(bucket)
	}
	shift := bucket/subBuckets - 1
	low := uint64(bucket%subBuckets+subBuckets) << shift
	return time.Duration(low + (uint64(1)<<shift)/2)
}

// Add counts one observation.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.counts[min(bucketOf(d), len(h.counts)-1)]++
	h.total++
	h.sum += d
	h.longest = max(h.longest, d)
}

// Merge counts what the other one has counted.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
	h.sum += other.sum
	h.longest = max(h.longest, other.longest)
}

// Total is the number of observations.
func (h *Histogram) Total() uint64 { return h.total }

// Max is the longest observation, 0 when there is none.
func (h *Histogram) Max() time.Duration { return h.longest }

// Mean is 0 when there is no observation.
func (h *Histogram) Mean() time.Duration {
	if h.total == 0 {
		return 0
	}
	return h.sum / time.Duration(h.total)
}

// Quantile returns the duration below which the given part of the observations lies, 0 when there is none.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.total == 0 {
		return 0
	}
	rank := uint64(q * float64(h.total-1))
	var seen uint64
	for i, n := range h.counts {
		seen += uint64(n)
		if seen > rank {
			return valueOf(i)
		}
	}
	return valueOf(len(h.counts) - 1)
}

// Sparse returns what the histogram holds, for another process to add to its own.
func (h *Histogram) Sparse() Sparse {
	s := Sparse{SumNs: int64(h.sum), MaxNs: int64(h.longest)}
	for i, n := range h.counts {
		if n > 0 {
			s.Buckets = append(s.Buckets, uint32(i), n)
		}
	}
	return s
}

// AddSparse counts what another process has counted.
func (h *Histogram) AddSparse(s Sparse) {
	for i := 0; i+1 < len(s.Buckets); i += 2 {
		b := min(int(s.Buckets[i]), len(h.counts)-1)
		h.counts[b] += s.Buckets[i+1]
		h.total += uint64(s.Buckets[i+1])
	}
	h.sum += time.Duration(s.SumNs)
	h.longest = max(h.longest, time.Duration(s.MaxNs))
}
