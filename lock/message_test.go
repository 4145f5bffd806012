package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/lock"
)

// answer is what the client library's error replies look like from here.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) IsNil() bool     { return false }

// withCause are the errors that tell of a cause, with one text for all else that they tell.
func withCause(text string, cause error) []error {
	node := lock.NodeError{Node: text, Err: cause}
	return []error{
		&lock.NotAcquiredError{Name: text, Holder: text, Remaining: time.Second, Err: cause},
		node, lock.NodeError{Err: cause},
		&lock.UnavailableError{Name: text, Op: "acquire", Nodes: []lock.NodeError{node, {Err: cause}}},
		&lock.UnavailableError{Op: "connect", Nodes: []lock.NodeError{{Err: cause}}},
		&lock.LeaseLostError{Name: text, Owner: text, Err: cause},
		&lock.ReplicaAcksError{Name: text, Err: cause},
		&lock.ServerError{Name: text, Op: "acquire", Err: cause},
		&lock.ServerError{Op: "connect", Err: cause},
		&lock.ConnectError{Node: text, Advice: text, Err: cause},
		&lock.ConnectError{Node: text, Advice: text, Err: &lock.ServerError{Op: "connect", Err: cause}},
		&lock.ShutdownError{Held: []lock.HeldLock{{Name: text, Owner: text}}, Err: cause},
		lock.Join(cause, &lock.NotAcquiredError{Name: text, Holder: text}),
		lock.Join(&lock.NotAcquiredError{Name: "n", Holder: text, Err: lock.Join(cause, cause)}, lock.ErrClosed),
	}
}

// TestMessagesAreOneLine, whatever the servers and joined causes say, and name a lock
// only if there is one.
func TestMessagesAreOneLine(t *testing.T) {
	for _, err := range withCause("n", errors.Join(errors.New("one\r\n two"), errors.New("three"))) {
		text := err.Error()
		_, joined := err.(interface{ Unwrap() []error })
		if strings.ContainsAny(text, "\r\n") || !strings.Contains(text, "one; two; three") || strings.Contains(text, `""`) ||
			!joined && strings.Count(text, "redlatch: ") > 1 {
			t.Errorf("%T: %q", err, text)
		}
	}
}

// TestJoinSaysOneThingOnce: a loss may be the error of the work, and of the Unlock behind it.
func TestJoinSaysOneThingOnce(t *testing.T) {
	lost := &lock.LeaseLostError{Name: "n", Err: errors.New("gone")}
	both := lock.Join(lost, errors.New("other"), lost)
	if got, want := both.Error(), lost.Error()+"; other"; got != want || !errors.Is(both, lock.ErrLeaseLost) {
		t.Errorf("%q, not %q", got, want)
	}
	if seen := map[error]bool{both: true}; !seen[both] { // a program may count its errors so
		t.Error("it is not itself")
	}
}

// TestMessagesWithoutACause: details can be made by users, for their own tests.
func TestMessagesWithoutACause(t *testing.T) {
	for _, err := range []error{
		&lock.NotAcquiredError{}, lock.NodeError{}, lock.NodeError{Node: "a:1"}, &lock.UnavailableError{Nodes: []lock.NodeError{{}}},
		&lock.UnavailableError{}, &lock.LeaseLostError{}, &lock.InvalidNameError{}, &lock.InvalidOptionError{},
		&lock.ReplicaAcksError{}, &lock.OtherOwnerError{}, &lock.UnlockError{}, &lock.ServerError{}, &lock.ConnectError{},
	} {
		if err.Error() == "" || errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%T: %q", err, err)
		}
	}
}

// TestBusyMessageNamesTheHolderAndWhatIsKnown: no time is made up for a holder whose lease has no end.
func TestBusyMessageNamesTheHolderAndWhatIsKnown(t *testing.T) {
	const owner = "8743c9c0-0795-4907-87fd-6c719a6b4586:42"
	const own = " (of this client; a re-entry needs that hold's Context())"
	for want, err := range map[string]*lock.NotAcquiredError{
		"":                         {Remaining: time.Second},
		", held by " + owner:       {Holder: owner},
		", held by " + owner + own: {Holder: owner, Own: true},
		", held by " + owner + " for up to 3s, as seen 2.5s ago": {
			Holder: owner, Remaining: 3 * time.Second, Age: 2510 * time.Millisecond,
		},
		", held by " + owner + " for up to 1.5s": {Holder: owner, Remaining: 1500 * time.Millisecond},
		", held by " + owner + own + " for up to 2s: gone": {
			Holder: owner, Own: true, Remaining: 2*time.Second + time.Microsecond, Err: errors.New("gone"),
		},
	} {
		err.Name = "l"
		testbed.Equal(t, err.Error(), `redlatch: lock "l" not acquired`+want, want)
	}
}

// TestUnavailableIsNotSaidToBeBusy: a log line tells an outage from a lock that somebody else holds.
func TestUnavailableIsNotSaidToBeBusy(t *testing.T) {
	err := &lock.NotAcquiredError{Name: "l", Holder: "a:1", Age: 2 * time.Second, Remaining: time.Second, Err: lock.ErrUnavailable}
	const want = `redlatch: lock "l" unavailable, held by a:1 for up to 1s, as seen 2s ago: redlatch: server unavailable`
	testbed.Equal(t, err.Error(), want, "the message")
}

// TestUnavailableNamesTheLockOnce: the line says of a wait that a server's failure ended which lock, and why, and
// neither twice. What failed on another lock, of a set, keeps its name.
func TestUnavailableNamesTheLockOnce(t *testing.T) {
	ended := func(name string) error {
		un := &lock.UnavailableError{Name: name, Op: "acquire", Nodes: []lock.NodeError{
			{Node: "a:1", Err: errors.New("refused")}, {Node: "b:2", Err: errors.New("silent")},
		}}
		return &lock.NotAcquiredError{Name: "l\n", Err: lock.Join(context.DeadlineExceeded, un)}
	}
	for name, want := range map[string]string{
		"l\n":     `redlatch: lock "l\n" unavailable: context deadline exceeded; a:1: refused; b:2: silent`,
		"[l\n m]": `redlatch: lock "l\n" unavailable: context deadline exceeded; redlatch: acquire of lock "[l\n m]": server unavailable: a:1: refused; b:2: silent`,
	} {
		testbed.Equal(t, ended(name).Error(), want, "the message")
	}
}

// TestJoinNamesALockOnce: several servers that fail one Unlock of a quorum are told as those that fail one acquisition;
// of a set's locks each is named.
func TestJoinNamesALockOnce(t *testing.T) {
	failed := func(op, name, node string) error {
		return &lock.UnavailableError{Op: op, Name: name, Nodes: []lock.NodeError{{Node: node, Err: errors.New("silent")}}}
	}
	err := lock.Join(failed("release", "q", "a:1"), failed("release", "q", "b:2"), failed("release", "r", "b:2"),
		errors.New("other"), failed("release", "r", "c:3"))
	const want = `redlatch: release of lock "q": server unavailable: a:1: silent; b:2: silent; ` +
		`redlatch: release of lock "r": server unavailable: b:2: silent; other; ` +
		`redlatch: release of lock "r": server unavailable: c:3: silent`
	testbed.Equal(t, err.Error(), want, "the message")
	refused := func(op string) error {
		return lock.NodeError{Node: "a:1", Err: &lock.ServerError{Op: op, Name: "q", Err: errors.New("OOM")}}
	}
	err = &lock.ServerError{Op: "acquire", Name: "q", Err: lock.Join(refused("acquire"), refused("ask"))}
	if got := err.Error(); got != `redlatch: acquire of lock "q": a:1: OOM; a:1: redlatch: ask of lock "q": OOM` {
		t.Error(got)
	}
}

// TestErrorTypeOnEveryVersion: the same refusal has the same name, though servers say
// it differently.
func TestErrorTypeOnEveryVersion(t *testing.T) {
	for text, want := range map[string]string{
		"OOM command not allowed when used memory > 'maxmemory'. script: 8f, on @user_script:3.":                    "oom",
		"Error running script (call to f_8f): @user_script:3: @user_script: 3: -OOM command not":                    "oom",
		"@user_script: 3: -OOM command not allowed":                                                                 "oom",
		"Error running script (call to f_43): @user_script:6: WRONGTYPE Operation against":                          "wrongtype",
		"NOPERM this user has no permissions to run the 'eval' command":                                             "noperm",
		"ACL failure in script: User app has no permissions to run the 'set' command":                               "noperm",
		"The user executing the script can't run this command or subcommand script: 8f":                             "noperm",
		"Error running script (call to f_8f): @user_script:3: The user executing the script can't run this command": "noperm",
		"unknown command 'X'": "server",
	} {
		testbed.Equal(t, (&lock.ServerError{Err: answer(text)}).ErrorType(), want, text)
	}
}

// TestMessagesShowNothingHostile: whatever stands in Redis, comes from a server or is asked for by a
// caller acts on no terminal, forges no line of a log, and doesn't fill a memory.
func TestMessagesShowNothingHostile(t *testing.T) {
	for _, s := range testbed.Hostile {
		all := append(withCause(s, errors.New(s)), &lock.InvalidNameError{Name: s, Reason: s},
			&lock.InvalidOptionError{Option: s, Reason: s}, &lock.OtherOwnerError{Name: s, Owner: s, Holder: s})
		for _, err := range all {
			text := err.Error()
			if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) || len(text) > 16<<10 {
				t.Errorf("%T of %.60q: %.300q (%d bytes)", err, s, text, len(text))
			}
		}
	}
}
