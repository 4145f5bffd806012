package conn

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/rueidis"
)

// secrets are the passwords of a client's options. A server, or a proxy in front of it, that does not
// understand AUTH or HELLO repeats what it was sent, and its words end up in errors, logs and on
// screens: so they are cleaned where they come in. It is safe for concurrent use; nil knows none.
type secrets struct {
	mu    sync.Mutex
	words []string // guarded by mu
}

// secretsOf notes the passwords of the options, and has opt tell those that it gets later.
func secretsOf(opt *rueidis.ClientOption) *secrets {
	s := &secrets{}
	s.add(opt.Password, opt.Sentinel.Password)
	if plain := opt.AuthCredentialsFn; plain != nil {
		opt.AuthCredentialsFn = func(about rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
			c, err := plain(about)
			s.add(c.Password)
			return c, err
		}
	}
	return s
}

// Cleaned is what a server said to a client with these options, without the passwords that it may repeat.
func Cleaned(opt rueidis.ClientOption, said string) string { return secretsOf(&opt).text(said) }

// maxSecrets bounds the passwords that are remembered: some change by the minute.
const maxSecrets = 16

func (s *secrets) add(words ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range words {
		quoted := strconv.Quote(w) // as servers repeat what does not print
		for _, w := range []string{w, quoted[1 : len(quoted)-1]} {
			if w != "" && !slices.Contains(s.words, w) {
				s.words = append(s.words, w)
			}
		}
	}
	s.words = s.words[max(0, len(s.words)-maxSecrets):]
}

// clean is err, or if a server's words in it repeat what they should not, an error with the rest of them.
func (s *secrets) clean(err error) error {
	if err == nil {
		return nil
	}
	var re *rueidis.RedisError
	if !errors.As(err, &re) {
		return err
	}
	said := re.Error()
	if text := s.text(said); text != said {
		return Refusal(text)
	}
	return err
}

// text cleans a server's message. Its code stays as it is.
func (s *secrets) text(said string) string {
	// "unknown command 'AUTH', with args beginning with: …", and not all of what follows would be known
	said, _, _ = strings.Cut(said, ", with args")
	code, rest, more := strings.Cut(said, " ")
	if s == nil || !more {
		return said
	}
	s.mu.Lock()
	words := slices.Clone(s.words)
	s.mu.Unlock()
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) })
	for _, w := range words {
		rest = strings.ReplaceAll(rest, w, "(password)")
	}
	return code + " " + rest
}
