package redlatch

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rwlock"
)

// What most programs need of package lock, under the names of this package.
type (
	// Locker is what all lock kinds have in common.
	Locker = lock.Locker
	// Hold is one successful acquisition.
	Hold = lock.Hold
	// MultiHold is the hold of a MultiLock.
	MultiHold = lock.MultiHold
	// State is a snapshot of a lock.
	State = lock.State
	// OwnerState is one holder or waiter in a State.
	OwnerState = lock.OwnerState
	// Mode says how a lock is held.
	Mode = lock.Mode
	// Option changes a lock object when it is made.
	Option = lock.Option
	// AcquireOption changes one acquisition.
	AcquireOption = lock.AcquireOption

	// NotAcquiredError is the detail of ErrNotAcquired.
	NotAcquiredError = lock.NotAcquiredError
	// UnavailableError is the detail of ErrUnavailable.
	UnavailableError = lock.UnavailableError
	// NodeError is one server's part of an UnavailableError.
	NodeError = lock.NodeError
	// LeaseLostError is the detail of ErrLeaseLost.
	LeaseLostError = lock.LeaseLostError
	// InvalidNameError is the detail of ErrInvalidName.
	InvalidNameError = lock.InvalidNameError
	// InvalidOptionError is the detail of ErrInvalidOption.
	InvalidOptionError = lock.InvalidOptionError
	// ReplicaAcksError is the detail of ErrReplicaAcks.
	ReplicaAcksError = lock.ReplicaAcksError
	// ServerError is an answer that no retry will change.
	ServerError = lock.ServerError
	// ConnectError says why a Client can't connect until something is changed.
	ConnectError = lock.ConnectError
	// ConnectReason is the kind of a ConnectError.
	ConnectReason = lock.ConnectReason
)

// The reasons of a ConnectError.
const (
	ConnectLogin      = lock.ConnectLogin
	ConnectPermission = lock.ConnectPermission
	ConnectTLS        = lock.ConnectTLS
	ConnectVersion    = lock.ConnectVersion
	ConnectTopology   = lock.ConnectTopology
	ConnectRefused    = lock.ConnectRefused
)

// The modes in a State.
const (
	ModeNone  = lock.ModeNone
	ModeLock  = lock.ModeLock
	ModeRead  = lock.ModeRead
	ModeWrite = lock.ModeWrite
)

// The sentinels, for errors.Is.
var (
	// ErrNotAcquired: the lock was busy for the whole wait, or ctx ended first.
	ErrNotAcquired = lock.ErrNotAcquired
	// ErrUnavailable: no answer from the server, or no quorum of answers.
	ErrUnavailable = lock.ErrUnavailable
	// ErrLeaseLost: the lock was lost before it was unlocked.
	ErrLeaseLost = lock.ErrLeaseLost
	// ErrNotHeld: this hold was unlocked before.
	ErrNotHeld = lock.ErrNotHeld
	// ErrClosed: the Client was closed or is shutting down.
	ErrClosed = lock.ErrClosed
	// ErrUpgrade: a reader asked for the write lock.
	ErrUpgrade = lock.ErrUpgrade
	// ErrInvalidName: the name can't be a lock, or its key is none.
	ErrInvalidName = lock.ErrInvalidName
	// ErrInvalidOption: an option or argument makes no sense or would break a promise.
	ErrInvalidOption = lock.ErrInvalidOption
	// ErrReplicaAcks: too few replicas acknowledged the acquisition.
	ErrReplicaAcks = lock.ErrReplicaAcks
)

// WithLease gives an acquisition a fixed lease that nothing renews; see
// [lock.WithLease].
func WithLease(lease time.Duration) AcquireOption { return lock.WithLease(lease) }

// Fenced asks for fencing tokens; see [lock.Fenced].
func Fenced() Option { return lock.Fenced() }

// PreferReaders lets the readers of a ReadWriteLock in while writers wait; see
// [rwlock.PreferReaders].
func PreferReaders() Option { return rwlock.PreferReaders() }

// WithOwner returns a context whose acquisitions are made by the owner id: all
// of them re-enter each other's holds on the same Client. It is for several
// acquisitions of one logical job that do not share a hold's context. The same
// id on two Clients, in one process or in two, is two owners.
//
// An empty id or one of more than 256 bytes is an [ErrInvalidOption] of the
// acquisitions.
func WithOwner(ctx context.Context, id string) context.Context { return engine.WithOwner(ctx, id) }

// NewOwner returns a context that carries no owner: each acquisition with it is
// made by a new owner of its own. Use it for goroutines that are started inside
// a critical section with the hold's context and must exclude each other; with
// the plain context they would all re-enter.
func NewOwner(ctx context.Context) context.Context { return engine.NewOwner(ctx) }

// Do runs fn while holding l: it locks, calls fn with the hold's context and
// unlocks, also when fn panics. It joins the errors of fn and of Unlock.
func Do(ctx context.Context, l Locker, fn func(ctx context.Context) error, opts ...AcquireOption) error {
	return lock.Do(ctx, l, fn, opts...)
}
