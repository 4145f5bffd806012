package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/metric"
	mnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tnoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/redlatch/redlatch/lock"
)

func TestNoOpsMakeNoObserver(t *testing.T) {
	o, err := New(Options{TracerProvider: tnoop.NewTracerProvider(), MeterProvider: mnoop.NewMeterProvider()})
	if o != nil || err != nil {
		t.Errorf("%v, %v", o, err)
	}
	// One of them is enough to need one, and it asks the other nothing.
	type provider struct{ metric.MeterProvider }
	o, err = New(Options{TracerProvider: tnoop.NewTracerProvider(), MeterProvider: provider{mnoop.NewMeterProvider()}})
	if o == nil || err != nil {
		t.Fatalf("%v, %v", o, err)
	}
	if o.(*observer).tracing != nil { //nolint:forcetypeassert // New makes no other
		t.Error("it traces into a no-op")
	}
}

// TestSource follows a global provider through what a program may set.
func TestSource(t *testing.T) {
	type placeholder struct{ trace.TracerProvider }
	type sdk struct{ trace.TracerProvider }
	var now any = &placeholder{}
	s := &source{global: func() any { return now }, was: now}
	if s.on() {
		t.Error("the placeholder leads somewhere")
	}
	now = &sdk{}
	for range 2 {
		if !s.on() {
			t.Error("what was set is not seen")
		}
	}
	now = tnoop.NewTracerProvider()
	if !s.on() {
		t.Error("the placeholder forwards to the first that was set, whatever comes after")
	}

	now = &placeholder{}
	s = &source{global: func() any { return now }, was: now}
	now = tnoop.NewTracerProvider()
	if s.on() {
		t.Error("a no-op leads somewhere")
	}
	now = &sdk{}
	if s.on() {
		t.Error("the placeholder forwards to the no-op, whatever comes after")
	}
}

type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) IsNil() bool     { return false }

func TestErrorTypesAreFew(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{lock.ErrNotAcquired, "not_acquired"},
		{lock.ErrUnavailable, "unavailable"},
		{lock.ErrLeaseLost, "lease_lost"},
		{lock.ErrNotHeld, "not_held"},
		{lock.ErrClosed, "closed"},
		{lock.ErrUpgrade, "upgrade"},
		{lock.ErrInvalidName, "invalid_name"},
		{lock.ErrInvalidOption, "invalid_option"},
		{lock.ErrReplicaAcks, "replica_acks"},
		{&lock.NotAcquiredError{Err: context.Canceled}, "cancelled"},
		{&lock.NotAcquiredError{Err: context.DeadlineExceeded}, "deadline_exceeded"},
		{&lock.NotAcquiredError{Err: errors.Join(context.DeadlineExceeded, &lock.UnavailableError{})}, "unavailable"},
		{&lock.NotAcquiredError{Err: errors.Join(context.Canceled, &lock.UnavailableError{})}, "cancelled"},
		{&lock.UnavailableError{}, "unavailable"},
		{lock.NodeError{Err: io.EOF}, "unavailable"},
		{&lock.LeaseLostError{}, "lease_lost"},
		{&lock.InvalidNameError{}, "invalid_name"},
		{&lock.InvalidOptionError{}, "invalid_option"},
		{&lock.ReplicaAcksError{}, "replica_acks"},
		{&lock.ServerError{Err: serverError("NOPERM this user has no permissions")}, "noperm"},
		{&lock.ServerError{Err: serverError("order:4711 is no lock")}, "server"},
		{&lock.ServerError{Err: errors.New("something else")}, "server"},
		{fmt.Errorf("wrapped: %w", lock.ErrClosed), "closed"},
		{serverError("WRONGTYPE Operation against a key"), "wrongtype"},
		{serverError("order:4711 is no code"), "other"},
		{&net.OpError{Op: "read", Err: io.EOF}, "unavailable"},
		{io.EOF, "unavailable"},
	} {
		if got := errorType(tc.err); got != tc.want {
			t.Errorf("%T %v: %s, want %s", tc.err, tc.err, got, tc.want)
		}
	}
}

func TestParseTrace(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if sc, ok := parseTrace("owner "+parent, "owner"); !ok || sc.SpanID().String() != "b7ad6b7169203331" || !sc.IsRemote() {
		t.Errorf("%v %t", sc, ok)
	}
	for _, left := range []string{
		"", parent, "other " + parent, "owner " + parent[:20], "owner 00-zz-zz-01", "owner 00-" + parent, "owner -",
		"owner 00-00000000000000000000000000000000-b7ad6b7169203331-01",
	} {
		if _, ok := parseTrace(left, "owner"); ok {
			t.Errorf("%q was taken for the holder's", left)
		}
	}
}

// The first in a line is always who has waited longest, whoever goes; one that is over comes back no more.
func TestLine(t *testing.T) {
	m := &metrics{}
	var l line
	var want []*acquisition
	rnd := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	for range 2000 {
		if len(want) == 0 || rnd.IntN(9) < 5 {
			a := &acquisition{}
			m.enter(a, &l)
			m.enter(a, &l)
			want = append(want, a)
		} else {
			i := rnd.IntN(len(want))
			over := rnd.IntN(2) == 0
			m.leave(want[i], over)
			m.leave(want[i], false)
			if m.enter(want[i], &l); over {
				want = slices.Delete(want, i, i+1)
			} else {
				a := want[i]
				want = append(slices.Delete(want, i, i+1), a)
			}
		}
		got := slices.Collect(l.All())
		if !slices.Equal(got, want) {
			t.Fatalf("%d stand in the line, want %d, or in another order", len(got), len(want))
		}
	}
}
