-- acquire: take a plain lock for a new owner (0 -> 1).
--
-- KEYS[1]  the lock, a hash: <client>:<owner> -> count
-- KEYS[2]  redlatch_void:{lock}, a set of fields given up
-- KEYS[3]  the fencing counter, if ARGV[3] is not ''
-- KEYS[last]  redlatch_trace:{lock}, if ARGV[4] is not ''
-- ARGV[1]  field of this acquisition
-- ARGV[2]  lease, ms
-- ARGV[3]  '' = not fenced; else the counter's TTL in ms, '-1' = no TTL
-- ARGV[4]  '' = no trace; '-' = read the holder's only; else the traceparent to leave
--
-- RETURN   {1, token}            acquired
--          {2, token}            held by this very acquisition: a retry; the lease was set again
--          {0, pttl, holder, trace}  busy; pttl in ms, -1 = the key has no TTL; holder '' = a
--                                read-write lock is held there
--          {-1}                  this acquisition was given up before
--          {-3}                  the key is no lock; it was not touched
--          1 and 2 come as a bare integer when there is no token
--
-- Twice: the field names the acquisition, so a second run finds its own field
-- and changes nothing but the lease. A run that comes after the acquisition was
-- given up finds its field in the void set.
local LOCK, field, lease, fence, trace = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local holder, no = look(LOCK, KEYS[2], field)
if no then return no end
local n = 0
if not holder then
  if fence ~= '' then n = token(KEYS[3], fence) end
  if type(n) == 'table' then return n end
  local refused = take(LOCK, field, lease)
  if refused then return refused end
  leave_trace(KEYS[#KEYS], field, trace, lease)
  return n > 0 and {1, n} or 1
end
if holder == field then
  -- Written in any case: a WAIT behind it counts the writes of its own connection.
  call('PEXPIRE', LOCK, math.max(call('PTTL', LOCK), tonumber(lease)))
  n = token(KEYS[3], fence, true)
  if type(n) == 'table' then return n end
  return n > 0 and {2, n} or 2
end
return {0, call('PTTL', LOCK), holder, read_trace(KEYS[#KEYS], trace)}
