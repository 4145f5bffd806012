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
local held = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
if type(held) == 'table' then
  -- another type at this key: somebody replaced the lock
  if string.find(held.err, 'WRONGTYPE', 1, true) then return 0 end
  return held
end
if held == 0 then
  -- a write, though it changes nothing: a demoted master must not say "gone"
  redis.call('HDEL', KEYS[1], ARGV[1])
  return 0
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local ends = tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1]) or now + redis.call('PTTL', KEYS[3]))
if ends <= now then
  -- so may a master say that was demoted before it heard of the last renewal
  redis.call('HDEL', KEYS[1], '')
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
ends = math.max(ends, now + ARGV[3])
redis.call('ZADD', KEYS[2], ends, ARGV[1])
if KEYS[3] ~= KEYS[1] then redis.call('SET', KEYS[3], '1', 'PX', ends - now) end
for i = 1, 2 do
  if redis.call('PTTL', KEYS[i]) < ends - now then redis.call('PEXPIRE', KEYS[i], ends - now) end
end
return 1
