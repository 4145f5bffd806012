-- rw_refresh: keep the places of any number of waiting readers and writers of
-- one slot.
--
-- KEYS[3i-2]  a lock
-- KEYS[3i-1]  a writer: its redlatch_rw_marks; a reader: its redlatch_rw_readers
-- KEYS[3i]    a writer: its redlatch_rw_writers; a reader: its redlatch_rw_turn
-- ARGV[3i-2]  field of the acquisition
-- ARGV[3i-1]  'w' or 'r'
-- ARGV[3i]    how long the place lives from now, ms
--
-- RETURN   two integers per place: state, pttl of the lock (ms; -1 no TTL, -2 free)
--          state 2  a reader whose turn it is
--                1  it waits
--                0  the place is gone: it was silent for too long, or the server refused
--
-- Twice: a place that is gone is not made again; a time is set from the server's clock.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)

local function keep(key, field, ms)
  local at = redis.pcall('ZSCORE', key, field)
  if type(at) ~= 'string' then return false end
  if type(redis.pcall('ZADD', key, now + ms, field)) == 'table' then return false end
  if redis.call('PTTL', key) < ms then redis.pcall('PEXPIRE', key, ms) end
  return true
end

local out = {}
for i = 1, #KEYS / 3 do
  local field, ms = ARGV[3 * i - 2], tonumber(ARGV[3 * i])
  local state = 0
  if ARGV[3 * i - 1] == 'w' then
    if keep(KEYS[3 * i - 1], field, ms) and redis.call('ZSCORE', KEYS[3 * i], field) then
      state = 1
      if redis.call('PTTL', KEYS[3 * i]) < ms then redis.pcall('PEXPIRE', KEYS[3 * i], ms) end
    end
  elseif keep(KEYS[3 * i], field, ms) then
    state = 2
  elseif keep(KEYS[3 * i - 1], field, ms) then
    state = 1
  end
  out[2 * i - 1] = state
  out[2 * i] = redis.call('PTTL', KEYS[3 * i - 2])
end
return out
