package main

import (
	"math"
	"slices"
	"time"
)

// percentile returns the smallest value that at least p percent of the values
// do not exceed (the nearest-rank method), or 0 when there are none. It sorts
// its argument.
func percentile(values []time.Duration, p float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	rank := int(math.Ceil(p / 100 * float64(len(values))))
	return values[min(max(rank, 1), len(values))-1]
}

// jain returns Jain's fairness index of the shares: 1 when all are equal, 1/n
// when one has everything, and 0 when there is nothing to share.
func jain(shares []int) float64 {
	var sum, squares float64
	for _, x := range shares {
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}
