package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/examples/internal/replica"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestSoldExactly: forty buyers in two processes want twenty-five pieces. As many are sold as there are, each to somebody
// of its own, and whoever gets none is told why.
func TestSoldExactly(t *testing.T) {
	addr := testbed.Standalone(t).Addr()
	var shops []*shop
	for range 2 {
		shops = append(shops, &shop{redis: replica.Data(t, addr), locks: replica.Locks(t, addr, redlatch.WithPrefix("lock:"))})
	}
	redis := shops[0].redis
	testbed.Must(t, redis.Do(t.Context(), redis.B().Set().Key("shop:stock:42").Value("25").Build()).Error())
	var sold, busy atomic.Int64
	var buyers sync.WaitGroup
	for i := range 40 {
		buyers.Go(func() {
			switch err := shops[i%2].buy(context.WithoutCancel(t.Context()), "42", fmt.Sprint(i)); {
			case err == nil:
				sold.Add(1)
			case errors.Is(err, errBusy): // a slow machine
				busy.Add(1)
			case !errors.Is(err, errSoldOut):
				t.Error(err)
			}
		})
	}
	buyers.Wait()
	stock, err := redis.Do(t.Context(), redis.B().Get().Key("shop:stock:42").Build()).AsInt64()
	orders, err2 := redis.Do(t.Context(), redis.B().Scard().Key("shop:buyers:42").Build()).AsInt64()
	if err := errors.Join(err, err2); err != nil || sold.Load()+stock != 25 || orders != sold.Load() || stock > 0 && busy.Load() == 0 {
		t.Errorf("%d sold, %d orders, %d left, %d buyers did not get in, %v", sold.Load(), orders, stock, busy.Load(), err)
	}
}
