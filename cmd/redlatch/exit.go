package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/quote"
)

// The exit statuses; exitHelp tells users.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitOtherOwner  = 4
	exitUnavailable = 69
	exitLost        = 70
	exitBusy        = 75
	exitCantRun     = 126
	exitNotFound    = 127
	exitSignal      = 128 // plus the signal's number
)

const exitHelp = `Exit status:
    0  done
    1  failed; doctor: something must be changed
    2  the command line is wrong
    4  unlock: another owner holds the lock; nothing was changed
   69  the server can't be reached, or does not answer
   70  run: the lock was lost while the command ran, or may have been
   75  run: another owner holds the lock (--conflict-exit-code changes this)
  126  run: the command can't be run
  127  run: the command was not found
128+n  run: the command, or the wait for the lock, was ended by signal n
  else run: the exit status of the command`

// statusError ends the program with a status of its own.
type statusError struct {
	error
	status int
}

func (e *statusError) Unwrap() error { return e.error }

// errSaid is a failure of which everything is said.
var errSaid = errors.New("")

// usageError is a command line that makes no sense.
func usageError(format string, args ...any) error {
	return &statusError{fmt.Errorf(format, args...), exitUsage}
}

// status is the exit status that an error means.
func status(err error) int {
	var st *statusError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &st):
		return st.status
	case errors.Is(err, redlatch.ErrUnavailable):
		return exitUnavailable
	case errors.Is(err, redlatch.ErrOtherOwner):
		return exitOtherOwner
	case errors.Is(err, redlatch.ErrInvalidOption):
		return exitUsage
	}
	return exitError
}

// message is an error without the SDK's name: the program's is there already.
// It is fit to be shown, whatever a server has said.
func message(err error) string { return quote.Line(strings.TrimPrefix(err.Error(), "redlatch: ")) }
