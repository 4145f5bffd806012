//go:build unix

package redisson

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
)

// loop is the Go side's loop command: it does what the Java one does, and writes
// the same record. Each round is a new owner's, as most acquisitions of a service
// are; the second hold of a round re-enters by the first one's context.
func (g *goDriver) loop(o *goOwner, a []string) (string, error) {
	specs := strings.Split(a[0], ",")
	lockers := make([]redlatch.Locker, len(specs))
	for i, s := range specs {
		l, err := g.locker(s)
		if err != nil {
			return "", err
		}
		lockers[i] = l
	}
	var rounds int
	var holdUs int64
	if _, err := fmt.Sscan(a[1]+" "+a[5], &rounds, &holdUs); err != nil {
		return "", err
	}
	limit, record, tag, wait, lease, twice := goMillis(a[2]), a[3], a[4], goMillis(a[6]), goMillis(a[7]), a[8] == "1"
	ctx := context.Background()
	push := func(line string) error {
		return g.redis.Do(ctx, g.redis.B().Rpush().Key(record).Element(line).Build()).Error()
	}
	var r LoopResult
	begin := time.Now()
	for (rounds == 0 || r.Acquired < rounds) && (limit == 0 || time.Since(begin) < limit) && !g.halted.Load() {
		i := rand.IntN(len(specs))
		r.Tried++
		var h redlatch.Hold
		var err error
		began := time.Now()
		if wait < 0 {
			h, err = lockers[i].Lock(ctx, redlatch.WithLease(lease))
		} else {
			h, err = lockers[i].TryLock(ctx, wait, lease)
		}
		// A short wait may end before a busy server has answered: that is no "busy".
		if errors.Is(err, redlatch.ErrNotAcquired) || (wait >= 0 && errors.Is(err, redlatch.ErrUnavailable)) {
			continue
		}
		if err != nil {
			return "", err // there is no fault that could excuse it
		}
		r.Acquired++
		r.Longest = max(r.Longest, time.Since(began))
		section := tag + " " + o.name + " " + specMode(specs[i]) + " " + specNames(specs[i])
		if err := push("E " + section); err != nil {
			return "", err
		}
		var inner redlatch.Hold
		if twice && r.Acquired%2 == 0 {
			if inner, err = lockers[i].Lock(h.Context(), redlatch.WithLease(lease)); err != nil {
				return "", err
			}
		}
		if holdUs > 0 {
			time.Sleep(time.Duration(holdUs) * time.Microsecond)
		}
		if inner != nil {
			err = inner.Unlock(ctx)
		}
		if perr := push("X " + section); perr != nil {
			return "", perr
		}
		switch err := errors.Join(err, h.Unlock(ctx)); {
		case errors.Is(err, redlatch.ErrLeaseLost):
			r.Lost++
		case err != nil:
			return "", err
		}
	}
	return fmt.Sprintf("acquired=%d,tried=%d,lost=%d,failed=%d,longest=%d", r.Acquired, r.Tried, r.Lost, r.Failed, r.Longest.Microseconds()), nil
}

// specMode is how a section under this lock is recorded: "r" admits other "r".
func specMode(spec string) string {
	if strings.HasPrefix(spec, "read") {
		return "r"
	}
	return "w"
}

// specNames are the names that a lock covers, joined by commas.
func specNames(spec string) string {
	parts := strings.Split(strings.TrimPrefix(spec, "multi:"), "+")
	for i, p := range parts {
		_, parts[i], _ = strings.Cut(p, ":")
	}
	return strings.Join(parts, ",")
}
