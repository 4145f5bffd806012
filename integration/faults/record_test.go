package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// The kinds of records.
const (
	opHold  = "hold"  // an acquisition that gave a hold
	opLeave = "leave" // its release begins; what a killed process says last of it
	opEnd   = "end"   // that hold's end, by the same ID
	opNone  = "none"  // an acquisition that ended without a hold
	opStall = "stall" // the process did not run, for however short, and it was not the plan's doing
	opLeft  = "left"  // what the process found left over at its end
)

// How an operation ended.
const (
	resOK          = "ok"
	resLost        = "lost"
	resUnavailable = "unavailable"
	resBusy        = "busy"    // not acquired, and no node failed
	resClosed      = "closed"  // by the worker's own Close or Shutdown
	resRefused     = "refused" // a permanent answer of the server
	resUpgrade     = "upgrade"
	resOther       = "other"
)

// record is one operation of one process; a line in its file. Times are mono's.
type record struct {
	Op   string        `json:"op"`
	ID   string        `json:"id,omitempty"`
	Proc int           `json:"proc"` // the worker's number; a killed one's successor has another
	Wall int64         `json:"wall"` // ns, when it was written
	Call time.Duration `json:"call"`
	Ret  time.Duration `json:"ret"`

	// of acquisitions
	Kind   string        `json:"kind,omitempty"`
	Names  []string      `json:"names,omitempty"`
	Read   bool          `json:"read,omitempty"`
	Owner  string        `json:"owner,omitempty"` // one owner's holds don't exclude each other
	Client string        `json:"client,omitempty"`
	Lease  time.Duration `json:"lease,omitempty"` // a fixed one; 0: the watchdog's
	Nested bool          `json:"nested,omitempty"`
	Until  time.Duration `json:"until,omitempty"` // when the acquisition was to give up; 0: not soon
	Once   bool          `json:"once,omitempty"`  // one attempt
	Tokens []uint64      `json:"tokens,omitempty"`
	// Valid is the local deadline: as granted, or as it stood at the end.
	Valid time.Duration `json:"valid,omitempty"`

	// of ends
	Result string        `json:"result,omitempty"`
	Told   time.Duration `json:"told,omitempty"` // when the context ended for a loss or Close
	// Ended is when the context ended before Unlock for any other reason, as that of a nested
	// hold does with the outer one's.
	Ended time.Duration `json:"ended,omitempty"`
	Text  string        `json:"text,omitempty"` // an error, or what was found wrong
	// Found is what a reader saw at the beginning and at the end of its section.
	Found []string `json:"found,omitempty"`
	// Refused is when the store refused a token; 0 if it did not.
	Refused time.Duration `json:"refused,omitempty"`
	// Bad is what the section itself saw go wrong, such as a deadline behind the key's end.
	Bad   string        `json:"bad,omitempty"`
	BadAt time.Duration `json:"badAt,omitempty"`
}

// recorder appends records to a process's file, each with one write, so that a killed
// process leaves whole lines.
type recorder struct {
	file *os.File
	proc int
}

func newRecorder(name string, proc int) (*recorder, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &recorder{file, proc}, err
}

func (r *recorder) write(e *record) {
	e.Proc, e.Wall = r.proc, time.Now().UnixNano()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = r.file.Write(append(line, '\n'))
	}
	if err != nil { // without its record a process says nothing
		fmt.Fprintln(os.Stderr, "the record:", err)
		os.Exit(1)
	}
}

// readRecords reads a process's file. A last line without its end is a write that the
// process did not survive; it says nothing.
func readRecords(name string) (all []*record, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read from
	for lines := json.NewDecoder(file); ; {
		e := new(record)
		switch err := lines.Decode(e); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return all, nil
		case err != nil:
			return all, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, e)
	}
}
