package hazard

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/integration/bed"
)

// serverOfTheChild names the server of a child process of TestTheClientLibraryStillPanics.
const serverOfTheChild = "REDLATCH_TEST_PANICS_AT"

// The client library still panics when a server refuses what it sends behind an UNSUBSCRIBE. If it
// does not any more, internal/conn/unsubscribe_panic.go can go, with internal/conn/replies.go, and
// with it Conn.Unsubscribes and what internal/pubsub does where that is false.
func TestTheClientLibraryStillPanics(t *testing.T) {
	if addr := os.Getenv(serverOfTheChild); addr != "" {
		unsubscribeWhileBusy(addr)
		return
	}
	t.Parallel()
	s := bed.Server(t)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTheClientLibraryStillPanics$") //nolint:gosec // this program
	child.Env = append(os.Environ(), serverOfTheChild+"="+s.Addr())
	var said strings.Builder
	child.Stderr = &said
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "subscribed\n" {
		t.Fatalf("the child says %q (%v)", line, err)
	}
	end := s.Hang(t)
	err = child.Wait()
	end()
	if err == nil || !strings.Contains(said.String(), "panic: protocol bug") {
		t.Errorf("the client library bears it now (%v): its workaround can go\n%s", err, said.String())
	}
}

// unsubscribeWhileBusy is the child: it unsubscribes with the client library alone.
func unsubscribeWhileBusy(addr string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, DisableRetry: true})
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return
	}
	defer client.Close()
	dc, release := client.Dedicate()
	defer release()
	dc.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(rueidis.PubSubMessage) {}})
	if err := dc.Do(ctx, dc.B().Subscribe().Channel("c").Build()).Error(); err != nil {
		fmt.Fprintln(os.Stdout, err)
		return
	}
	fmt.Fprintln(os.Stdout, "subscribed")
	for client.Do(ctx, client.B().Ping().Build()).Error() == nil {
		time.Sleep(time.Millisecond)
	}
	_ = dc.Do(ctx, dc.B().Unsubscribe().Channel("c").Build()).Error()
	_ = dc.Do(ctx, dc.B().Ping().Build()).Error()
}
