package lock

import (
	"strconv"
	"strings"
	"time"
)

// OwnerID is an owner as Redis stores it, split into its parts for people to read.
type OwnerID struct {
	// Client is the id of the Client, or of the Redisson instance.
	Client string
	// Owner identifies the owner within the client: "g" and a number for an owner that
	// redlatch made, "g=" and the escaped id for WithOwner, a number for a Java thread.
	Owner string
	// Explicit is the id that was given to WithOwner, or "".
	Explicit string
	// Acquisition is the id of the acquisition; "" for a Java owner.
	Acquisition string
	// AskedSince is when the acquisition began, by its client's clock, in UTC; zero if the id
	// contains no plausible time. HeldSince is when it got the lock, if it holds it. They are
	// for people: don't base decisions on them.
	AskedSince, HeldSince time.Time
}

// Java reports whether the owner is a thread of a Java program.
func (o OwnerID) Java() bool { return !strings.HasPrefix(o.Owner, "g") }

// String is the owner as State and Inspect show it, and as [IfOwner] and redlatch unlock --owner take it: the text that
// [ParseOwner] split, without the ":write" of a write lock's field. Quote it before you print an owner that others made.
func (o OwnerID) String() string {
	switch {
	case o == OwnerID{}:
		return ""
	case o.Acquisition == "":
		return o.Client + ":" + o.Owner
	}
	return o.Client + ":" + o.Owner + "-" + o.Acquisition
}

// ParseOwner splits an owner into its parts; false means that text is not an owner.
func ParseOwner(text string) (OwnerID, bool) {
	client, rest, ok := strings.Cut(strings.TrimSuffix(text, ":write"), ":")
	if !ok || len(client) != 36 || rest == "" {
		return OwnerID{}, false
	}
	id := OwnerID{Client: client, Owner: rest}
	if id.Java() {
		return id, true
	}
	if i := strings.LastIndexByte(rest, '-'); i >= 0 && i+1 < len(rest) {
		id.Owner, id.Acquisition = rest[:i], rest[i+1:]
	}
	if escaped, ok := strings.CutPrefix(id.Owner, "g="); ok {
		id.Explicit = unescape(escaped)
	}
	id.AskedSince, id.HeldSince = times(id.Acquisition)
	return id, true
}

// The plausible times in an acquisition's id: others come from a clock that was never
// set, or are not times.
var (
	sinceFrom = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	sinceTo   = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
)

// times reads "<ms of unix time, base 36>.<sequence, base 36>", and perhaps ".<ms that it waited>".
func times(id string) (asked, held time.Time) {
	text, rest, _ := strings.Cut(id, ".")
	seq, waited, waits := strings.Cut(rest, ".")
	from, err := strconv.ParseInt(text, 36, 64)
	if err != nil || seq == "" || from < sinceFrom.UnixMilli() || from >= sinceTo.UnixMilli() {
		return asked, held
	}
	asked = time.UnixMilli(from).UTC()
	if !waits {
		return asked, asked
	}
	ms, err := strconv.ParseInt(waited, 10, 64)
	if err != nil || ms < 0 || ms >= sinceTo.UnixMilli()-from {
		return asked, held
	}
	return asked, asked.Add(time.Duration(ms) * time.Millisecond)
}

// unescape undoes the %XX of an explicit owner's id.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
