package conn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/quote"
	"github.com/redlatch/redlatch/internal/slots"
)

// While a cluster moves a slot, the node that loses it serves what concerns keys that it has, and makes
// no new ones. The one that gets it takes a command that was sent on with ASKING, but of several keys
// only if it has them all. So a script whose keys do not exist yet, as those of a free lock, is taken
// nowhere (TRYAGAIN) until the slot is whole; and it may stay half-way for long, if somebody broke off.
//
// That is overcome where it is safe: if the first node has none of the keys, nobody can make one there
// any more, and the second one decides alone, as it will when the slot is whole. It takes a script that
// declares one key, and each command in it that has one. What decides nothing, who waits for a plain lock
// and the holder's trace, may be left behind: the script runs as if there were none, and makes none, which
// would be in the way of the move. If the first node has others of the keys, they are torn, and nobody can
// decide: the command is refused as before, and the error says why.

// askedOn is put in front of a script that declares its first key alone; the others come as arguments, then
// those that are left behind, both behind their numbers. Of a command of several keys the node would want to
// have them all.
const askedOn = `local KEYS, ARGV, behind = (function(first, args)
  local keys, rest, behind, n, b = {first}, {}, {}, tonumber(args[1]), tonumber(args[2])
  for i = 2, n do keys[i] = args[i + 1] end
  for i = n + 2, n + b + 1 do behind[args[i]] = true end
  for i = n + b + 2, #args do rest[i - n - b - 1] = args[i] end
  return keys, rest, behind
end)(KEYS[1], ARGV)
local redis = (function(redis)
  local function apart(run)
    local function one(command, ...)
      local key = ...
      if not behind[key or ''] then return run(command, ...) end
      if command == 'GET' then return false end
      return command == 'ZPOPMIN' and {} or 0
    end
    return function(command, ...)
      local n = select('#', ...)
      if n < 2 or command ~= 'EXISTS' and command ~= 'DEL' then return one(command, ...) end
      local sum = 0
      for i = 1, n do
        local found = one(command, (select(i, ...)))
        if type(found) == 'table' then return found end
        sum = sum + found
      end
      return sum
    end
  end
  return setmetatable({call = apart(redis.call), pcall = apart(redis.pcall)}, {__index = redis})
end)(redis)
`

// halfway runs a command that a cluster has refused with TRYAGAIN where its slot is going, if none of
// the keys that decide is where it comes from. Else it returns the refusal, with what is known of the reason.
func (c *Conn) halfway(ctx context.Context, cmd Command, refusal error) (Reply, error) {
	if !c.topo.Cluster { // a proxy in front of one says so, too
		return Reply{}, refusal
	}
	to, behind, err := c.going(ctx, cmd.Keys)
	if to == nil {
		return Reply{}, cmp.Or(err, refusal)
	}
	args := slices.Concat([]string{strconv.Itoa(len(cmd.Keys)), strconv.Itoa(len(behind))}, cmd.Keys[1:], behind, cmd.Args)
	multi := []rueidis.Completed{
		to.B().Asking().Build(),
		to.B().Eval().Script(askedOn + cmd.Script.Body).Numkeys(1).Key(cmd.Keys[0]).Arg(args...).Build(),
	}
	if cmd.Acks > 0 {
		multi = append(multi, to.B().Wait().Numreplicas(int64(cmd.Acks)).Timeout(cmd.AckTimeout.Milliseconds()).Build())
	}
	res := to.DoMulti(ctx, multi...)
	r, err := c.parse(res[1])
	if err == nil && cmd.Acks > 0 {
		n, werr := res[2].AsInt64()
		r.Acked, r.Waits = int(n), werr
	}
	return r, err
}

// going finds the node that the slot of these keys is going to, if the one that it comes from has none
// of them, or only those behind. It returns an error if that has others, and neither if the slot is not
// half-way (any more) or nothing is known.
func (c *Conn) going(ctx context.Context, keys []string) (to rueidis.Client, behind []string, err error) {
	slot := luascript.Slot(keys[0])
	addr, from := c.nodeOf(ctx, slot)
	for range 2 {
		if from == nil {
			return nil, nil, nil
		}
		here, told, answered := c.look(ctx, from, keys)
		moved, isMoved := told.IsMoved()
		next, isAsk := told.IsAsk()
		switch {
		case !answered:
			return nil, nil, nil
		case isMoved: // what is known is of yesterday
			c.slots.doubt()
			addr = namedBy(addr, moved)
			from = c.client.Nodes()[addr]
			continue
		case !isAsk: // it would make a key: the slot is whole, or comes back
			return nil, nil, nil
		}
		next = namedBy(addr, next)
		if i := slices.IndexFunc(here, deciding(keys)); i >= 0 {
			return nil, nil, Refusal(fmt.Sprintf("TRYAGAIN the cluster's slot %d is half-way from %s to %s, and so are the lock's keys: "+
				"the first still has %d of %d, %s among them. It can be acquired when they are on one side: finish the move, or undo it",
				slot, addr, next, len(here), len(keys), quote.Name(here[i])))
		}
		return c.client.Nodes()[next], here, nil
	}
	return nil, nil, nil
}

// deciding tells which of a script's keys decide: all but the lists and the traces of its locks.
func deciding(keys []string) func(key string) bool {
	besides := make(map[string]bool, 2*len(keys))
	for _, key := range keys {
		besides[luascript.WaitKey(key)], besides[luascript.TraceKey(key)] = true, true
	}
	return func(key string) bool { return !besides[key] }
}

// look asks a node for keys. here are those that it has; told is what it says of one that it has not: a
// redirection, or an empty error if it would make it. answered is false if nothing is known.
func (c *Conn) look(ctx context.Context, node rueidis.Client, keys []string) (here []string, told *rueidis.RedisError, answered bool) {
	looks := make([]rueidis.Completed, len(keys))
	for i, key := range keys {
		looks[i] = node.B().Exists().Key(key).Build()
	}
	told = &rueidis.RedisError{}
	for i, res := range node.DoMulti(ctx, looks...) {
		n, err := res.AsInt64()
		switch {
		case err == nil && n == 1:
			here = append(here, keys[i])
		case err == nil:
			return nil, &rueidis.RedisError{}, true
		case !errors.As(err, &told):
			return nil, told, false
		}
	}
	return here, told, true
}

// namedBy is an address as the client library names it; see slots.Addr.
func namedBy(asked, addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return slots.Addr(asked, host, port)
}
