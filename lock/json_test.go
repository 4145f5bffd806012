package lock

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// JSON has seconds and RFC 3339 in UTC, and reads back what it has written.
func TestInspectionJSON(t *testing.T) {
	at := time.Date(2026, time.November, 22, 3, 11, 11, 500_000_000, time.UTC)
	in := Inspection{
		Name: "n", Key: "p:n", Kind: KindFair, Mode: ModeLock, At: at, Remaining: 27500 * time.Millisecond, HolderCount: 1, QueueLength: 1,
		Holders: []Holder{{
			Owner: "o", Process: Process{ClientID: "c"}, Count: 2, Mode: ModeLock, Remaining: 1250 * time.Millisecond,
			AskedSince: at.Add(-3 * time.Second), HeldSince: at.Add(-time.Second),
		}},
		Queue: []Waiter{{Owner: "w", Mode: ModeLock, AskedSince: at}},
	}
	text, err := json.Marshal(in)
	testbed.Must(t, err)
	for _, want := range []string{
		`"remaining_seconds":27.5`, `"remaining_seconds":1.25`, `"client_id":"c"`,
		`"held_since":"2026-11-22T03:11:10.5Z"`, `"asked_since":"2026-11-22T03:11:08.5Z"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	var back Inspection
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, in) {
		t.Errorf("%+v became %+v: %v", in, back, err)
	}
}

// What has a place in JSON has no field that is written in nanoseconds.
func TestNoNanosecondsInJSON(t *testing.T) {
	for _, of := range []reflect.Type{reflect.TypeFor[Inspection](), reflect.TypeFor[Holder](), reflect.TypeFor[Waiter]()} {
		for i := range of.NumField() {
			if f := of.Field(i); f.Type == reflect.TypeFor[time.Duration]() && f.Tag.Get("json") != "-" {
				t.Errorf("%s.%s", of, f.Name)
			}
		}
	}
}
