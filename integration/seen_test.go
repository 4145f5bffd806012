package integration

import (
	"context"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// The name of a MultiLock of copies says of how many.
func TestNameOfAMultiLockOfCopies(t *testing.T) {
	a, b := testbed.Standalone(t), testbed.Standalone(t)
	ca, cb := rlClient(t, a.Addr()), rlClient(t, b.Addr())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := redlatch.MultiLock(ca.RLock("d"), cb.RLock("d"), cb.RLock("e")).Lock(ctx)
	if err == nil || !strings.Contains(err.Error(), "[d ×2 e]") {
		t.Errorf("%v", err)
	}
}
