package inspect

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
)

// The bounds of the history. What stands there may be anybody's.
const (
	historyKept   = 1000
	historyLooked = 2 * historyKept
	historyBytes  = 4 << 20
	historyText   = 512
	// Of them, what one command looks at: some milliseconds of the server's.
	historyPage      = 100
	historyPageBytes = 256 << 10
	// MostEvictions is how many can be asked for.
	MostEvictions = historyKept
)

// Record notes an eviction in the history. That it can't be noted is logged, and told to set.Told.
func (i *Inspector) Record(ctx context.Context, name string, e Evicted, set settings.Force) {
	err := i.record(ctx, name, e, set)
	if err != nil {
		i.cfg.Log.WarnContext(ctx, "redlatch: forced unlock not recorded", "lock", name, "by", i.cfg.ID, "error", err)
	}
	if set.Told != nil {
		set.Told(err)
	}
}

func (i *Inspector) record(ctx context.Context, name string, e Evicted, set settings.Force) error {
	ctx, done, err := i.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	victims := []lock.Inspection{{}}
	for _, owner := range e.Owners {
		id, _, _ := strings.Cut(owner, ":")
		victims[0].Holders = append(victims[0].Holders, lock.Holder{Owner: owner, Process: lock.Process{ClientID: id}})
	}
	i.clients.fill(ctx, i, victims)
	args := []string{strconv.Itoa(historyKept)}
	add := func(field, value string) { args = append(args, field, value[:min(len(value), historyText)]) }
	key, err := i.key(name)
	if err != nil {
		return err
	}
	add("name", strings.TrimPrefix(key, i.cfg.Prefix))
	add("kind", string(e.Kind))
	add("holds", strconv.Itoa(e.Count))
	add("by", set.By)
	add("client", i.cfg.Name)
	add("reason", set.Reason)
	for _, h := range victims[0].Holders {
		add("owner", h.Owner)
		add("process", strings.TrimSpace(h.Client+" "+h.Addr))
	}
	cmd := conn.Command{Script: luascript.HistoryAdd, Keys: []string{luascript.HistoryKey(i.cfg.Prefix)}, Args: args}
	_, err = i.ask(ctx, name, "record", cmd, conn.Unsent)
	return err
}

// Evictions reads the last entries of the history, the newest first: of the lock of this name, or of all.
func (i *Inspector) Evictions(ctx context.Context, name string, most int) ([]lock.Eviction, error) {
	if most < 1 || most > MostEvictions {
		return nil, &lock.InvalidOptionError{Option: "limit", Reason: "it is not from 1 to " + strconv.Itoa(MostEvictions)}
	}
	wanted := ""
	if name != "" {
		key, err := i.key(name)
		if err != nil {
			return nil, err
		}
		wanted = strings.TrimPrefix(key, i.cfg.Prefix)
		wanted = wanted[:min(len(wanted), historyText)]
	}
	ctx, done, err := i.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	out, at, bytes := []lock.Eviction{}, "+", 0
	for looked := 0; at != "" && len(out) < most && looked < historyLooked && bytes < historyBytes; {
		cmd := conn.Command{Script: luascript.HistoryRead, Keys: []string{luascript.HistoryKey(i.cfg.Prefix)}, Args: []string{
			wanted, strconv.Itoa(most - len(out)), strconv.Itoa(historyPage), strconv.Itoa(historyPageBytes), strconv.Itoa(historyText), at,
		}}
		r, err := i.ask(ctx, name, "history", cmd, conn.Ambiguous)
		if err != nil {
			return nil, err
		}
		out, at = append(out, readHistory(r)...), r.Str(1)
		looked += int(r.Int(2))
		bytes += int(r.Int(3))
	}
	return out, nil
}

// readHistory reads the reply of history_read.lua.
func readHistory(r conn.Reply) (out []lock.Eviction) {
	for at := 4; at+1 < len(r.Vals); {
		e, n := lock.Eviction{At: entryTime(r.Str(at)), Evicted: []lock.Evicted{}}, int(min(r.Int(at+1), int64(len(r.Vals))))
		at += 2
		for end := at + 2*n; at < end; at += 2 {
			field, value := r.Str(at), r.Str(at+1)
			switch last := len(e.Evicted) - 1; field {
			case "name":
				e.Name = value
			case "kind":
				e.Kind = lock.Kind(value)
			case "holds":
				e.Holds, _ = strconv.Atoi(value)
			case "by":
				e.By = value
			case "client":
				e.Client = value
			case "reason":
				e.Reason = value
			case "owner":
				e.Evicted = append(e.Evicted, lock.Evicted{Owner: value})
			case "process":
				if last >= 0 {
					e.Evicted[last].Process = value
				}
			}
		}
		out = append(out, e)
	}
	return out
}

// entryTime is the time in an entry's id; zero if no clock says so.
func entryTime(id string) time.Time {
	text, _, _ := strings.Cut(id, "-")
	const year9999 = 253402300799999
	ms, err := strconv.ParseUint(text, 10, 64)
	if err != nil || ms > year9999 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms)).UTC()
}
