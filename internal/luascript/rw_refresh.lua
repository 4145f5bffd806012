-- rw_refresh: keep the places of any number of readers, or writers, that wait for
-- one lock.
--
-- KEYS[1]  writers: redlatch_rw_marks:{lock}; readers: redlatch_rw_readers:{lock}
-- KEYS[2]  writers: redlatch_rw_writers:{lock}; readers: redlatch_rw_turn:{lock}
-- KEYS[3]  the lock
-- KEYS[4]  redlatch_rw_leases:{lock}
-- KEYS[5]  readers: redlatch_rw_writers:{lock}
-- KEYS[6]  readers: redlatch_rw_marks:{lock}
-- ARGV[1]  'w' or 'r'; then of each place
--          the acquisition among those that wait
--          how long its place lives from now, ms
--          readers: when it was refused first, µs of the server; '' = it stands back for no writer
--
-- RETURN   two integers per place: state, for how long the lock is held yet (ms; -1: not
--          known, -2: it is free); that is its TTL, or for writers the end of the last of our
--          readers if there are no others
--          state 2  a reader whose turn it is
--                3  a reader that waits while the lock is free or others read, and no living writer's mark
--                   is before it: what kept it out has gone, perhaps without a message
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
local each, enters, first = 2, false, nil
if ARGV[1] == 'r' then
  each, enters = 3, ttl == -2 or pcall('HGET', KEYS[3], 'mode') == 'read'
  -- since when the first writer waits, if its mark lives; what has ended is taken away by who asks
  local writer = pcall('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')
  local lives = writer[1] and pcall('ZSCORE', KEYS[6], writer[1])
  if type(lives) == 'string' and tonumber(lives) > now then first = tonumber(writer[2]) end
end
if ttl > 0 and ARGV[1] == 'w' then
  if ttl > call('PTTL', KEYS[4]) then pcall('PEXPIRE', KEYS[4], ttl) end
  local last = call('ZRANGE', KEYS[4], -1, -1, 'WITHSCORES')
  if last[1] and call('HLEN', KEYS[3]) - 1 == call('ZCARD', KEYS[4]) and
     call('HEXISTS', KEYS[3], last[1]) == 1 then
    ttl = math.max(1, math.min(ttl, last[2] - now))
  end
end
local out = {}
for i = 2, #ARGV, each do
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
    state = enters and not (first and first < (tonumber(ARGV[i + 2]) or 0)) and 3 or 1
  end
  out[#out + 1] = state
  out[#out + 1] = ttl
end
return out
