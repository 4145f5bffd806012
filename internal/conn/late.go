package conn

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"
)

// stranger is a single server that was not there, or did not answer, when the Conn was opened. What it is,
// is found out before the first command: a node of a cluster must not be taken for a server of its own.
type stranger struct {
	met  atomic.Bool // it is what it should be
	look func() error

	mu  sync.Mutex
	now *func() error // guarded by mu; the look under way, for all who come meanwhile; nil: nobody looks
}

func newStranger(o *dialler, opt rueidis.ClientOption, client rueidis.Client) *stranger {
	return &stranger{look: func() error {
		a, err := askServer(client)
		if err != nil && !IsPermanent(err) {
			return o.known.clean(err)
		}
		_, err = o.judge(opt, client, a, err)
		return err
	}}
}

// meet reports why no command may be sent yet. It blocks for one look, whoever makes it.
func (s *stranger) meet() error {
	if s == nil || s.met.Load() {
		return nil
	}
	s.mu.Lock()
	if s.now == nil {
		once := sync.OnceValue(s.look)
		s.now = &once
	}
	now := s.now
	s.mu.Unlock()
	err := (*now)()
	if err == nil {
		s.met.Store(true)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == now {
		s.now = nil
	}
	return err
}

// errLater is what the first dial of a client fails with that is to connect later.
var errLater = errors.New("the server is not asked again at once")
