package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/quote"
)

// The sentinels. Compare with errors.Is; the detail types carry more. docs/COOKBOOK.md has a table: error, what is
// held, whether to retry, which HTTP status.
var (
	// ErrNotAcquired: the server said that the lock was busy, and the wait or ctx ended. Nothing is held. Retry
	// later, or skip the work. It never matches together with ErrUnavailable.
	ErrNotAcquired error = &sentinel{"redlatch: lock not acquired", "not_acquired"}
	// ErrUnavailable: the server did not answer, or too few servers of a quorum did. From Lock and TryLock: nothing
	// is held; retry later, with a pause. From Unlock: the lock is free when its lease ends, if not earlier; call
	// Unlock again to learn the outcome.
	ErrUnavailable error = &sentinel{"redlatch: server unavailable", "unavailable"}
	// ErrLeaseLost: the lock was lost before it was unlocked. Another holder may have been inside at the same time.
	// Don't repeat the work blindly: check what it has written.
	ErrLeaseLost error = &sentinel{"redlatch: lease lost", "lease_lost"}
	// ErrNotHeld: this hold has already been unlocked. Fix the code: each hold is unlocked once.
	ErrNotHeld error = &sentinel{"redlatch: lock not held", "not_held"}
	// ErrUnlocked is the cause of the context of an unlocked hold. No call returns it by itself, but the error of an
	// acquisition with such a context matches it, beside ErrNotAcquired: test for ErrUnlocked first. Fix the code: don't
	// use a hold's context after its Unlock.
	ErrUnlocked error = &sentinel{"redlatch: hold unlocked", "unlocked"}
	// ErrClosed: the Client was closed or is shutting down. The program is ending: send the caller elsewhere.
	ErrClosed error = &sentinel{"redlatch: client closed", "closed"}
	// ErrUpgrade: an owner that holds only the read lock asked for the write lock. It would wait for itself. Fix the
	// code: unlock the read lock first, or begin with the write lock.
	ErrUpgrade error = &sentinel{"redlatch: read lock can't be upgraded to the write lock", "upgrade"}
	// ErrInvalidName: the name is not allowed, or its key is not a lock. Fix the name; the text gives the reason.
	ErrInvalidName error = &sentinel{"redlatch: invalid lock name", "invalid_name"}
	// ErrInvalidOption: an option or argument makes no sense, or would break a promise. Fix it; the text gives the
	// reason.
	ErrInvalidOption error = &sentinel{"redlatch: invalid option", "invalid_option"}
	// ErrReplicaAcks: too few replicas acknowledged the acquisition, and it was undone. Nothing is held. Retry later,
	// and look at the replicas.
	ErrReplicaAcks error = &sentinel{"redlatch: too few replica acknowledgements", "replica_acks"}
	// ErrOtherOwner: ForceUnlock with [IfOwner] or [IfOwners] found the lock held by another owner, and changed nothing.
	// Look again who holds it.
	ErrOtherOwner error = &sentinel{"redlatch: lock held by another owner", "other_owner"}
)

// sentinel is an error that telemetry can name.
type sentinel struct{ text, kind string }

func (e *sentinel) Error() string { return e.text }

// ErrorType is a short, stable name for telemetry.
func (e *sentinel) ErrorType() string { return e.kind }

// NotAcquiredError is the detail of [ErrNotAcquired], and of an [ErrUnavailable] that ended a wait.
type NotAcquiredError struct {
	Name      string
	Holder    string        // the owner seen last, as Redis stores it; "" if not known
	Remaining time.Duration // what was left of its lease then; 0 if not known
	Age       time.Duration // how long before the call's end that was; it may have been renewed since
	Own       bool          // that owner is one of this Client's
	Err       error         // nil: only the wait ended; else ctx.Err(), the server's failure, a grant that is too late
}

func (e *NotAcquiredError) Error() string {
	outcome := "not acquired"
	if errors.Is(e.Err, ErrUnavailable) { // whether it was busy is not known
		outcome = "unavailable"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "redlatch: lock %s %s", quote.Name(e.Name), outcome)
	if e.Holder != "" {
		b.WriteString(", held by " + quote.Text(e.Holder))
		if e.Own {
			b.WriteString(" (of this client; a re-entry needs that hold's Context())")
		}
		if left := e.Remaining.Round(time.Millisecond); left > 0 { // else it is not known, or has no end
			fmt.Fprintf(&b, " for up to %v", left)
			if age := e.Age.Round(100 * time.Millisecond); age > 0 {
				fmt.Fprintf(&b, ", as seen %v ago", age)
			}
		}
	}
	if e.Err != nil {
		why := e.Err.Error()
		if un, ok := errors.AsType[*UnavailableError](e.Err); ok && un.Name == e.Name { // what it begins with is said above
			why = strings.Replace(why, un.begins(), "", 1)
		}
		b.WriteString(": " + why)
	}
	return quote.Line(b.String())
}

// Is makes errors.Is(err, [ErrNotAcquired]) true, unless the error matches [ErrUnavailable]: then nobody
// knows whether the lock was busy.
func (e *NotAcquiredError) Is(target error) bool {
	return target == ErrNotAcquired && !errors.Is(e.Err, ErrUnavailable)
}

// Unwrap leads to ctx.Err() and to the last failure.
func (e *NotAcquiredError) Unwrap() error { return e.Err }

// ErrorType is a short, stable name for telemetry.
func (e *NotAcquiredError) ErrorType() string {
	switch {
	case errors.Is(e.Err, context.Canceled):
		return "cancelled"
	case errors.Is(e.Err, ErrUnavailable):
		return "unavailable"
	case errors.Is(e.Err, context.DeadlineExceeded):
		return "deadline_exceeded"
	}
	return "not_acquired"
}

// NodeError is the failure of one server, or the lack of an answer from it.
type NodeError struct {
	Node string // address, as far as known
	Err  error
}

func (e NodeError) Error() string {
	why := "no answer"
	if e.Err != nil {
		why = e.Err.Error()
	}
	if e.Node == "" {
		return quote.Line(why)
	}
	return quote.Line(e.Node + ": " + why)
}

// Unwrap leads to the cause.
func (e NodeError) Unwrap() error { return e.Err }

// ErrorType is a short, stable name for telemetry.
func (e NodeError) ErrorType() string { return "unavailable" }

// UnavailableError is the detail of [ErrUnavailable].
type UnavailableError struct {
	Name  string // "" if the error is not about a lock
	Op    string // what was tried: "connect", "acquire", "release", "extend", …
	Nodes []NodeError
}

func (e *UnavailableError) Error() string {
	parts := make([]string, len(e.Nodes))
	for i, n := range e.Nodes {
		parts[i] = n.Error()
	}
	return quote.Line(e.begins() + strings.Join(parts, "; "))
}

func (e *UnavailableError) begins() string {
	return "redlatch: " + operation(e.Op, e.Name) + ": server unavailable: "
}

// Is makes errors.Is(err, [ErrUnavailable]) true.
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap leads to each node's error.
func (e *UnavailableError) Unwrap() []error {
	errs := make([]error, len(e.Nodes))
	for i, n := range e.Nodes {
		errs[i] = n
	}
	return errs
}

// ErrorType is a short, stable name for telemetry.
func (e *UnavailableError) ErrorType() string { return "unavailable" }

// LossReason says how a lost lease was noticed.
type LossReason string

// The reasons of a [LeaseLostError].
const (
	LossExpired LossReason = "expired" // the local deadline passed without a successful renewal, or a fixed lease ended
	LossGone    LossReason = "gone"    // the server says that this owner no longer holds the lock
	LossMember  LossReason = "member"  // a member of a MultiLock was lost, or the majority of a QuorumLock
)

// LeaseLostError is the detail of [ErrLeaseLost].
type LeaseLostError struct {
	Name   string
	Owner  string // as Redis stores it
	Reason LossReason
	At     time.Time // when the loss was noticed
	Err    error     // the last renewal error, if any
}

func (e *LeaseLostError) Error() string {
	s := fmt.Sprintf("redlatch: lease of lock %s lost (%s)", quote.Name(e.Name), e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return quote.Line(s)
}

// Is makes errors.Is(err, [ErrLeaseLost]) true.
func (e *LeaseLostError) Is(target error) bool { return target == ErrLeaseLost }

// Unwrap leads to the last renewal error.
func (e *LeaseLostError) Unwrap() error { return e.Err }

// ErrorType is a short, stable name for telemetry.
func (e *LeaseLostError) ErrorType() string { return "lease_lost" }

// InvalidNameError is the detail of [ErrInvalidName].
type InvalidNameError struct {
	Name   string
	Reason string
	Err    error // a *ServerError if the key holds something else; else nil
}

func (e *InvalidNameError) Error() string {
	return quote.Line(fmt.Sprintf("redlatch: invalid lock name %s: %s", quote.Name(e.Name), e.Reason))
}

// Is makes errors.Is(err, [ErrInvalidName]) true.
func (e *InvalidNameError) Is(target error) bool { return target == ErrInvalidName }

// Unwrap leads to the server's answer, if there was one.
func (e *InvalidNameError) Unwrap() error { return e.Err }

// ErrorType is a short, stable name for telemetry.
func (e *InvalidNameError) ErrorType() string { return "invalid_name" }

// InvalidOptionError is the detail of [ErrInvalidOption].
type InvalidOptionError struct {
	Option string
	Reason string
}

func (e *InvalidOptionError) Error() string {
	return quote.Line(fmt.Sprintf("redlatch: invalid option %s: %s", e.Option, e.Reason))
}

// Is makes errors.Is(err, [ErrInvalidOption]) true.
func (e *InvalidOptionError) Is(target error) bool { return target == ErrInvalidOption }

// ErrorType is a short, stable name for telemetry.
func (e *InvalidOptionError) ErrorType() string { return "invalid_option" }

// ReplicaAcksError is the detail of [ErrReplicaAcks].
type ReplicaAcksError struct {
	Name string
	Want int
	Got  int
	Err  error // why the acknowledgements could not be requested; nil if they could
}

func (e *ReplicaAcksError) Error() string {
	s := fmt.Sprintf("redlatch: lock %s: %d of %d replica acknowledgements; the acquisition was undone", quote.Name(e.Name), e.Got, e.Want)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return quote.Line(s)
}

// Is makes errors.Is(err, [ErrReplicaAcks]) true.
func (e *ReplicaAcksError) Is(target error) bool { return target == ErrReplicaAcks }

// Unwrap leads to the cause, if any.
func (e *ReplicaAcksError) Unwrap() error { return e.Err }

// ErrorType is a short, stable name for telemetry.
func (e *ReplicaAcksError) ErrorType() string { return "replica_acks" }

// UnlockError says that the section of a [Do], [TryDo] or [DoFenced] has run and that its Unlock returned Err. It tells
// an [ErrUnavailable] or [ErrClosed] of that Unlock from one of the acquisition, after which nothing has run.
type UnlockError struct{ Err error }

func (e *UnlockError) Error() string { return quote.Line(fmt.Sprint(e.Err)) }

// Unwrap leads to what Unlock returned.
func (e *UnlockError) Unwrap() error { return e.Err }

// OtherOwnerError is the detail of [ErrOtherOwner].
type OtherOwnerError struct {
	Name   string
	Owner  string // the owner to evict; with ", " between several, "" if the lock was to be free
	Holder string // an owner that holds the lock
}

func (e *OtherOwnerError) Error() string {
	text := fmt.Sprintf("redlatch: lock %s is held by %s", quote.Name(e.Name), quote.Text(e.Holder))
	if e.Owner != "" {
		text += ", not by " + quote.Text(e.Owner)
	}
	return quote.Line(text)
}

// Is makes errors.Is(err, [ErrOtherOwner]) true.
func (e *OtherOwnerError) Is(target error) bool { return target == ErrOtherOwner }

// ErrorType is a short, stable name for telemetry.
func (e *OtherOwnerError) ErrorType() string { return "other_owner" }

// ServerError is an answer of the server that no retry will change: a missing
// permission, a key of another type, no memory.
type ServerError struct {
	Name string // "" if the error is not about a lock
	Op   string // as in [UnavailableError]
	Err  error
}

func (e *ServerError) Error() string {
	begins := "redlatch: " + operation(e.Op, e.Name) + ": "
	return quote.Line(begins + strings.ReplaceAll(fmt.Sprint(e.Err), begins, "")) // a quorum's servers each begin so
}

// Unwrap leads to the server's error.
func (e *ServerError) Unwrap() error { return e.Err }

// ErrorType is the first word of the server's message, its code, in lower case.
func (e *ServerError) ErrorType() string {
	var answer interface {
		error
		IsNil() bool // tells the client library's type for an error reply from others
	}
	if !errors.As(e.Err, &answer) {
		return "server"
	}
	text := answer.Error()
	if strings.Contains(text, "can't run this command") || strings.Contains(text, "ACL failure in script") {
		return "noperm" // a command of a script was refused: the server gives that no code
	}
	if strings.HasPrefix(text, "Error running script") || strings.HasPrefix(text, "@user_script") {
		// Before Redis 7 the code stands behind the place in the script:
		// "… @user_script:7: WRONGTYPE …", or "… @user_script: 7: -OOM …".
		if at := strings.LastIndex(text, "@user_script"); at >= 0 {
			_, text, _ = strings.Cut(strings.TrimPrefix(text[at:], "@user_script:"), ": ")
			text = strings.TrimPrefix(text, "-")
		}
	}
	word, _, _ := strings.Cut(text, " ")
	for _, c := range []byte(word) {
		if (c < 'A' || c > 'Z') && c != '_' || len(word) > 24 {
			return "server" // not a code: telemetry must not get a name per message
		}
	}
	return strings.ToLower(word)
}

// operation tells what failed, and on which lock if it was one.
func operation(op, name string) string {
	if name == "" {
		return op
	}
	return op + " of lock " + quote.Name(name)
}
