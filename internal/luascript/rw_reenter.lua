-- rw_reenter: set the count of a read or write hold and raise its lease.
--
-- KEYS[1]  the lock
-- KEYS[2]  redlatch_rw_leases:{lock}
-- KEYS[3]  {lock}:<field>:rwlock_timeout:1; for a write hold KEYS[1] again
-- ARGV[1]  the hold's field in the hash (a writer's with ':write')
-- ARGV[2]  the absolute count to reach
-- ARGV[3]  lease, ms: the hold's remaining lease becomes at least this
--
-- RETURN   1  done
--          0  not held by this acquisition, or its lease has ended; nothing was changed
--
-- Twice: the count is absolute and the lease is only ever raised to a value.
local LOCK, LEASES, OWN, field = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
if first ~= 0 or call('HEXISTS', LOCK, field) == 0 then return 0 end
local ends = tonumber(call('ZSCORE', LEASES, field) or now + call('PTTL', OWN))
if ends <= now then return 0 end
call('HSET', LOCK, field, ARGV[2])
ends = now + lasts(math.max(ends - now, tonumber(ARGV[3])))
call('ZADD', LEASES, ends, field)
if OWN ~= LOCK then call('SET', OWN, '1', 'PX', ends - now) end
for _, key in ipairs({LOCK, LEASES}) do
  if call('PTTL', key) < ends - now then call('PEXPIRE', key, ends - now) end
end
return 1
