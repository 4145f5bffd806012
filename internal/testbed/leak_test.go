package testbed

import (
	"context"
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func TestLeakCheckFindsEachKindOfLeak(t *testing.T) {
	subscribe := func(command func(rueidis.Builder) rueidis.Completed) func(t *testing.T, s *Server) {
		return func(t *testing.T, s *Server) {
			t.Helper()
			dedicated, cancel := tested(t, s.Addr()).Dedicate()
			t.Cleanup(cancel)
			dedicated.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(rueidis.PubSubMessage) {}})
			if err := dedicated.Do(t.Context(), command(dedicated.B())).Error(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tc := range []struct {
		name, want string
		options    []LeakOption
		leak       func(t *testing.T, s *Server)
	}{
		{name: "nothing", leak: func(*testing.T, *Server) {}},
		{name: "key", want: `key "orders:42"`, leak: func(t *testing.T, s *Server) {
			t.Helper()
			s.Do(t, "SET", "orders:42", "x")
		}},
		{name: "allowed key", options: []LeakOption{AllowKeys("token:")}, leak: func(t *testing.T, s *Server) {
			t.Helper()
			s.Do(t, "SET", "token:{a}", "1")
		}},
		{name: "channel", want: `channel "ch"`, options: []LeakOption{AllowClients(9)}, leak: subscribe(func(b rueidis.Builder) rueidis.Completed {
			return b.Subscribe().Channel("ch").Build()
		})},
		{name: "sharded channel", want: `channel "ch"`, options: []LeakOption{AllowClients(9)}, leak: subscribe(func(b rueidis.Builder) rueidis.Completed {
			return b.Ssubscribe().Channel("ch").Build()
		})},
		{name: "pattern", want: "1 pattern", options: []LeakOption{AllowClients(9)}, leak: subscribe(func(b rueidis.Builder) rueidis.Completed {
			return b.Psubscribe().Pattern("c*").Build()
		})},
		{name: "client", want: "client id=", leak: func(t *testing.T, s *Server) {
			t.Helper()
			tested(t, s.Addr())
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.name == "sharded channel" {
				Needs(t, 7, 0, "sharded channels")
			}
			s := Standalone(t)
			tc.leak(t, s)
			check := &leakCheck{keys: func(string) bool { return false }}
			for _, option := range tc.options {
				option(check)
			}
			err := check.look(s)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("found %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestLeakCheckWaitsForWhatIsUnderWay(t *testing.T) {
	var r recorder
	s := Standalone(t)
	LeakCheck(&r, s)
	client := tested(t, s.Addr())
	if err := client.Do(context.Background(), client.B().Arbitrary("SET", "k", "v", "PX", "200").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	client.Close()
	r.Close()
	if len(r.failures) != 0 {
		t.Errorf("%q", r.failures)
	}
}

func TestLeakCheckPassesOverADeadServer(t *testing.T) {
	var r recorder
	s := Standalone(t)
	LeakCheck(&r, s)
	s.Kill(t)
	r.Close()
	if len(r.failures) != 0 {
		t.Errorf("%q", r.failures)
	}
}
