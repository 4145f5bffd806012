package main

import (
	"math/bits"
	"time"
)

// A histogram counts durations in log-linear buckets, 128 to each power of two, so that a quantile is off by less than
// one per cent whatever its size. It is not safe for concurrent use: each worker fills its own.
type histogram struct {
	counts []uint32
	total  uint64
}

const (
	subBits    = 7
	subBuckets = 1 << subBits
)

func newHistogram() *histogram {
	// 2^40 ns is 18 minutes: no wait of a round is longer.
	return &histogram{counts: make([]uint32, (40-subBits+1)*subBuckets)}
}

func bucketOf(d time.Duration) int {
	if d < 0 {
		d = 0
	}
	v := uint64(d)
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

func (h *histogram) add(d time.Duration) {
	b := min(bucketOf(d), len(h.counts)-1)
	h.counts[b]++
	h.total++
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
}

// quantile returns the duration below which the given part of the observations lies, 0 when there is none.
func (h *histogram) quantile(q float64) time.Duration {
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

// sparse is the form in which a histogram travels from a child process: bucket and count in turn.
func (h *histogram) sparse() []uint32 {
	var out []uint32
	for i, n := range h.counts {
		if n > 0 {
			out = append(out, uint32(i), n)
		}
	}
	return out
}

func (h *histogram) addSparse(pairs []uint32) {
	for i := 0; i+1 < len(pairs); i += 2 {
		b := min(int(pairs[i]), len(h.counts)-1)
		h.counts[b] += pairs[i+1]
		h.total += uint64(pairs[i+1])
	}
}
