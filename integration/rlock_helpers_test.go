package integration

import (
	"errors"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

func TestMain(m *testing.M) { bed.Main(m) }

// rlClient makes a client with the lease of users who ask for none.
func rlClient(t *testing.T, addr string, change ...func(*redlatch.Config)) *redlatch.Client {
	t.Helper()
	return bed.Client(t, addr, append([]func(*redlatch.Config){redlatch.WithLeaseTime(0)}, change...)...)
}

// waited reports whether err is that of a wait that ended, busy or beside a server that was silent.
func waited(err error) bool {
	_, is := errors.AsType[*redlatch.NotAcquiredError](err)
	return is
}
