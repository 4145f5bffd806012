package held

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestGateKeepsThePlace: who goes on to wait for another end keeps its place, and leaves when
// there is none.
func TestGateKeepsThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		if !g.TryEnter() {
			t.Fatal("a new gate is not free")
		}
		ends := []chan struct{}{make(chan struct{}), make(chan struct{})}
		said := make(chan string, 3)
		enter := func(name string, stop chan struct{}, next func() <-chan struct{}) {
			go func() {
				if !g.EnterWhile(t.Context(), stop, next) {
					name += " has left"
				}
				said <- name
			}()
			synctest.Wait() // it stands in the line
		}
		enter("first", ends[0], func() <-chan struct{} { return ends[1] })
		enter("gone", ends[0], func() <-chan struct{} { return nil })
		enter("last", nil, nil)
		close(ends[0])
		if got := <-said; got != "gone has left" {
			t.Errorf("%s", got)
		}
		for _, want := range []string{"first", "last"} {
			g.Leave()
			if got := <-said; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		g.Leave()
		if !g.Enter(context.Background(), nil) {
			t.Error("the gate is not free")
		}
	})
}
