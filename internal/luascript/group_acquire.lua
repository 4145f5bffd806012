-- group_acquire: take several plain locks of one slot, all or none.
--
-- KEYS     for each member what acquire.lua takes: the lock, redlatch_void:{lock},
--          the fencing counter and redlatch_trace:{lock} if asked for, redlatch_wait:{lock};
--          the lock alone for a member that its owner holds already
-- ARGV[1]  lease, ms
-- then for each member six:
--   1      how many of the KEYS are its own
--   2      field of the acquisition
--   3      '0' = take it; else it is held: the absolute count to reach
--   4      '' = not fenced; else the counter's TTL in ms, '-1' = no TTL
--   5      '' = no trace; '-' = read the holder's only; else the traceparent to leave
--   6      as ARGV[3] of acquire.lua
--
-- RETURN   {1, token, ...}   all are held now, a token per member (0 = none)
--          {2, token, ...}   the same, and some were held by this very
--                            acquisition: a retry; the leases were set again
--          {0, i, pttl, holder, trace, look}  member i (from 1) is busy, as acquire.lua says; its
--                            client goes on that one's list
--          {-1}              this acquisition was given up before
--          {-2, i}           member i is no longer held: nothing to re-enter
--          {-3, i}           the key of member i is no lock
--          No hold was written unless the first is 1 or 2.
--
-- Twice: the fields name the acquisition and the counts are absolute; a second
-- run finds its own fields and changes nothing but leases. A run that comes after
-- the acquisition was given up finds its field in a void set. Where nothing is to be
-- taken anew, only re-entered, it works when the server is out of memory.
local lease, some, k = ARGV[1], {}, 1
for a = 2, #ARGV, 6 do
  if ARGV[a + 2] == '0' then some[#some + 1], some[#some + 2] = KEYS[k], KEYS[k + 1] end
  k = k + ARGV[a]
end
-- As a rule all are free, and none was given up: one call says so.
local whose_is
if #some > MOST or #some > 0 and call('EXISTS', unpack(some)) > 0 then
  -- hold stands here
  -- whose stands here
  whose_is = look
end

local mine, again, new = {}, false, false
k = 1
for a = 2, #ARGV, 6 do
  local lock, field, count, place = KEYS[k], ARGV[a + 1], ARGV[a + 2], ARGV[a + 5]
  local i, after, holder, no = #mine + 1, k + ARGV[a], nil, nil
  if count ~= '0' then
    local held = pcall('HEXISTS', lock, field)
    if type(held) == 'table' and not replaced(held) then return held end
    if held ~= 1 then
      -- a write, though it changes nothing: a demoted master must not say "gone"
      local first = pcall('HDEL', lock, '')
      if type(first) == 'table' and not replaced(first) then return first end
      return {-2, i}
    end
    mine[i] = true
  else
    if whose_is then holder, no = whose_is(lock, KEYS[k + 1], field) end
    if no then
      if no[1] == -3 then no[2] = i end
      return no
    end
    if holder and holder ~= field then
      -- traces stands here
      -- enlist stands here
      return enlist(KEYS[after - 1], field, place) or
        {0, i, call('PTTL', lock), holder, read_trace(KEYS[after - 2], ARGV[a + 4])}
    end
    if not holder and place == 's' then
      -- enlist stands here
      return enlist(KEYS[after - 1], field, place) or {0, i, -2, '', '', 250}
    end
    mine[i] = holder ~= nil
    if holder then again = true else new = true end
  end
  k = after
end

-- Nothing has been written so far. If the server refuses a write (no memory, an
-- ACL), what was taken is given back: half a group must not stay.
local taken = {}
local function undo(err)
  for _, lock in ipairs(taken) do pcall('DEL', lock) end
  return err
end
local out = {again and 2 or 1}
k = 1
for a = 2, #ARGV, 6 do
  local lock, field, count, trace, place = KEYS[k], ARGV[a + 1], ARGV[a + 2], ARGV[a + 4], ARGV[a + 5]
  local i, after, refused = #out, k + ARGV[a], nil
  if i == 1 and not new then call('HDEL', lock, '') end
  local n = 0
  if ARGV[a + 3] ~= '' then
    -- counter stands here
    -- token stands here
    n = token(KEYS[k + 2], ARGV[a + 3], mine[i])
    if type(n) == 'table' then return undo(n) end
  end
  out[i + 1] = n
  if not mine[i] then
    refused = take(lock, field, lease)
    if not refused then
      taken[#taken + 1] = lock
      leave_trace(KEYS[after - 2], field, trace, lease)
    end
    if place ~= '' and place ~= '0' then pcall('ZREM', KEYS[after - 1], string.sub(field, 1, 36)) end
  else
    if count ~= '0' then refused = pcall('HSET', lock, field, count) end
    -- Written in any case: a WAIT behind it counts the writes of its own connection.
    if type(refused) ~= 'table' then refused = pcall('PEXPIRE', lock, math.max(call('PTTL', lock), tonumber(lease))) end
  end
  if type(refused) == 'table' then return undo(refused) end
  k = after
end
return out
