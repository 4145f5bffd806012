package conn

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/observe"
)

// stranger is a single server that was not there, or did not answer, when the Conn was opened. What it is,
// is found out before the first command: a node of a cluster must not be taken for a server of its own.
type stranger struct {
	look func() error
	last atomic.Pointer[func() error] // one look, whoever makes it; it stays when the server is what it should be
}

func newStranger(o *dialler, opt rueidis.ClientOption, client rueidis.Client) *stranger {
	s := &stranger{look: func() error {
		a, err := askServer(client)
		if err != nil && !IsPermanent(err) {
			return o.known.clean(err)
		}
		_, err = o.judge(opt, client, a, err)
		return err
	}}
	s.next(nil)
	return s
}

// next has another look made than the last.
func (s *stranger) next(last *func() error) {
	look := sync.OnceValue(func() (err error) {
		defer observe.Recovered(&err)
		return s.look()
	})
	s.last.CompareAndSwap(last, &look)
}

// meet reports why no command may be sent yet. It blocks for one look, whoever makes it.
func (s *stranger) meet() error {
	if s == nil {
		return nil
	}
	last := s.last.Load()
	err := (*last)()
	if err != nil {
		s.next(last)
	}
	return err
}

// errLater is what the first dial of a client fails with that is to connect later.
var errLater = errors.New("the server is not asked again at once")
