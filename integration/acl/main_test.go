// Package acl tests that whoever has the rights of docs/ACL.md can do what they are for, and that each of them is needed.
package acl

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/testbed"
)

func TestMain(m *testing.M) {
	testbed.Main()
	// The client library's own, which end by themselves.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"))
}
