-- acquire: take a plain lock for a new owner (0 -> 1).
--
-- KEYS[1]  the lock, a hash: <client>:<owner> -> count
-- KEYS[2]  redlatch_void:{lock}, a set of fields given up
-- KEYS[3]  the fencing counter, if ARGV[4] is not ''
-- KEYS[next]  redlatch_trace:{lock}, if ARGV[5] is not ''
-- KEYS[last]  redlatch_wait:{lock}; not needed if ARGV[3] is ''
-- ARGV[1]  field of this acquisition
-- ARGV[2]  lease, ms
-- ARGV[3]  '' = refused, it does not wait. Else its client goes on the list: '0' or absent: it may be
--          new there; '1' it stands there, and is taken off with the lock; 's' others come first: it
--          goes on the list though the lock be free; else the place (µs) that it was called with
-- ARGV[4]  '' or absent = not fenced; else the counter's TTL in ms, '-1' = no TTL
-- ARGV[5]  '' or absent = no trace; '-' = read the holder's only; else the traceparent to leave
--
-- RETURN   {1, token}            acquired
--          {2, token}            held by this very acquisition: a retry; the lease was set again
--          {0, pttl, holder, trace, look}  busy; pttl in ms, -1 = the key has no TTL, -2 = it is
--                                free, and left to others; holder: also one of a read-write lock's, '' =
--                                not known; trace: '' or not there; look: not there, or after how many ms to look
--          {-1}                  this acquisition was given up before
--          {-3}                  the key is no lock; it was not touched
--          1 and 2 come as a bare integer when there is no token, and for {1, token} a token
--          over 1,000
--
-- Twice: the field names the acquisition, so a second run finds its own field
-- and changes nothing but the lease. A run that comes after the acquisition was
-- given up finds its field in the void set. A client stands on the list once; whom nobody
-- hears any more is taken off when it is called.
local LOCK, field, lease, n, busy = KEYS[1], ARGV[1], ARGV[2], 0, nil
local place, fence, trace = ARGV[3] or '0', ARGV[4] or '', ARGV[5] or ''
local found = redis.call('EXISTS', LOCK, KEYS[2])
if found > 0 and trace == '' and redis.pcall('HLEN', LOCK) == 1 then
  -- the most frequent answer of a busy lock, as whose has it
  local one = redis.call('HGETALL', LOCK)
  if #one == 2 and one[1] ~= field and #one[1] < 1025 and #one[2] < 16 and
     string.byte(one[1], 37) == 58 and string.byte(one[1], 9) == 45 and tonumber(one[2]) then
    busy = {0, redis.call('PTTL', LOCK), one[1]}
  end
end
if found == 0 and fence ~= '' and place ~= 's' then
  -- the usual token, as token has it: the clock is ahead of the counter
  local last, t = redis.pcall('GET', KEYS[3]), redis.call('TIME')
  local us = t[1] * 1000000 + t[2]
  if not last or type(last) == 'string' and #last == 16 and string.match(last, '^[1-9]%d*$') and tonumber(last) < us then
    local text, set = string.format('%.0f', us), nil
    if fence == '-1' then set = redis.pcall('SET', KEYS[3], text) else set = redis.pcall('SET', KEYS[3], text, 'PX', fence) end
    if set.err then return set end
    n = us
  end
end
if not busy and (found > 0 or fence ~= '' and n == 0 or place == 's') then
  -- common stands here
  local holder, no
  if found > 0 then
    -- hold stands here
    -- whose stands here
    holder, no = look(LOCK, KEYS[2], field)
  end
  if no then return no end
  if holder and holder ~= field then
    local left = trace ~= '' and pcall('GET', KEYS[#KEYS - 1])
    busy = {0, call('PTTL', LOCK), holder, type(left) == 'string' and #left <= SHOWN and left or ''}
  elseif not holder and place == 's' then
    busy = {0, -2, '', '', 250}
  elseif fence ~= '' then
    -- counter stands here
    -- token stands here
    n = token(KEYS[3], fence, holder)
    if type(n) == 'table' then return n end
  end
  if not busy and holder then
    -- Written in any case: a WAIT behind it counts the writes of its own connection.
    call('PEXPIRE', LOCK, math.max(call('PTTL', LOCK), tonumber(lease)))
    return n > 0 and {2, n} or 2
  end
end
if busy then
  if place == '' then return busy end
  -- enlist stands here
  return enlist(KEYS[#KEYS], field, place) or busy
end
redis.call('HSET', LOCK, field, '1')
local set = redis.pcall('PEXPIRE', LOCK, lease)
if type(set) == 'table' then
  -- refused (an ACL that forgot it): a lock without a lease must not stay
  redis.call('DEL', LOCK)
  return set
end
if trace ~= '' and trace ~= '-' then redis.pcall('SET', KEYS[#KEYS - 1], field .. ' ' .. trace, 'PX', lease) end
if place ~= '0' and place ~= '' then redis.pcall('ZREM', KEYS[#KEYS], string.sub(field, 1, 36)) end
if n > 1000 then return n end
return n > 0 and {1, n} or 1
