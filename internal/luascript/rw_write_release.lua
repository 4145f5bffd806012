-- rw_write_release: give the write lock back, wholly or down to a count; or undo
-- an acquisition that may have left it, or a mark.
--
-- KEYS[1]  the lock
-- KEYS[2]  redlatch_void:{lock}
-- KEYS[3]  redlatch_rw_leases:{lock}
-- KEYS[4]  redlatch_rw_readers:{lock}
-- KEYS[5]  redlatch_rw_turn:{lock}
-- KEYS[6]  redlatch_rw_writers:{lock}, only to undo
-- KEYS[7]  redlatch_rw_marks:{lock}, only to undo
-- KEYS[last]  redlatch_trace:{lock}, if ARGV[7] is '1'
-- ARGV[1]  field of the acquisition (without ':write')
-- ARGV[2]  the absolute count to reach; 0 = not held any more
-- ARGV[3]  count > 0: the remaining lease that is needed, ms (that of the latest-ending live hold)
-- ARGV[4]  channel
-- ARGV[5]  PUBLISH or SPUBLISH
-- ARGV[6]  '0', or how long (ms) a late command of this acquisition must be refused
-- ARGV[7]  '1' = the acquisition left its trace
-- ARGV[8]  '1' = undo
-- ARGV[9]  count > 0, optional: when the hold's lease ends, as an answer of 3 has told: lower that one
--
-- RETURN   1           done
--          0           not held by this acquisition
--          {2, error}  done, but the server refused the message
--          {3, ends}   done, but the lease ends later than is needed: in ms of the server's clock
--
-- Twice: the second run finds the field gone, or the count reached; it can't
-- touch another acquisition, not even one of the same owner. A lease is lowered
-- only while it ends when the caller was told that it does, as in release. Works when the
-- server is out of memory.
local field = ARGV[1] .. ':write'
if ARGV[6] ~= '0' then
  redis.pcall('SADD', KEYS[2], ARGV[1])
  redis.pcall('PEXPIRE', KEYS[2], ARGV[6])
end
local function replaced(answer) -- another type stands at the key
  return type(answer) == 'table' and string.find(answer.err, 'WRONGTYPE', 1, true)
end
local message
if ARGV[8] == '1' then
  redis.call('ZREM', KEYS[7], ARGV[1])
  -- readers that stood back for this writer alone enter
  if redis.call('ZREM', KEYS[6], ARGV[1]) == 1 and redis.call('EXISTS', KEYS[4]) == 1 and
     redis.pcall('HGET', KEYS[1], 'mode') ~= 'write' then
    message = '1'
  end
end

local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
-- makes the lock last as long as the latest-ending hold of its one owner
local function settle()
  for _, f in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now)) do
    redis.call('ZREM', KEYS[3], f)
    redis.call('HDEL', KEYS[1], f)
  end
  local last = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')
  if not last[1] then return end
  for i = 1, 3, 2 do redis.call('PEXPIRE', KEYS[i], last[2] - now) end
end

local done = 1
local held = redis.pcall(ARGV[2] ~= '0' and 'HGET' or 'HDEL', KEYS[1], field)
if not held or replaced(held) then held = 0 end
if type(held) == 'table' then return held end
if ARGV[2] ~= '0' then
  if held == 0 then
    -- a write, though it changes nothing: a demoted master must not say "gone"
    local w = redis.pcall('HDEL', KEYS[1], field)
    return type(w) == 'table' and not replaced(w) and w or 0
  end
  if tonumber(held) > tonumber(ARGV[2]) then redis.pcall('HSET', KEYS[1], field, ARGV[2]) end
  local ends = tonumber(redis.call('ZSCORE', KEYS[3], field) or 0)
  if ends > now + ARGV[3] and ends ~= tonumber(ARGV[9]) then return {3, ends} end
  if type(redis.pcall('ZADD', KEYS[3], now + ARGV[3], field)) ~= 'table' then settle() end
  return 1
elseif held == 0 then
  done = 0
else
  redis.call('ZREM', KEYS[3], field)
  if ARGV[7] == '1' then redis.pcall('DEL', KEYS[#KEYS]) end
  settle()
  if redis.call('HLEN', KEYS[1]) > 1 then
    redis.call('HSET', KEYS[1], 'mode', 'read')
  else
    redis.call('DEL', KEYS[1], KEYS[3])
  end
  -- Whoever waits to read now enters before the next writer.
  if redis.call('EXISTS', KEYS[4]) == 1 then redis.pcall('RENAME', KEYS[4], KEYS[5]) end
  message = '1'
end
if not message then return done end
local sent = redis.pcall(ARGV[5], ARGV[4], message)
if done == 1 and type(sent) == 'table' and sent.err then return {2, sent.err} end
return done
