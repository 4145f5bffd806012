-- rw_force: end all holds of one mode of a read-write lock.
--
-- KEYS[1]  the lock
-- KEYS[2]  redlatch_rw_leases:{lock}
-- KEYS[3]  redlatch_rw_readers:{lock}
-- KEYS[4]  redlatch_rw_turn:{lock}
-- KEYS[5]  redlatch_trace:{lock}
-- ARGV[1]  'read' or 'write'
-- ARGV[2]  channel
-- ARGV[3]  PUBLISH or SPUBLISH
--
-- RETURN   1  something was held in this mode, and is not any more
--          0  nothing was held in this mode
--         -1  the key is no read-write lock and was not touched
--
-- The reads of a writer are left to it when its write lock is taken away, and the
-- other way round. The readers' timeout keys go when their holders notice, or by
-- their TTL.
--
-- Twice: the second run finds nothing in this mode, or ends its next holders: an
-- operator's command, and it says so.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then return 0 end
if kind ~= 'hash' then return -1 end
local mode = redis.call('HGET', KEYS[1], 'mode')
if mode ~= 'read' and mode ~= 'write' then return -1 end
local all = redis.call('HGETALL', KEYS[1])
local gone, stay = {}, 0
for i = 1, #all, 2 do
  local f = all[i]
  if f ~= 'mode' then
    if not string.match(f, '^%x+%-%x+%-%x+%-%x+%-%x+:[^ ]+$') or not string.match(all[i + 1], '^%d+$') then return -1 end
    local writes = mode == 'write' and string.sub(f, -6) == ':write'
    if writes == (ARGV[1] == 'write') then
      gone[#gone + 1] = f
    else
      stay = stay + 1
    end
  end
end
if #gone == 0 then return 0 end
if stay == 0 then
  redis.call('DEL', KEYS[1], KEYS[2])
else
  for _, f in ipairs(gone) do
    redis.call('HDEL', KEYS[1], f)
    redis.call('ZREM', KEYS[2], f)
  end
  if ARGV[1] == 'write' then redis.call('HSET', KEYS[1], 'mode', 'read') end
end
redis.pcall('DEL', KEYS[5])
local message = '0'
if ARGV[1] == 'write' then
  message = '1'
  if redis.call('EXISTS', KEYS[3]) == 1 then redis.pcall('RENAME', KEYS[3], KEYS[4]) end
end
redis.pcall(ARGV[3], ARGV[2], message)
return 1
