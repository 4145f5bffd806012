package promises

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

type section = func(ctx context.Context) error

type doer interface {
	Do(ctx context.Context, fn section, opts ...redlatch.AcquireOption) error
	TryDo(ctx context.Context, wait, lease time.Duration, fn section) error
}

// functions are those that do the same as a lock's methods.
type functions struct{ l redlatch.Locker }

func (f functions) Do(ctx context.Context, fn section, opts ...redlatch.AcquireOption) error {
	return redlatch.Do(ctx, f.l, fn, opts...)
}

func (f functions) TryDo(ctx context.Context, wait, lease time.Duration, fn section) error {
	return redlatch.TryDo(ctx, f.l, wait, lease, fn)
}

// Do and TryDo hold the lock while the function runs, whose context re-enters, and unlock whatever becomes of it; TryDo's
// wait limits no section; without the lock the function is not called; a loss is told beside the function's error; an
// error tells whether the function has run.
func TestSections(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	never := func(t *testing.T) section {
		t.Helper()
		return func(context.Context) error { t.Error("the function was called"); return nil }
	}
	all := cases{}
	for form, of := range map[string]func(l redlatch.Locker) doer{
		"function": func(l redlatch.Locker) doer { return functions{l} },
		"method":   func(l redlatch.Locker) doer { return l.(doer) }, //nolint:forcetypeassert // all have it
	} {
		all[form+": what the function returns or does"] = func(t *testing.T, x *bed.Site, name string) {
			l, free := x.Lock(name), func() { t.Helper(); bed.Unlock(t, bed.Lock(t, t.Context(), x.Beside(name))) }
			err := of(l).Do(t.Context(), func(ctx context.Context) error {
				refused(t, x.Beside(name))
				return of(l).Do(ctx, func(context.Context) error { return boom })
			})
			want(t, "Do", err, boom)
			free()
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic was swallowed")
					}
				}()
				_ = of(l).Do(t.Context(), func(context.Context) error { panic("at the disco") })
			}()
			free()
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = of(l).Do(t.Context(), func(context.Context) error { runtime.Goexit(); return nil })
			}()
			<-done
			free()
			want(t, "Do with a lease of -1", of(l).Do(t.Context(), never(t), redlatch.WithLease(-1)), redlatch.ErrInvalidOption)
		}
		all[form+": an error tells whether the function has run"] = func(t *testing.T, x *bed.Site, name string) {
			clients := x.Fresh(t)
			l, cut := of(x.Kind.New(clients, name)), func(context.Context) error { closeAll(clients); return nil }
			for _, it := range []struct {
				fn  section
				ran bool
			}{{cut, true}, {never(t), false}} {
				err := l.Do(t.Context(), it.fn, redlatch.WithLease(time.Second)) // of which the key is left
				want(t, "Do", err, redlatch.ErrClosed)
				if _, ran := errors.AsType[*redlatch.UnlockError](err); ran != it.ran {
					t.Errorf("%v says that it has run: %v", err, ran)
				}
			}
		}
		all[form+": a loss is told beside the function's error"] = func(t *testing.T, x *bed.Site, name string) {
			until := func(ctx context.Context) error { <-ctx.Done(); return boom }
			for what, err := range map[string]error{
				"Do":    of(x.Lock(name)).Do(t.Context(), until, redlatch.WithLease(300*time.Millisecond)),
				"TryDo": of(x.Lock(name)).TryDo(t.Context(), bed.Patience, 300*time.Millisecond, until),
			} {
				want(t, what, err, boom)
				want(t, what, err, redlatch.ErrLeaseLost)
			}
		}
		all[form+": a wait limits no section, and one that ends calls nothing"] = func(t *testing.T, x *bed.Site, name string) {
			const patient, wait = 2 * time.Second, 100 * time.Millisecond
			err := of(x.Lock(name)).TryDo(t.Context(), patient, 0, func(ctx context.Context) error {
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(patient + wait):
				}
				want(t, "beside another one's section", of(x.Beside(name)).TryDo(t.Context(), 0, 0, never(t)), redlatch.ErrNotAcquired)
				return boom
			})
			want(t, "TryDo", err, boom)
			before := bed.Lock(t, t.Context(), x.Beside(name))
			for _, wait := range []time.Duration{0, wait} {
				began := time.Now()
				want(t, "TryDo", of(x.Lock(name)).TryDo(t.Context(), wait, 0, never(t)), redlatch.ErrNotAcquired)
				if took := time.Since(began); took < wait {
					t.Errorf("it gave up after %v, not %v", took, wait)
				}
			}
			bed.Unlock(t, before)
		}
	}
	besideEachOther(t, nil, all)
}
