-- release: give a plain lock back, wholly or down to a count.
--
-- KEYS[1]  the lock
-- KEYS[2]  redlatch_void:{lock}, if ARGV[6] is not '0'
-- KEYS[last]  redlatch_trace:{lock}, if ARGV[7] is '1'
-- ARGV[1]  field of the acquisition
-- ARGV[2]  the absolute count to reach; 0 = not held any more
-- ARGV[3]  count > 0: the remaining lease that is needed, ms (that of the latest-ending live hold)
-- ARGV[4]  unlock channel
-- ARGV[5]  PUBLISH or SPUBLISH
-- ARGV[6]  '0', or how long (ms) a late command of this acquisition must be refused
-- ARGV[7]  '1' = the acquisition left its trace beside the lock
-- ARGV[8]  count > 0, optional: when the lease ends, as an answer of 3 has told: lower that one
--
-- As a rule the lock is the only key, so that a release works while a cluster
-- moves the slot (several keys, of which some do not exist, get TRYAGAIN then).
--
-- RETURN   1           done
--          {1, n}      done; n > 2 subscribers have got the message
--          0           not held by this acquisition
--          {2, error}  done, but the server refused the message
--          {3, ends}   done, but the lease ends later than is needed: in ms of the server's clock
--
-- Twice: the second run finds the field gone, or the count reached; it can't
-- touch another acquisition, not even one of the same owner. A lease is lowered
-- only while it ends when the caller was told that it does: a command that comes
-- late finds another end, which somebody counts on by then. Works when the
-- server is out of memory: a refused HSET leaves a count too high, which the
-- last release does not look at.
local function replaced(answer) -- another type stands at the key
  return type(answer) == 'table' and string.find(answer.err, 'WRONGTYPE', 1, true)
end
if ARGV[6] ~= '0' then
  redis.pcall('SADD', KEYS[2], ARGV[1])
  redis.pcall('PEXPIRE', KEYS[2], ARGV[6])
end
if ARGV[2] ~= '0' then
  local held = redis.pcall('HGET', KEYS[1], ARGV[1])
  if replaced(held) then return 0 end
  if type(held) == 'table' then return held end
  if not held then
    -- a write, though it changes nothing: a demoted master must not say "gone"
    redis.call('HDEL', KEYS[1], ARGV[1])
    return 0
  end
  if tonumber(held) > tonumber(ARGV[2]) then redis.pcall('HSET', KEYS[1], ARGV[1], ARGV[2]) end
  local left, need = redis.call('PTTL', KEYS[1]), tonumber(ARGV[3])
  if left > need then
    local t = redis.call('TIME')
    local ends = t[1] * 1000 + math.floor(t[2] / 1000) + left
    -- the two clock readings of either run may straddle a millisecond
    if not ARGV[8] or math.abs(ends - ARGV[8]) > 2 then return {3, ends} end
  end
  redis.call('PEXPIRE', KEYS[1], need)
  return 1
end
local gone = redis.pcall('HDEL', KEYS[1], ARGV[1])
if replaced(gone) then return 0 end
if gone == 0 or type(gone) == 'table' then return gone end
if ARGV[7] == '1' then redis.pcall('DEL', KEYS[#KEYS]) end
local sent = redis.pcall(ARGV[5], ARGV[4], '0')
if type(sent) == 'table' then return {2, sent.err} end
if sent > 2 then return {1, sent} end
return 1
