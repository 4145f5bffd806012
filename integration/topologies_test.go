package integration

import (
	"testing"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/testbed"
)

// A client made with the options that users pass finds the master of a Sentinel set and every node
// of a Cluster, and leaves nothing behind when it is closed.
func TestClientsReachEveryTopology(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		start func(t *testing.T) (rueidis.ClientOption, []*testbed.Server)
	}{
		{"standalone", func(t *testing.T) (rueidis.ClientOption, []*testbed.Server) {
			t.Helper()
			s := testbed.Standalone(t)
			return rueidis.ClientOption{InitAddress: []string{s.Addr()}}, []*testbed.Server{s}
		}},
		{"sentinel", func(t *testing.T) (rueidis.ClientOption, []*testbed.Server) {
			t.Helper()
			s := testbed.Sentinel(t)
			return rueidis.ClientOption{
				InitAddress: s.SentinelAddrs(),
				Sentinel:    rueidis.SentinelOption{MasterSet: testbed.MasterName},
			}, append(s.Nodes(), s.Sentinels()...)
		}},
		{"cluster", func(t *testing.T) (rueidis.ClientOption, []*testbed.Server) {
			t.Helper()
			c := testbed.Cluster(t)
			return rueidis.ClientOption{InitAddress: c.Addrs()}, c.Nodes()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			option, servers := tc.start(t)
			for _, s := range servers {
				testbed.LeakCheck(t, s)
			}
			option.DisableCache = true
			client, err := rueidis.NewClient(option)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			for _, key := range []string{"a", "b", "c", "d", "e", "f"} { // slots of all three masters
				if err := client.Do(t.Context(), client.B().Set().Key(key).Value("v").Build()).Error(); err != nil {
					t.Errorf("set %s: %v", key, err)
				}
				if n, err := client.Do(t.Context(), client.B().Del().Key(key).Build()).AsInt64(); n != 1 || err != nil {
					t.Errorf("delete %s: %d, %v", key, n, err)
				}
			}
		})
	}
}
