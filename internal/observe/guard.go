package observe

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync/atomic"
)

// Guard is the boundary at which code of the user's is called that is told of locks: telemetry and
// log handlers. A panic there costs what was to be told, and nothing else: no caller, no goroutine of
// the client's. The first one is logged, with its stack.
//
// A nil Guard stops panics and tells nobody. It is safe for concurrent use.
type Guard struct {
	Log  *slog.Logger // guarded by itself: see Handler
	told atomic.Bool
}

// Recover stops a panic of the user's code. It is to be deferred.
func (g *Guard) Recover() {
	if v := recover(); v != nil && g != nil && g.told.CompareAndSwap(false, true) {
		g.Log.Error("redlatch: code that is told of locks panicked; further panics are not logged",
			"panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	}
}

// Recovered makes an error of a panic. It is to be deferred where a client may be the user's (ClientBuilder,
// NewWithClient), or the ctx of a command, and a goroutine of ours asks it: nobody knows whether the command ran.
func Recovered(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("the client panicked: %v", v)
	}
}

// Handler is a log handler whose panics are stopped. Since the log can't tell of them, standard error
// hears of the first.
func Handler(of slog.Handler) slog.Handler { return &handler{of: of, told: new(atomic.Bool)} }

type handler struct {
	of   slog.Handler
	told *atomic.Bool
}

func (h *handler) recovered() {
	if v := recover(); v != nil && h.told.CompareAndSwap(false, true) {
		fmt.Fprintf(os.Stderr, "redlatch: the log handler panicked: %v\n%s", v, debug.Stack())
	}
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	defer h.recovered()
	return h.of.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	defer h.recovered()
	return h.of.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{of: h.of.WithAttrs(attrs), told: h.told}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{of: h.of.WithGroup(name), told: h.told}
}
