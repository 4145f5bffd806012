-- rw_lease: raise the end of a hold in the set of leases alone, while a cluster moves
-- the slot and takes no command of several keys; rw_renew for the rest.
--
-- KEYS[1]  redlatch_rw_leases:{lock}
-- ARGV[1]  the hold's field in the hash (a writer's with ':write')
-- ARGV[2]  lease, ms: the hold's remaining lease becomes at least this; 0 = check only
--
-- RETURN   1  done
--          0  the set has no such hold, or its lease has ended; nothing was changed
--
-- Twice: a lease is only ever raised to a value.
local first = pcall('ZREM', KEYS[1], '') -- a write that takes no memory, as in first
if type(first) == 'table' then return replaced(first) and 0 or first end
local ends = tonumber(call('ZSCORE', KEYS[1], ARGV[1]) or '0')
if ends <= now then return 0 end
local to = now + lasts(math.max(ends - now, tonumber(ARGV[2])))
if to > ends then call('ZADD', KEYS[1], to, ARGV[1]) end
if call('PTTL', KEYS[1]) < to - now then call('PEXPIRE', KEYS[1], to - now) end
return 1
