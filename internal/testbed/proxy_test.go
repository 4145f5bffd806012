package testbed

import (
	"context"
	"errors"
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
		if err := client.Do(t.Context(), client.B().Set().Key("k").Value(value).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	set(client, "old")
	if n := other.Int(t, "EXISTS", "k"); n != 0 {
		t.Error("a connection that existed was led elsewhere")
	}
	set(tested(t, p.Addr()), "new")
	if got := other.Text(t, "GET", "k"); got != "new" || p.Upstream() != other.Addr() {
		t.Errorf("%q behind %s", got, p)
	}
}

func TestDropReplyLosesOnlyTheReply(t *testing.T) {
	s, p, client := proxied(t)
	trap := p.DropReply(Contains("INCR", "k1"))
	if err := <-incr(client, "k2"); err != nil {
		t.Errorf("the wrong request was hit: %v", err)
	}
	if err := <-incr(client, "k1"); err == nil {
		t.Error("the reply came")
	}
	trap.Wait(t)
	if got := s.Int(t, "GET", "k1"); got != 1 {
		t.Errorf("ran %d times, want once", got)
	}
	if err := <-incr(client, "k1"); err != nil { // the trap is used up
		t.Error(err)
	}
}

func TestDropRequestIsNeverSeenUntilDelivered(t *testing.T) {
	s, p, client := proxied(t)
	trap := p.DropRequest(Contains("INCR"))
	if err := <-incr(client, "k"); err == nil {
		t.Error("an answer came")
	}
	trap.Wait(t)
	if got := s.Int(t, "EXISTS", "k"); got != 0 {
		t.Error("the request was passed on")
	}
	if got := trap.Deliver(t); got != ":1\r\n" {
		t.Errorf("late reply %q", got)
	}
	if got := s.Int(t, "GET", "k"); got != 1 {
		t.Errorf("k = %d after the delivery", got)
	}
}

func TestCopyRequestRepeatsIt(t *testing.T) {
	s, p, client := proxied(t)
	trap := p.CopyRequest(Contains("INCR"))
	if err := <-incr(client, "k"); err != nil {
		t.Error(err)
	}
	trap.Wait(t)
	trap.Deliver(t)
	if got := s.Int(t, "GET", "k"); got != 2 {
		t.Errorf("k = %d, want 2", got)
	}
}

func TestDeliverAllSendsWhatWasKept(t *testing.T) {
	s, p, client := proxied(t)
	trap := p.CopyRequest(Contains("INCR")).Times(3)
	for range 5 {
		if err := <-incr(client, "k"); err != nil {
			t.Error(err)
		}
	}
	if got := trap.DeliverAll(t); got != 3 {
		t.Errorf("%d requests were kept, want 3", got)
	}
	if got := s.Int(t, "GET", "k"); got != 8 {
		t.Errorf("k = %d, want 8", got)
	}
	if got := trap.DeliverAll(t); got != 0 {
		t.Errorf("%d requests were kept twice", got)
	}
}

// TestAnswerIsInTheServersStead: the error comes in its turn, between the replies to other
// requests of the connection, and the server has not seen the request.
func TestAnswerIsInTheServersStead(t *testing.T) {
	s, p, client := proxied(t)
	trap := p.Answer(Contains("INCR", "k2"), "LOADING Redis is loading the dataset in memory").Times(1)
	results := client.DoMulti(context.Background(),
		client.B().Incr().Key("k1").Build(), client.B().Incr().Key("k2").Build(), client.B().Incr().Key("k3").Build())
	for i, want := range []bool{true, false, true} {
		err := results[i].Error()
		if (err == nil) != want || !want && !strings.HasPrefix(err.Error(), "LOADING") {
			t.Errorf("answer %d: %v", i+1, err)
		}
	}
	trap.Wait(t)
	if got := s.Int(t, "EXISTS", "k2"); got != 0 {
		t.Error("the server has seen the request")
	}
	if err := <-incr(client, "k2"); err != nil { // the trap is used up
		t.Error(err)
	}
}

func TestStallHoldsUntilReleased(t *testing.T) {
	s, p, client := proxied(t)
	trap := p.StallRequest(Contains("INCR"))
	result := incr(client, "k")
	trap.Wait(t)
	silent(t, result)
	if got := s.Int(t, "EXISTS", "k"); got != 0 {
		t.Error("the stalled request ran")
	}
	trap.Release()
	if err := <-result; err != nil {
		t.Error(err)
	}

	trap = p.StallReply(Contains("INCR"))
	result = incr(client, "k")
	trap.Wait(t)
	silent(t, result)
	if got := s.Int(t, "GET", "k"); got != 2 {
		t.Error("the request whose reply is stalled did not run")
	}
	trap.Release()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestTimes(t *testing.T) {
	s, p, client := proxied(t)
	trap := p.DropReply(Contains("INCR")).Times(3)
	failed := 0
	for range 5 {
		if <-incr(client, "k") != nil {
			failed++
		}
	}
	if got := s.Int(t, "GET", "k"); failed != 3 || got != 5 {
		t.Errorf("%d of 3 replies lost, %d of 5 ran", failed, got)
	}
	for range 3 {
		trap.Wait(t)
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
	if got := s.Int(t, "GET", "k"); got != 2 {
		t.Errorf("k = %d, want 2", got)
	}
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

// TestRepliesAreCountedThroughSubscriptions: confirmations and messages must
// not be taken for the reply that a trap waits for.
func TestRepliesAreCountedThroughSubscriptions(t *testing.T) {
	for _, hello := range []string{"2", "3"} {
		t.Run("RESP"+hello, func(t *testing.T) {
			s := Standalone(t)
			p := NewProxy(t, s.Addr())
			conn, err := net.Dial("tcp", p.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			reader := newFrameReader(conn)
			send := func(args ...string) {
				t.Helper()
				if _, err := conn.Write(request(args...)); err != nil {
					t.Fatal(err)
				}
			}
			expect := func(part string) {
				t.Helper()
				frame, err := reader.next()
				if err != nil || !strings.Contains(string(frame), part) {
					t.Fatalf("%q (%v), want %s", frame, err, part)
				}
			}
			send("HELLO", hello)
			expect("proto")
			send("UNSUBSCRIBE") // one confirmation, though none was asked for by name
			expect("unsubscribe")
			send("SUBSCRIBE", "a", "b")
			expect("a")
			expect("b")
			send("PING", "first")
			expect("first")
			s.Do(t, "PUBLISH", "a", "news")
			expect("news")
			send("ACL", "NOSUCH")
			expect("ERR")
			trap := p.DropReply(Contains("PING", "lost"))
			send("UNSUBSCRIBE")
			send("PING", "kept")
			send("PING", "lost")
			expect("unsubscribe")
			expect("unsubscribe")
			expect("kept")
			trap.Wait(t)
			if frame, err := reader.next(); err == nil {
				t.Errorf("after the cut: %q", frame)
			}
		})
	}
}
