package desk

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/luascript"
)

// compare holds what the server said to a sequence, and had after each step, against the model. It returns the rest.
func compare(t *testing.T, ops []op, want []string, got []rueidis.RedisResult) (rest []rueidis.RedisResult) {
	t.Helper()
	again := map[string]bool{}
	for n, o := range ops {
		answer, err := got[0].ToMessage()
		if err != nil && !rueidis.IsRedisNil(err) {
			t.Fatalf("%v: %v", o.cmd, err)
		}
		said, err := o.read(answer, again)
		if err != nil {
			t.Fatalf("%v: %v", o.cmd, err)
		}
		if state := dumped(t, got[1]); said != want[2*n] || state != want[2*n+1] {
			t.Fatalf("the scripts and the model differ:\n%sthe server says %q and has %q, the model %q and %q", told(ops[:n+1], want), said, state,
				want[2*n], want[2*n+1])
		}
		got = got[2:]
	}
	return got
}

// dumped is what the dump says.
func dumped(t *testing.T, r rueidis.RedisResult) string {
	t.Helper()
	parts, err := r.ToArray()
	if err != nil || len(parts) != 5 {
		t.Fatalf("the dump says %v, %v", parts, err)
	}
	var out []string
	for n, p := range parts {
		text, err := p.ToString()
		if err != nil {
			num, err := p.AsInt64()
			if err != nil {
				t.Fatal(err)
			}
			if n == 1 {
				num = (num + 5000) / 10000
			}
			text = strconv.FormatInt(num, 10)
		}
		out = append(out, text)
	}
	return strings.Join(out, "|")
}

func told(ops []op, want []string) string {
	var b strings.Builder
	for n, o := range ops {
		what := o.what
		if what == "" {
			what = o.cmd.String()
		}
		fmt.Fprintf(&b, "client %d field %d: %s: %s\n", o.client, o.cmd.Field, what, want[2*n])
	}
	return b.String()
}

// subscribe listens as the clients would.
func subscribe(t *testing.T, client rueidis.Client, keys []string, heard func(int, string) bool, all func(string) bool) (end func()) {
	t.Helper()
	var channels []string
	for _, key := range keys {
		for id := range 3 {
			if heard(id, key) {
				channels = append(channels, luascript.CallChannel(key)+clientIDs[id])
			}
		}
		if all(key) {
			channels = append(channels, luascript.LockChannel(key))
		}
	}
	own, cancel := client.Dedicate()
	var ready sync.WaitGroup
	ready.Add(len(channels))
	own.SetPubSubHooks(rueidis.PubSubHooks{OnSubscription: func(s rueidis.PubSubSubscription) {
		if s.Kind == "subscribe" {
			ready.Done()
		}
	}})
	if err := own.Do(t.Context(), own.B().Subscribe().Channel(channels...).Build()).Error(); err != nil {
		t.Fatal(err)
	}
	ready.Wait()
	return cancel
}
