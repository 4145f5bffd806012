package topology

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestClusterKinds: every kind excludes, hands over by a message and leaves
// nothing behind, on several nodes and on names of every shape.
func TestClusterKinds(t *testing.T) {
	set := testbed.Cluster(t)
	// A node that loses its slots loses a release that it answered then, too: its lock stands for its lease.
	nodeTimeout(t, set, 30*time.Second)
	for _, s := range set.Masters(t) {
		testbed.LeakCheck(t, s, testbed.AllowKeys("redisson_lock_token:", "redlatch_void:"))
	}
	clients := []*redlatch.Client{open(t, cluster(set)), open(t, cluster(set)), open(t, cluster(set))}
	for _, k := range exclusive() {
		for _, shape := range []string{"%s", "x{%s}y", "{%s}z", "\x00\xff bin %s"} {
			name := fmt.Sprintf(shape, k.Name+"-name")
			t.Run(k.Name+"/"+name, func(t *testing.T) {
				const each = 12
				began, done, turns := time.Now(), make(chan error, each), 0 // the turns are guarded by the lock
				for i := range each {
					go func() {
						done <- redlatch.Do(bed.Within(t, 30*time.Second), on(k, clients[i%3], name), func(context.Context) error {
							was := turns
							time.Sleep(2 * time.Millisecond)
							turns = was + 1
							return nil
						})
					}()
				}
				for range each {
					bed.Want(t, <-done, nil)
				}
				if took := time.Since(began); turns != each || took > lease {
					t.Errorf("%d turns of %d in %v: two were inside, or a message did not arrive", turns, each, took)
				}
			})
		}
		if k.Parts != nil {
			continue // whose names have tags of their own
		}
		for _, name := range []string{"a}b", "a{b", "{}z", "{}", "{tag}", "x{}y"} {
			if _, err := on(k, clients[0], name).Lock(t.Context()); !errors.Is(err, redlatch.ErrInvalidName) {
				t.Errorf("%s %q: %v, want ErrInvalidName", k.Name, name, err)
			}
		}
	}
}
