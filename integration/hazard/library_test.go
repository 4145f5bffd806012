package hazard

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

func init() { testbed.Role("unsubscribe", unsubscribeWhileBusy) }

// The client library still panics when a server refuses what it sends behind an UNSUBSCRIBE. If it
// does not any more, internal/conn/unsubscribe_panic.go can go, with internal/conn/replies.go, and
// with it Conn.Unsubscribes and what internal/pubsub does where that is false.
func TestTheClientLibraryStillPanics(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	p := testbed.Spawn(t, "unsubscribe", s.Addr())
	p.Expect(t, "subscribed")
	end := s.Hang(t)
	err := p.Wait(t)
	end()
	if err == nil || !strings.Contains(p.Stderr(), "panic: protocol bug") {
		t.Errorf("the client library bears it now (%v): its workaround can go\n%s", err, p.Stderr())
	}
}

// unsubscribeWhileBusy is a process of its own: it unsubscribes with the client library alone.
func unsubscribeWhileBusy(ctx context.Context, w *testbed.Worker) error {
	var addr string
	if err := w.Args(&addr); err != nil {
		return err
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, DisableRetry: true})
	if err != nil {
		return err
	}
	defer client.Close()
	dc, release := client.Dedicate()
	defer release()
	dc.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(rueidis.PubSubMessage) {}})
	if err := dc.Do(ctx, dc.B().Subscribe().Channel("c").Build()).Error(); err != nil {
		return err
	}
	w.Say("subscribed")
	for client.Do(ctx, client.B().Ping().Build()).Error() == nil {
		time.Sleep(time.Millisecond)
	}
	_ = dc.Do(ctx, dc.B().Unsubscribe().Channel("c").Build()).Error()
	_ = dc.Do(ctx, dc.B().Ping().Build()).Error()
	return nil
}
