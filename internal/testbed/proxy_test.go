package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// incr sends INCR key in the background.
func incr(client rueidis.Client, key string) <-chan error {
	result := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		result <- client.Do(ctx, client.B().Incr().Key(key).Build()).Error()
	}()
	return result
}

func silent(t *testing.T, result <-chan error) {
	t.Helper()
	select {
	case err := <-result:
		t.Fatalf("an answer came: %v", err)
	case <-time.After(30 * time.Millisecond):
	}
}

func proxied(t *testing.T) (*Server, *Proxy, rueidis.Client) {
	t.Helper()
	s := Standalone(t)
	LeakCheck(t, s, AllowKeys("k"))
	p := NewProxy(t, s.Addr())
	return s, p, tested(t, p.Addr())
}

func TestLeadIsForNewConnections(t *testing.T) {
	_, p, client := proxied(t)
	other := Standalone(t)
	p.Lead(other.Addr())
	set := func(client rueidis.Client, value string) {
		t.Helper()
		Must(t, client.Do(t.Context(), client.B().Set().Key("k").Value(value).Build()).Error())
	}
	set(client, "old")
	Equal(t, other.Int(t, "EXISTS", "k"), 0, "connections that existed and were led elsewhere")
	set(tested(t, p.Addr()), "new")
	if got := other.Text(t, "GET", "k"); got != "new" || p.Upstream() != other.Addr() {
		t.Errorf("%q behind %s", got, p)
	}
}

func TestTraps(t *testing.T) {
	loading := func(p *Proxy, m Match) *Trap { return p.Answer(m, "LOADING Redis is loading the dataset in memory") }
	for name, c := range map[string]struct {
		set   func(p *Proxy, m Match) *Trap
		times int
		want  [3]int // of five requests: answered, ran, and ran once what was caught is delivered
	}{
		"one reply is lost":         {(*Proxy).DropReply, 1, [3]int{4, 5, 6}},
		"three replies are lost":    {(*Proxy).DropReply, 3, [3]int{2, 5, 8}},
		"one request is lost":       {(*Proxy).DropRequest, 1, [3]int{4, 4, 5}},
		"three requests are lost":   {(*Proxy).DropRequest, 3, [3]int{2, 2, 5}},
		"one request is copied":     {(*Proxy).CopyRequest, 1, [3]int{5, 5, 6}},
		"three requests are copied": {(*Proxy).CopyRequest, 3, [3]int{5, 5, 8}},
		"one has another answer":    {loading, 1, [3]int{4, 4, 5}},
		"three have another answer": {loading, 3, [3]int{2, 2, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			s, p, client := proxied(t)
			trap := c.set(p, Contains("INCR", "k1")).Times(c.times)
			var got [3]int
			for range 5 {
				if err := <-incr(client, "k2"); err != nil {
					t.Errorf("the wrong request was hit: %v", err)
				}
				if <-incr(client, "k1") == nil {
					got[0]++
				}
			}
			for range c.times {
				trap.Wait(t)
			}
			got[1] = int(s.Int(t, "GET", "k1"))
			Equal(t, trap.Deliver(t), fmt.Sprintf(":%d\r\n", got[1]+1), "the late reply")
			if n, again := trap.DeliverAll(t), trap.DeliverAll(t); n != c.times-1 || again != 0 {
				t.Errorf("%d and %d requests were left, want %d and 0", n, again, c.times-1)
			}
			if got[2] = int(s.Int(t, "GET", "k1")); got != c.want {
				t.Errorf("%d answered, %d ran, %d in the end, want %d", got[0], got[1], got[2], c.want)
			}
		})
	}
}

// TestAnswerIsInTheServersStead: the error comes in its turn, between the replies to other
// requests of the connection.
func TestAnswerIsInTheServersStead(t *testing.T) {
	_, p, client := proxied(t)
	p.Answer(Contains("INCR", "k2"), "LOADING Redis is loading the dataset in memory")
	results := client.DoMulti(context.Background(),
		client.B().Incr().Key("k1").Build(), client.B().Incr().Key("k2").Build(), client.B().Incr().Key("k3").Build())
	for i, want := range []string{"", "LOADING", ""} {
		if err := results[i].Error(); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("answer %d: %v", i+1, err)
		}
	}
}

func TestStallHoldsUntilReleased(t *testing.T) {
	s, p, client := proxied(t)
	for i, stall := range []func(Match) *Trap{p.StallRequest, p.StallReply} {
		trap := stall(Contains("INCR"))
		result := incr(client, "k")
		trap.Wait(t)
		silent(t, result)
		if got := s.Text(t, "GET", "k"); got != []string{"", "2"}[i] { // a stalled request has not run
			t.Errorf("k = %q", got)
		}
		trap.Release()
		if err := <-result; err != nil {
			t.Error(err)
		}
	}
}

func TestPauseCutRefuse(t *testing.T) {
	s, p, client := proxied(t)
	for _, d := range []Direction{Requests, Replies} {
		p.Pause(d)
		result := incr(client, "k")
		silent(t, result)
		p.Resume(d)
		if err := <-result; err != nil {
			t.Errorf("direction %d: %v", d, err)
		}
	}
	Equal(t, s.Int(t, "GET", "k"), 2, "k")
	p.Refuse()
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v, want connection refused", err)
	}
	if err := <-incr(client, "k"); err != nil {
		t.Errorf("Refuse ended a connection: %v", err)
	}
	p.Cut()
	if err := <-incr(client, "k"); err == nil {
		t.Error("an answer after Cut and Refuse")
	}
	p.Admit(t)
	if err := until(time.Now().Add(patience), func() error { return <-incr(client, "k") }); err != nil {
		t.Error(err)
	}
}

func TestDelayKeepsOrderAndRate(t *testing.T) {
	_, p, client := proxied(t)
	const by = 50 * time.Millisecond
	p.Delay(Requests, by)
	begin := time.Now()
	results := make([]<-chan error, 20)
	for i := range results {
		results[i] = incr(client, "k")
	}
	for _, result := range results {
		if err := <-result; err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(begin); took < by || took > 10*by {
		t.Errorf("20 requests at once took %v, want about %v", took, by)
	}
}

// conn is a connection without a client library.
type conn struct {
	net.Conn

	t      *testing.T
	frames *frameReader
}

func dialed(t *testing.T, addr string) conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err == nil {
		err = c.SetDeadline(time.Now().Add(patience))
	}
	Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return conn{c, t, newFrameReader(c)}
}

// send sends a command, and expects replies with these parts.
func (c conn) send(command string, parts ...string) {
	c.t.Helper()
	if _, err := c.Write(request(strings.Fields(command)...)); err != nil {
		c.t.Fatal(err)
	}
	c.expect(parts...)
}

func (c conn) expect(parts ...string) {
	c.t.Helper()
	for _, part := range parts {
		if frame, err := c.frames.next(); err != nil || !strings.Contains(string(frame), part) {
			c.t.Fatalf("%q (%v), want %s", frame, err, part)
		}
	}
}

// TestRepliesAreCountedThroughSubscriptions: confirmations and messages must
// not be taken for the reply that a trap waits for.
func TestRepliesAreCountedThroughSubscriptions(t *testing.T) {
	for _, hello := range []string{"2", "3"} {
		t.Run("RESP"+hello, func(t *testing.T) {
			s := Standalone(t)
			p := NewProxy(t, s.Addr())
			c := dialed(t, p.Addr())
			c.send("HELLO "+hello, "proto")
			c.send("UNSUBSCRIBE", "unsubscribe") // one confirmation, though none was asked for by name
			c.send("SUBSCRIBE a b", "a", "b")
			c.send("PING first", "first")
			s.Do(t, "PUBLISH", "a", "news")
			c.expect("news")
			c.send("ACL NOSUCH", "ERR")
			trap := p.DropReply(Contains("PING", "lost"))
			c.send("UNSUBSCRIBE")
			c.send("PING kept")
			c.send("PING lost", "unsubscribe", "unsubscribe", "kept")
			trap.Wait(t)
			if frame, err := c.frames.next(); err == nil {
				t.Errorf("after the cut: %q", frame)
			}
		})
	}
}
