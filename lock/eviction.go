package lock

import (
	"time"

	"github.com/redlatch/redlatch/internal/settings"
)

// Eviction is an entry of the history on the server: a ForceUnlock that ended a hold and was asked to be [Recorded].
// (What Redis does with keys when its memory is full, and calls eviction, is in no history.)
// Whoever may write the history's key may write anything there: it is a record for people, no proof. Its texts are as
// they stand on the server, and may not print.
type Eviction struct {
	At     time.Time `json:"at"` // by the server's clock; zero if it is not known
	Name   string    `json:"name"`
	Kind   Kind      `json:"kind"`
	Holds  int       `json:"holds"`            // that were ended
	By     string    `json:"by"`               // who did it, as Recorded was told
	Client string    `json:"client"`           // the name of the Client that did it
	Reason string    `json:"reason,omitempty"` // as Recorded was told
	// Evicted are the owners that were evicted, at most the first 16, and where they ran, as far as was known.
	Evicted []Evicted `json:"evicted"`
}

// Evicted is an owner in an [Eviction].
type Evicted struct {
	Owner   string `json:"owner"`
	Process string `json:"process,omitempty"` // name and address
}

// Recorded has a ForceUnlock that ends a hold note in the history on the server who did it, to whom, when and why: by
// is whoever asked for it, a person or a program. Client.Evictions reads the history. It keeps about the last 1,000
// evictions under the Client's prefix, and at most 512 bytes of a text.
//
// The record is made after the eviction, takes at most UnlockTimeout more, and changes nothing about it: if it can't be
// made (a missing permission, a server that does not answer), that is logged as a warning, and ForceUnlock returns what
// it returns without the option. An eviction whose answer was lost is not recorded.
func Recorded(by, reason string) ForceOption {
	return settings.Func[settings.Force](func(s *settings.Force) {
		s.Recorded, s.By, s.Reason = true, by, reason
	})
}
