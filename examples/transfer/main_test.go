package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/examples/internal/replica"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestNoMoneyIsMadeOrLost: replicas transfer in all directions at once. The sum
// stays, no balance is negative, and nobody waits for ever.
func TestNoMoneyIsMadeOrLost(t *testing.T) {
	addr := testbed.Standalone(t).Addr()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	accounts := []string{"alice", "bob", "carol"}
	var banks []*bank
	for range 3 {
		banks = append(banks, &bank{replica.Data(t, addr), replica.Locks(t, addr)})
	}
	for _, a := range accounts {
		testbed.Must(t, banks[0].put(ctx, map[string]int64{a: 100}))
	}
	var all sync.WaitGroup
	for _, b := range banks {
		for range 4 {
			all.Go(func() {
				for range 25 {
					i := rand.IntN(3)
					err := b.transfer(ctx, accounts[i], accounts[(i+1+rand.IntN(2))%3], 1+rand.Int64N(60))
					if err != nil && !errors.Is(err, errFunds) {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	sum := int64(0)
	for _, a := range accounts {
		n, err := banks[0].get(ctx, a)
		if err != nil || n < 0 {
			t.Errorf("%s has %d, %v", a, n, err)
		}
		sum += n
	}
	testbed.Equal(t, sum, 300, "the sum")
}
