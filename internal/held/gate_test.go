package held

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestGateIsLeftInOrder: who stops waiting leaves the line, and the others keep their places.
func TestGateIsLeftInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		if !g.TryEnter() {
			t.Fatal("a new gate is not free")
		}
		end := make(chan struct{})
		said := make(chan string, 3)
		enter := func(name string, stop chan struct{}) {
			go func() {
				if !g.Enter(t.Context(), stop) {
					name += " has left"
				}
				said <- name
			}()
			synctest.Wait() // it stands in the line
		}
		enter("first", make(chan struct{}))
		enter("gone", end)
		enter("last", nil)
		close(end)
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
