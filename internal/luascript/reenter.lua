-- reenter: set the count of an acquisition that holds the lock.
--
-- KEYS[1]  the lock
-- ARGV[1]  field of the acquisition
-- ARGV[2]  the absolute count to reach
-- ARGV[3]  lease, ms: the remaining lease becomes at least this
--
-- RETURN   1  done
--          0  the lock is no longer held by this acquisition; nothing was changed
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
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return 1
