package multilock

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/lock"
)

// operated is what a member needs for the operators' calls.
type operated interface {
	State(ctx context.Context) (lock.State, error)
	ForceUnlock(ctx context.Context) (bool, error)
}

// operated is the lock that can be asked.
func (l leaf) operated() operated {
	if l.eng != nil {
		return l.eng
	}
	return l.quorum
}

// State asks all members at once. Held means that every member is held (of a quorum: a
// majority). Holders lists those of all members, one member after the other.
// Remaining is the least of the members (of a quorum: the least of the majority that
// lasts longest), Token the largest, QueueLength the longest. It blocks and fails as the
// members' State does; a minority of a quorum may fail.
func (m *MultiLock) State(ctx context.Context) (lock.State, error) {
	return operate(ctx, m, observe.State, m.state)
}

func (m *MultiLock) state(ctx context.Context) (lock.State, error) {
	if err := m.refused(); err != nil {
		return lock.State{}, err
	}
	states, err := each(ctx, m, func(ctx context.Context, o operated) (lock.State, error) { return o.State(ctx) })
	if err != nil {
		return lock.State{}, err
	}
	out := lock.State{Name: m.name}
	var left []time.Duration
	for _, s := range states {
		if s.Held {
			left = append(left, s.Remaining)
			out.Mode = s.Mode
		}
		out.Holders = append(out.Holders, s.Holders...)
		out.Token = max(out.Token, s.Token)
		out.QueueLength = max(out.QueueLength, s.QueueLength)
	}
	need := len(m.leaves)
	if m.quorum {
		need = majority(len(m.leaves))
	}
	if out.Held = len(left) >= need; !out.Held {
		out.Mode = lock.ModeNone
		return out, nil
	}
	slices.SortFunc(left, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	out.Remaining = left[need-1]
	return out, nil
}

// ForceUnlock takes every member away from its holder, even if that holder has only this
// member. It is for operators. It reports whether any member was held. It blocks and
// fails as the members' ForceUnlock does, and does not stop at the first failure; a
// minority of a quorum may fail. True together with a [*lock.ServerError] means that nobody was woken of a member that
// was taken away, or that a member could not be.
func (m *MultiLock) ForceUnlock(ctx context.Context) (bool, error) {
	return operate(ctx, m, observe.ForceUnlock, m.forceUnlock)
}

func (m *MultiLock) forceUnlock(ctx context.Context) (bool, error) {
	if err := m.refused(); err != nil {
		return false, err
	}
	freed, err := each(ctx, m, func(ctx context.Context, o operated) (bool, error) { return o.ForceUnlock(ctx) })
	return slices.Contains(freed, true), err
}

// each calls f for all members at once and joins the errors. Of a quorum, a
// minority's are dropped, and once a majority has answered the others are waited for
// no longer than a node may take.
func each[T any](ctx context.Context, m *MultiLock, f func(context.Context, operated) (T, error)) ([]T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n := len(m.leaves)
	results := atOnce(n, func(i int) (T, error) { return f(ctx, m.leaves[i].operated()) }) // each is bounded
	out, errs := make([]T, n), make([]error, 0, n)
	for answered := 0; len(errs)+answered < n; {
		r := <-results
		if r.broke != nil {
			panic(r.broke)
		}
		out[r.i] = r.val // also beside an error: a lock taken away of which nobody could be told
		if r.err != nil {
			errs = append(errs, r.err)
			continue
		}
		if answered++; m.quorum && answered == majority(n) {
			t := time.AfterFunc(perNode(m.effective(0)), cancel)
			defer t.Stop()
		}
	}
	if m.quorum && len(errs) <= n-majority(n) {
		return out, nil
	}
	return out, lock.Join(errs...)
}
