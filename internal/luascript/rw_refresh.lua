-- rw_refresh: keep the places of any number of readers, or writers, that wait for
-- one lock.
--
-- KEYS[1]  writers: redlatch_rw_marks:{lock}; readers: redlatch_rw_readers:{lock}
-- KEYS[2]  writers: redlatch_rw_writers:{lock}; readers: redlatch_rw_turn:{lock}
-- KEYS[3]  the lock
-- KEYS[4]  redlatch_rw_leases:{lock}
-- ARGV[1]  'w' or 'r'
-- ARGV[2i]    field of an acquisition
-- ARGV[2i+1]  how long its place lives from now, ms
--
-- RETURN   two integers per place: state, for how long the lock is held yet (ms; -1: not
--          known, -2: it is free); that is its TTL, or for writers the end of the last of our
--          readers if there are no others
--          state 2  a reader whose turn it is
--                3  a reader that waits while others read: behind a writer's mark, or since
--                   the writer that kept it out has gone and told nobody
--                1  it waits
--                0  the place is gone: it was silent for too long
--
-- Twice: a place that is gone is not made again; a time is set from the server's clock.
call('ZREM', KEYS[1], '') -- a write that takes no memory, as in first: the rest is not refused then

local function keep(key, field, ms)
  if not call('ZSCORE', key, field) then return false end
  call('ZADD', key, now + ms, field)
  if call('PTTL', key) < tonumber(ms) then call('PEXPIRE', key, ms) end
  return true
end

local ttl = call('PTTL', KEYS[3])
local waits = 1
if ARGV[1] == 'r' and pcall('HGET', KEYS[3], 'mode') == 'read' then waits = 3 end
if ttl > 0 and ARGV[1] == 'w' then
  if ttl > call('PTTL', KEYS[4]) then pcall('PEXPIRE', KEYS[4], ttl) end
  local last = call('ZRANGE', KEYS[4], -1, -1, 'WITHSCORES')
  if last[1] and call('HLEN', KEYS[3]) - 1 == call('ZCARD', KEYS[4]) and
     call('HEXISTS', KEYS[3], last[1]) == 1 then
    ttl = math.max(1, math.min(ttl, last[2] - now))
  end
end
local out = {}
for i = 2, #ARGV, 2 do
  local field, ms = ARGV[i], ARGV[i + 1]
  local state = 0
  if ARGV[1] == 'w' then
    if keep(KEYS[1], field, ms) and call('ZSCORE', KEYS[2], field) then
      state = 1
      if call('PTTL', KEYS[2]) < tonumber(ms) then pcall('PEXPIRE', KEYS[2], ms) end
    end
  elseif keep(KEYS[2], field, ms) then
    state = 2
  elseif keep(KEYS[1], field, ms) then
    state = waits
  end
  out[#out + 1] = state
  out[#out + 1] = ttl
end
return out
