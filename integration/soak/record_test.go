package soak

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"
)

// record is what the sections write on the server, over connections of its own
// that no fault touches. Two sections that overlap are noted as a pair, and so is
// a section that begins with a token that is not the largest so far. Neither is a
// fault by itself: a process that stood still for longer than its lease finds
// another one inside. It is one if the holds were in order to their end, that is,
// if Unlock said so.
type record struct{ c rueidis.Client }

// A section of a name begins.
//
// KEYS: inside (hash: section -> mode), pairs (set), largest token, stale (set)
// ARGV: section, "r" or "w", token or 0
var enter = rueidis.NewLuaScript(`
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if all[i + 1] == 'w' or ARGV[2] == 'w' then redis.call('SADD', KEYS[2], all[i] .. ' ' .. ARGV[1]) end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if ARGV[2] == 'w' and ARGV[3] ~= '0' then
  local n = tonumber(redis.call('GET', KEYS[3]) or '0')
  if tonumber(ARGV[3]) <= n then redis.call('SADD', KEYS[4], ARGV[1]) else redis.call('SET', KEYS[3], ARGV[3]) end
end
return 1
`)

func (r record) enter(name, section, mode string, token uint64) error {
	return enter.Exec(context.Background(), r.c,
		[]string{"soak:inside:" + name, "soak:pairs", "soak:token:" + name, "soak:stale"},
		[]string{section, mode, strconv.FormatUint(token, 10)}).Error()
}

func (r record) leave(name, section string) error {
	return r.c.Do(context.Background(), r.c.B().Hdel().Key("soak:inside:"+name).Field(section).Build()).Error()
}

// clean notes that a section's hold was in order to its end.
func (r record) clean(section string) error {
	return r.c.Do(context.Background(), r.c.B().Sadd().Key("soak:clean").Member(section).Build()).Error()
}

// faults lists what must not have been.
func (r record) faults() (list []string, sections int64, err error) {
	ctx := context.Background()
	sections, err = r.c.Do(ctx, r.c.B().Scard().Key("soak:clean").Build()).AsInt64()
	if err != nil {
		return nil, 0, err
	}
	clean := func(section string) bool {
		n, e := r.c.Do(ctx, r.c.B().Sismember().Key("soak:clean").Member(section).Build()).AsInt64()
		if e != nil {
			err = e
		}
		return n == 1
	}
	pairs, e := r.c.Do(ctx, r.c.B().Smembers().Key("soak:pairs").Build()).AsStrSlice()
	if e != nil {
		return nil, 0, e
	}
	for _, pair := range pairs {
		var a, b string
		if _, e := fmt.Sscan(pair, &a, &b); e != nil {
			return nil, 0, e
		}
		if clean(a) && clean(b) {
			list = append(list, "inside together: "+pair)
		}
	}
	stale, e := r.c.Do(ctx, r.c.B().Smembers().Key("soak:stale").Build()).AsStrSlice()
	if e != nil {
		return nil, 0, e
	}
	for _, section := range stale {
		if clean(section) {
			list = append(list, "a token that is not the largest: "+section)
		}
	}
	return list, sections, err
}
