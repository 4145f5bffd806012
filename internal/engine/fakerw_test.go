package engine_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/luascript"
)

// fakeRW is a read-write lock, as far as its own readers and writers see the difference.
type fakeRW struct {
	fields  map[string]time.Time // who holds it, a writer with ":write", and until when
	writers []waitingWriter
	readers map[string]time.Time
	turn    map[string]time.Time
}

type waitingWriter struct {
	field string
	us    int64
	ends  time.Time
}

// left is what stands there.
func (rw *fakeRW) left() []string {
	rw.end(time.Now())
	if len(rw.fields)+len(rw.writers)+len(rw.readers)+len(rw.turn) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("held %v, writers %v, readers %v, turn %v", rw.fields, rw.writers, rw.readers, rw.turn)}
}

// end ends what was to last until now.
func (rw *fakeRW) end(now time.Time) {
	for _, all := range []map[string]time.Time{rw.fields, rw.readers, rw.turn} {
		for field, ends := range all {
			if !now.Before(ends) {
				delete(all, field)
			}
		}
	}
	rw.writers = slices.DeleteFunc(rw.writers, func(w waitingWriter) bool { return !now.Before(w.ends) })
}

// writer is who holds the write lock, and what is left of the longest lease of anybody.
func (rw *fakeRW) writer(now time.Time) (field string, pttl int64) {
	pttl = -2
	for x, ends := range rw.fields {
		if strings.HasSuffix(x, ":write") {
			field = strings.TrimSuffix(x, ":write")
		}
		pttl = max(pttl, ends.Sub(now).Milliseconds())
	}
	return field, pttl
}

func (rw *fakeRW) raise(field, lease string, now time.Time) {
	if ends := now.Add(ms(lease)); ends.After(rw.fields[field]) {
		rw.fields[field] = ends
	}
}

func (rw *fakeRW) refusal(now time.Time) conn.Reply {
	w, pttl := rw.writer(now)
	return conn.Reply{Vals: []conn.Value{
		{}, {Int: pttl}, {Str: w}, {}, {Int: max(1, pttl)}, {Int: now.UnixMicro()},
	}}
}

func (rw *fakeRW) read(arg []string, now time.Time) conn.Reply {
	field, entry := arg[0], kind.EntryOf(arg[0])
	_, inTurn := rw.turn[entry]
	enter := func(code int64, room ...conn.Value) conn.Reply {
		rw.raise(field, arg[1], now)
		delete(rw.readers, entry)
		delete(rw.turn, entry)
		if len(room) > 0 {
			room = append([]conn.Value{{Int: code}, {}}, room...)
		}
		return conn.Reply{Code: code, Vals: room}
	}
	refuse := func() conn.Reply {
		if inTurn {
			rw.turn[entry] = now.Add(ms(arg[5]))
		} else if arg[5] != "0" {
			rw.readers[entry] = now.Add(ms(arg[5]))
		}
		return rw.refusal(now)
	}
	if _, mine := rw.fields[field]; mine {
		return enter(2)
	}
	if w, _ := rw.writer(now); w != "" {
		if arg[3] == w+":write" {
			return enter(1)
		}
		return refuse()
	}
	if arg[4] == "1" || len(rw.writers) == 0 {
		return enter(1)
	}
	if inTurn {
		return enter(3)
	}
	came := now.UnixMicro()
	if arg[2] != "" {
		came = int64(ms(arg[2]) / time.Millisecond)
	}
	if first := rw.writers[0].us; first >= came {
		return enter(4, conn.Value{Int: first - came})
	}
	return refuse()
}

func (rw *fakeRW) write(arg []string, now time.Time) conn.Reply {
	field, entry := arg[0]+":write", kind.EntryOf(arg[0])
	if _, mine := rw.fields[field]; mine {
		rw.raise(field, arg[1], now)
		return code1(2)
	}
	if len(rw.fields)+len(rw.turn) > 0 {
		if w := rw.marked(entry); w != nil {
			w.ends = now.Add(ms(arg[2]))
		} else if arg[2] != "0" {
			rw.writers = append(rw.writers, waitingWriter{entry, now.UnixMicro(), now.Add(ms(arg[2]))})
		}
		return rw.refusal(now)
	}
	rw.unmark(entry)
	rw.raise(field, arg[1], now)
	return code1(1)
}

// marked is a writer that waits, or nil.
func (rw *fakeRW) marked(field string) *waitingWriter {
	for i := range rw.writers {
		if rw.writers[i].field == field {
			return &rw.writers[i]
		}
	}
	return nil
}

func (rw *fakeRW) unmark(field string) {
	rw.writers = slices.DeleteFunc(rw.writers, func(w waitingWriter) bool { return w.field == field })
}

// refresh keeps the places of those who wait, and says what they are.
func (rw *fakeRW) refresh(arg []string, now time.Time) (r conn.Reply) {
	_, pttl := rw.writer(now)
	each := 2
	if arg[0] == "r" {
		each = 3
	}
	for i := 1; i < len(arg); i += each {
		state, ends := int64(0), now.Add(ms(arg[i+1]))
		if _, in := rw.turn[arg[i]]; in {
			state, rw.turn[arg[i]] = 2, ends
		} else if _, in := rw.readers[arg[i]]; in {
			state, rw.readers[arg[i]] = 1, ends
		} else if w := rw.marked(arg[i]); w != nil {
			state, w.ends = 1, ends
		}
		r.Vals = append(r.Vals, conn.Value{Int: state}, conn.Value{Int: pttl})
	}
	r.Code = r.Vals[0].Int
	return r
}

func (f *fakeRedis) runRW(cmd conn.Command) conn.Reply {
	rw, now, key, arg := &f.rw, time.Now(), cmd.Keys[0], cmd.Args
	rw.end(now)
	gone := f.voided(arg[0], key)
	switch {
	case gone && (cmd.Script == luascript.RWRead || cmd.Script == luascript.RWWrite):
		return code1(-1)
	case cmd.Script == luascript.RWRead:
		return rw.read(arg, now)
	case cmd.Script == luascript.RWWrite:
		return rw.write(arg, now)
	case cmd.Script == luascript.RWReenter:
		if _, held := rw.fields[arg[0]]; !held {
			return code1(0)
		}
		rw.raise(arg[0], arg[2], now)
		return code1(1)
	case cmd.Script == luascript.RWReadRelease, cmd.Script == luascript.RWWriteRelease:
		return f.releaseRW(cmd)
	case cmd.Script == luascript.RWRenew:
		return renewed(len(arg)/2, func(i int) bool {
			_, held := rw.fields[arg[2*i]]
			if held {
				rw.raise(arg[2*i], arg[2*i+1], now)
			}
			return held
		})
	case cmd.Script == luascript.RWRefresh:
		return rw.refresh(arg, now)
	}
	panic("no script " + cmd.Script.Name)
}

// releaseRW takes back a hold, a mark or a place, and tells those who may come next.
func (f *fakeRedis) releaseRW(cmd conn.Command) conn.Reply {
	rw, field, entry := &f.rw, cmd.Args[0], kind.EntryOf(cmd.Args[0])
	f.refuse(field, cmd.Keys[0], cmd.Args[3])
	var held, tells bool
	if cmd.Script == luascript.RWReadRelease {
		_, inTurn := rw.turn[entry]
		_, held = rw.fields[field]
		delete(rw.fields, field)
		delete(rw.readers, entry)
		delete(rw.turn, entry)
		if held && len(rw.fields) == 0 || inTurn && len(rw.turn) == 0 {
			f.publish(luascript.RWChannel(cmd.Keys[0]), "0")
		}
	} else {
		_, held = rw.fields[field+":write"]
		delete(rw.fields, field+":write")
		tells = held || rw.marked(entry) != nil
		rw.unmark(entry)
		if held {
			for r, ends := range rw.readers {
				rw.turn[r] = ends
			}
			clear(rw.readers)
		}
		if tells {
			f.publish(luascript.RWChannel(cmd.Keys[0]), "1")
		}
	}
	if len(rw.fields)+len(rw.turn) == 0 && len(rw.writers) > 0 {
		client, _, _ := strings.Cut(rw.writers[0].field, ":")
		f.publish(luascript.CallChannel(cmd.Keys[0])+client+":write", strconv.FormatInt(rw.writers[0].us, 10))
	}
	if !held {
		return code1(0)
	}
	return code1(1)
}
