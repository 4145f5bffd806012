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
if first ~= 0 or call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
call('HSET', KEYS[1], ARGV[1], ARGV[2])
if call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then call('PEXPIRE', KEYS[1], ARGV[3]) end
return 1
