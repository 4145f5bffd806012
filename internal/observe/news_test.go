package observe

import (
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// News is told in order, by one goroutine that is there only while something is to be told.
func TestNewsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n News
		var told, want []int
		for round := range 3 {
			for i := range 100 {
				n.Tell(func() { told = append(told, 100*round+i) }) // the race detector sees two goroutines
				want = append(want, 100*round+i)
			}
			n.Wait()
			if n.telling {
				t.Error("a goroutine is left")
			}
		}
		if !slices.Equal(told, want) {
			t.Error("told in another order:", told)
		}
	})
}

// Telling blocks nobody; what comes again and again is dropped while too much waits, and nothing
// else is.
func TestNewsBehindABlockedHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n News
		open := make(chan struct{})
		n.Tell(func() { <-open })
		synctest.Wait()
		often, once := 0, 0
		for range 2 * maxNews {
			n.TellOften(func() { often++ })
		}
		for range 2 * maxNews {
			n.Tell(func() { once++ })
		}
		if Within(time.Minute, n.Wait) {
			t.Error("all is told while the handler blocks")
		}
		close(open)
		if !Within(time.Minute, n.Wait) {
			t.Error("it is not told though no handler blocks any more")
		}
		if often != maxNews || once != 2*maxNews {
			t.Errorf("told %d and %d, want %d and %d", often, once, maxNews, 2*maxNews)
		}
	})
}

// A handler that ends its goroutine (runtime.Goexit, as a test's FailNow does) ends no other news.
func TestNewsAfterGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n News
		told := 0
		n.Tell(runtime.Goexit)
		n.Tell(func() { told++ })
		n.Wait()
		n.Tell(func() { told++ })
		n.Wait()
		if told != 2 {
			t.Errorf("%d of 2 were told", told)
		}
	})
}
