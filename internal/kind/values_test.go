package kind

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
)

func TestSkipAfter(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		lock.MinSkipAfter: lock.MinSkipAfter, time.Minute: time.Minute, lock.MaxSkipAfter: lock.MaxSkipAfter,
		0: -1, -time.Second: -1, lock.MinSkipAfter - 1: -1, lock.MaxSkipAfter + 1: -1,
	} {
		got, err := SkipAfter(settings.Of[settings.Lock]([]lock.Option{lock.WithSkipAfter(d)}))
		if (want < 0) != errors.Is(err, lock.ErrInvalidOption) || (want > 0 && (err != nil || got != want)) {
			t.Errorf("%v: %v %v", d, got, err)
		}
	}
	if got, err := SkipAfter(settings.Lock{}); got != lock.DefaultSkipAfter || err != nil {
		t.Errorf("by default %v %v", got, err)
	}
}

func TestOnly(t *testing.T) {
	skip, prefer := settings.Lock{SkipAfter: time.Second}, settings.Lock{PreferReaders: true}
	for _, tc := range []struct {
		set                    settings.Lock
		knowsSkip, knowsPrefer bool
		refused                string
	}{
		{settings.Lock{Fenced: true}, false, false, ""},
		{skip, true, false, ""},
		{skip, false, true, "WithSkipAfter"},
		{prefer, false, true, ""},
		{prefer, true, false, "PreferReaders"},
	} {
		err := Only(tc.set, "X", tc.knowsSkip, tc.knowsPrefer)
		if (err == nil) != (tc.refused == "") || (err != nil && (!errors.Is(err, lock.ErrInvalidOption) || !strings.Contains(err.Error(), tc.refused))) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

func TestAnswered(t *testing.T) {
	for code, want := range map[int64]Outcome{
		1: {Acquired: true, Token: 7}, 2: {Acquired: true, Renewed: true, Token: 7}, -1: {Void: true}, -3: {NoLock: true},
	} {
		got, done := Answered(conn.Reply{Code: code, Vals: []conn.Value{{Int: code}, {Int: 7}}})
		if !done || got.Acquired != want.Acquired || got.Renewed != want.Renewed || got.Void != want.Void ||
			got.NoLock != want.NoLock || got.Token != want.Token {
			t.Errorf("%d: %+v", code, got)
		}
	}
	// A large integer alone is a token; no code of an array is, and nothing that can't be one.
	if got, done := Answered(conn.Reply{Code: conn.LastToken}); !done || !got.Acquired || got.Renewed || got.Token != conn.LastToken {
		t.Errorf("a token alone: %+v", got)
	}
	for _, r := range []conn.Reply{{Code: lastCode}, {Code: conn.LastToken + 1}, {Code: 1 << 40, Vals: []conn.Value{{Int: 1 << 40}}}} {
		if got, done := Answered(r); done {
			t.Errorf("%+v: %+v", r, got)
		}
	}
	if _, done := Answered(conn.Reply{Code: 0}); done {
		t.Error("a refusal is each kind's own")
	}
}
