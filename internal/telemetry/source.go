package telemetry

import (
	"cmp"
	"fmt"
	"strings"
	"sync/atomic"

	mnoop "go.opentelemetry.io/otel/metric/noop"
	tnoop "go.opentelemetry.io/otel/trace/noop"
)

// source knows whether a provider leads anywhere. The API's global provider is a
// placeholder until the program sets one: it drops everything, though not for
// nothing, and forwards to the first that is set, also what was made of it
// before.
type source struct {
	global func() any // the global provider now; nil: the program gave one
	was    any        // the placeholder
	state  atomic.Int32
}

// The states of a source.
const (
	asking int32 = iota // the placeholder is there still
	leads
	nowhere // the program set a no-op, for good
)

// on is the cheap check in front of everything.
func (s *source) on() bool { return s.state.Load() == leads || s.ask() }

func (s *source) ask() bool {
	if s.state.Load() == nowhere {
		return false
	}
	now := s.global()
	switch {
	case now == s.was:
		return false
	case isNoop(now):
		s.state.Store(nowhere)
		return false
	}
	s.state.Store(leads)
	return true
}

// newSource finds the provider, the global one if none was given; it is nil for one that leads nowhere.
func newSource[P comparable](given P, global func() P) (P, *source) {
	given, s := cmp.Or(given, global()), &source{}
	switch {
	case isNoop(given):
		return given, nil
	case isPlaceholder(given):
		s.global, s.was = func() any { return global() }, given
	default:
		s.state.Store(leads)
	}
	return given, s
}

func isNoop(provider any) bool {
	switch provider.(type) {
	case tnoop.TracerProvider, *tnoop.TracerProvider, mnoop.MeterProvider, *mnoop.MeterProvider:
		return true
	}
	return false
}

// isPlaceholder recognises the API's own global provider; its type has no
// exported name.
func isPlaceholder(provider any) bool {
	return strings.HasPrefix(fmt.Sprintf("%T", provider), "*global.")
}
