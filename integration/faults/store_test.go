package faults

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/testbed"
)

// store is what the locks protect: a register per name on a server of its own,
// which no fault touches. It refuses tokens older than the newest it has seen.
type store struct{ c rueidis.Client }

func openStore(addr string) (store, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true,
	})
	return store{c}, err
}

// One look at a register, or one write to it.
//
// KEYS: fence, value, log of the writes (list: section, token, base, found)
// ARGV: section, token or 0, "" to look or "w" to write, for a write: the base it rests on
// RETURN: {0} refused; {1, value before}
var touch = rueidis.NewLuaScript(`
local token, fence = tonumber(ARGV[2]), tonumber(redis.call('GET', KEYS[1]) or '0')
if token > 0 and token < fence then return {0} end
if token > fence then redis.call('SET', KEYS[1], ARGV[2]) end
local value = redis.call('GET', KEYS[2]) or ''
if ARGV[3] == 'w' then
  redis.call('RPUSH', KEYS[3], ARGV[1] .. '|' .. ARGV[2] .. '|' .. ARGV[4] .. '|' .. value)
  redis.call('SET', KEYS[2], ARGV[1])
end
return {1, value}
`)

// touch looks (mode "") or writes ("w"). It returns the value before, and false if the
// token was refused.
func (s store) touch(name, section string, token uint64, mode, base string) (string, bool, error) {
	all, err := touch.Exec(context.Background(), s.c,
		[]string{"fence:" + name, "value:" + name, "log:" + name},
		[]string{section, strconv.FormatUint(token, 10), mode, base}).ToArray()
	if err != nil {
		return "", false, fmt.Errorf("the store: %w", err)
	}
	if len(all) < 2 {
		return "", false, nil
	}
	value, err := all[1].ToString()
	return value, true, err
}

// write is one that the store accepted.
type write struct {
	Section, Base, Found string
	Token                uint64
}

// writes returns each name's accepted writes in their order.
func writes(tb testbed.TB, s *testbed.Server) map[string][]write {
	tb.Helper()
	all := map[string][]write{}
	for _, key := range s.List(tb, "KEYS", "log:*") {
		name := strings.TrimPrefix(key, "log:")
		for _, line := range s.List(tb, "LRANGE", key, "0", "-1") {
			part := strings.Split(line, "|") // as touch writes it
			token, err := strconv.ParseUint(part[1], 10, 64)
			if err != nil {
				tb.Fatalf("the store's log: %q", line)
			}
			all[name] = append(all[name], write{part[0], part[2], part[3], token})
		}
	}
	return all
}
