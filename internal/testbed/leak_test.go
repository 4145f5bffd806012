package testbed

import (
	"net"
	"strings"
	"testing"

	"github.com/redis/rueidis"
)

// tested returns a client such as a test would have.
func tested(t *testing.T, addr string) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:       []string{addr},
		ForceSingleClient: true,
		DisableCache:      true,
		DisableRetry:      true,
		PipelineMultiplex: -1,
		AlwaysPipelining:  true,
		Dialer:            net.Dialer{},
	})
	Must(t, err)
	t.Cleanup(client.Close)
	return client
}

func TestLeakCheckFindsEachKindOfLeak(t *testing.T) {
	for name, c := range map[string]struct {
		command string
		stays   bool // the connection
		option  LeakOption
		want    string
	}{
		"nothing":         {"PING", false, AllowClients(0), ""},
		"key":             {"SET orders:42 x", false, AllowClients(0), `key "orders:42"`},
		"allowed key":     {"SET token:{a} 1", false, AllowKeys("token:"), ""},
		"other key":       {"SET a:token: 1", false, AllowKeys("token:"), `key "a:token:"`},
		"channel":         {"SUBSCRIBE ch", true, AllowClients(1), `channel "ch"`},
		"sharded channel": {"SSUBSCRIBE ch", true, AllowClients(1), `channel "ch"`},
		"pattern":         {"PSUBSCRIBE c*", true, AllowClients(1), "1 pattern"},
		"client":          {"PING", true, AllowClients(0), "client id="},
		"allowed client":  {"PING", true, AllowClients(1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.command == "SSUBSCRIBE ch" {
				Needs(t, 7, 0, "sharded channels")
			}
			s := Standalone(t)
			if c.stays {
				dialed(t, s.Addr()).send(c.command, "")
			} else {
				s.Do(t, strings.Fields(c.command)...)
			}
			check := &leakCheck{keys: func(string) bool { return false }}
			c.option(check)
			if err := check.look(s); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestLeakCheckLetsPass(t *testing.T) {
	for name, before := range map[string]func(s *Server){
		"what is under way":  func(s *Server) { s.Do(t, "SET", "k", "v", "PX", "200") },
		"on a dead server":   func(s *Server) { s.Kill(t) },
		"on a frozen server": func(s *Server) { s.Freeze(t) },
	} {
		var r recorder
		s := Standalone(t)
		LeakCheck(&r, s)
		before(s)
		r.Close()
		if len(r.failures) != 0 {
			t.Errorf("%s: %q", name, r.failures)
		}
	}
}
