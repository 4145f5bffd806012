package redlatch_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/multilock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rwlock"
)

// The public API has these names and shapes; programs that use it compile with every
// version. A line that no longer compiles is a breaking change.
var (
	_ func(redlatch.Config) (*redlatch.Client, error)                                                         = redlatch.New
	_ func(string, ...redlatch.ConfigOption) (*redlatch.Client, error)                                        = redlatch.Open
	_ func(rueidis.Client, redlatch.Config) (*redlatch.Client, error)                                         = redlatch.NewWithClient
	_ func(...redlatch.Member) *multilock.MultiLock                                                           = redlatch.MultiLock
	_ func(...redlatch.Member) *multilock.MultiLock                                                           = redlatch.QuorumLock
	_ func(context.Context, string) context.Context                                                           = redlatch.WithOwner
	_ func(context.Context) context.Context                                                                   = redlatch.NewOwner
	_ func(time.Duration) redlatch.AcquireOption                                                              = redlatch.WithLease
	_ func(context.Context, redlatch.Locker, func(context.Context) error, ...redlatch.AcquireOption) error    = redlatch.Do
	_ func(context.Context, redlatch.Locker, time.Duration, time.Duration, func(context.Context) error) error = redlatch.TryDo
	_ func() redlatch.Option                                                                                  = redlatch.Fenced
	_ func() redlatch.Option                                                                                  = redlatch.PreferReaders
	_ func(string) redlatch.ForceOption                                                                       = redlatch.IfOwner
	_ func(*redlatch.Client, string, ...redlatch.Option) *rlock.RLock                                         = (*redlatch.Client).RLock
	_ func(*redlatch.Client, string, ...redlatch.Option) *fairlock.FairLock                                   = (*redlatch.Client).FairLock
	_ func(*redlatch.Client, string, ...redlatch.Option) *rwlock.ReadWriteLock                                = (*redlatch.Client).ReadWriteLock
	_ func(*rwlock.ReadWriteLock) *rwlock.ReadLock                                                            = (*rwlock.ReadWriteLock).ReadLock
	_ func(*rwlock.ReadWriteLock) *rwlock.WriteLock                                                           = (*rwlock.ReadWriteLock).WriteLock
	_ func(*redlatch.Client, context.Context) error                                                           = (*redlatch.Client).Shutdown
	_ func(*redlatch.Client)                                                                                  = (*redlatch.Client).Close
	_ func(*redlatch.Client) []redlatch.HeldLock                                                              = (*redlatch.Client).Held
	_ func(*redlatch.Client, string) *redlatch.Once                                                           = (*redlatch.Client).Once

	_ func(*redlatch.Client, context.Context, string) (redlatch.Inspection, error)                    = (*redlatch.Client).Inspect
	_ func(*redlatch.Client, context.Context, string) iter.Seq2[redlatch.Inspection, error]           = (*redlatch.Client).Locks
	_ func(*redlatch.Client, context.Context, string, ...redlatch.ForceOption) (bool, error)          = (*redlatch.Client).ForceUnlock
	_ func(*redlatch.Once, context.Context, time.Duration, func(context.Context) error) (bool, error) = (*redlatch.Once).Do
)

// kindOfLock is what every kind has.
type kindOfLock interface {
	redlatch.Locker
	Name() string
	Do(ctx context.Context, fn func(ctx context.Context) error, opts ...redlatch.AcquireOption) error
	TryDo(ctx context.Context, wait, lease time.Duration, fn func(ctx context.Context) error) error
	State(ctx context.Context) (redlatch.State, error)
	ForceUnlock(ctx context.Context) (bool, error)
}

var (
	_ kindOfLock = (*rlock.RLock)(nil)
	_ kindOfLock = (*fairlock.FairLock)(nil)
	_ kindOfLock = (*rwlock.ReadLock)(nil)
	_ kindOfLock = (*rwlock.WriteLock)(nil)
	_ kindOfLock = (*multilock.MultiLock)(nil)
)

// ownHold and ownLock are a user's types: they have what Hold and Locker ask for and nothing
// else, and would not compile if more were asked for.
type ownHold struct{}

func (ownHold) Name() string                                { return "own" }
func (ownHold) Context() context.Context                    { return context.Background() }
func (ownHold) Unlock(context.Context) error                { return nil }
func (ownHold) Extend(context.Context, time.Duration) error { return nil }
func (ownHold) Token() uint64                               { return 0 }
func (ownHold) ValidUntil() time.Time                       { return time.Time{} }

type ownLock struct{}

func (ownLock) Lock(context.Context, ...redlatch.AcquireOption) (redlatch.Hold, error) {
	return ownHold{}, nil
}

func (ownLock) TryLock(context.Context, time.Duration, time.Duration) (redlatch.Hold, error) {
	return ownHold{}, nil
}

var (
	_ redlatch.Hold   = ownHold{}
	_ redlatch.Locker = ownLock{}
	_                 = redlatch.Config{
		Redis: rueidis.ClientOption{}, ClientBuilder: rueidis.NewClient, Name: "", LeaseTime: time.Second,
		Prefix: "", NameMapper: strings.ToLower, FenceTTL: time.Hour, ReplicaAcks: 0, ReplicaAckTimeout: time.Second,
		UnlockTimeout: time.Second, TracerProvider: trace.TracerProvider(nil), MeterProvider: metric.MeterProvider(nil),
		Logger: (*slog.Logger)(nil), Telemetry: redlatch.Telemetry{},
	}
)

// Each detail matches its own sentinel and no other, through wrapping too, and says so in
// one line and with a short type; so does each sentinel. The zero values say something, too.
func TestEachErrorIsItsOwnSentinel(t *testing.T) {
	sentinels := map[error]error{ // and its detail
		redlatch.ErrNotAcquired:   &redlatch.NotAcquiredError{},
		redlatch.ErrUnavailable:   &redlatch.UnavailableError{},
		redlatch.ErrLeaseLost:     &redlatch.LeaseLostError{},
		redlatch.ErrInvalidName:   &redlatch.InvalidNameError{},
		redlatch.ErrInvalidOption: &redlatch.InvalidOptionError{},
		redlatch.ErrReplicaAcks:   &redlatch.ReplicaAcksError{},
		redlatch.ErrOtherOwner:    &redlatch.OtherOwnerError{},
		redlatch.ErrNotHeld:       nil, redlatch.ErrClosed: nil, redlatch.ErrUpgrade: nil, redlatch.ErrUnlocked: nil,
	}
	types := map[string]error{}
	kind := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	check := func(err, sentinel error) {
		wrapped := lock.Join(errors.New("first"), err)
		for other := range sentinels {
			if is := errors.Is(err, other); is != (other == sentinel) || errors.Is(wrapped, other) != is { //nolint:errorlint // the very sentinel
				t.Errorf("%T %q matches %q: %v", err, err, other, is)
			}
		}
		if m := err.Error(); m == "" || strings.Contains(m, "\n") {
			t.Errorf("%T: message %q", err, m)
		}
		typed, ok := err.(interface{ ErrorType() string })
		if !ok || !kind.MatchString(typed.ErrorType()) {
			t.Errorf("%T has no type, or a bad one", err)
			return
		}
		if first, taken := types[typed.ErrorType()]; taken && first != sentinel { //nolint:errorlint // the very sentinel
			t.Errorf("%q and %q are both %q", first, err, typed.ErrorType())
		}
		types[typed.ErrorType()] = sentinel
	}
	for sentinel, detail := range sentinels {
		check(sentinel, sentinel)
		if detail != nil {
			check(detail, sentinel)
		}
	}
	for _, err := range []error{&redlatch.ServerError{}, &redlatch.ShutdownError{}, &redlatch.ConnectError{}} {
		if m := err.Error(); m == "" || strings.Contains(m, "\n") {
			t.Errorf("%T: message %q", err, m)
		}
		for sentinel := range sentinels {
			if errors.Is(err, sentinel) {
				t.Errorf("%T matches %q", err, sentinel)
			}
		}
	}
}
