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
--   6      as ARGV[5] of acquire.lua
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
local lease = tonumber(ARGV[1])
local members, k, again, new = {}, 1, false, false
for a = 2, #ARGV, 6 do
  local m = {
    lock = KEYS[k], last = KEYS[k + ARGV[a] - 2], list = KEYS[k + ARGV[a] - 1], counter = KEYS[k + 2],
    field = ARGV[a + 1], count = ARGV[a + 2], fence = ARGV[a + 3], trace = ARGV[a + 4], place = ARGV[a + 5],
  }
  members[#members + 1] = m
  if m.count ~= '0' then
    local held = pcall('HEXISTS', m.lock, m.field)
    if type(held) == 'table' and not replaced(held) then return held end
    if held ~= 1 then
      -- a write, though it changes nothing: a demoted master must not say "gone"
      local first = pcall('HDEL', m.lock, '')
      if type(first) == 'table' and not replaced(first) then return first end
      return {-2, #members}
    end
    m.mine = true
  else
    local holder, no
    if call('EXISTS', m.lock, KEYS[k + 1]) > 0 then holder, no = look(m.lock, KEYS[k + 1], m.field) end
    if no then
      if no[1] == -3 then no[2] = #members end
      return no
    end
    if holder and holder ~= m.field then
      return enlist(m.list, m.field, m.place) or {0, #members, call('PTTL', m.lock), holder, read_trace(m.last, m.trace)}
    end
    if not holder and m.place == 's' then
      return enlist(m.list, m.field, m.place) or {0, #members, -2, '', '', 250}
    end
    m.mine = holder ~= nil
    if m.mine then again = true else new = true end
  end
  k = k + ARGV[a]
end

-- Nothing has been written so far. If the server refuses a write (no memory, an
-- ACL), what was taken is given back: half a group must not stay.
local function undo(upto, err)
  for j = 1, upto do
    if not members[j].mine then pcall('DEL', members[j].lock) end
  end
  return err
end
if not new then call('HDEL', members[1].lock, '') end
local out = {again and 2 or 1}
for i, m in ipairs(members) do
  local n, refused = token(m.counter, m.fence, m.mine), nil
  if type(n) == 'table' then return undo(i - 1, n) end
  out[i + 1] = n
  if not m.mine then
    refused = take(m.lock, m.field, lease)
    if not refused then leave_trace(m.last, m.field, m.trace, lease) end
    if m.place ~= '' and m.place ~= '0' then pcall('ZREM', m.list, string.sub(m.field, 1, 36)) end
  else
    if m.count ~= '0' then refused = pcall('HSET', m.lock, m.field, m.count) end
    -- Written in any case: a WAIT behind it counts the writes of its own connection.
    if type(refused) ~= 'table' then refused = pcall('PEXPIRE', m.lock, math.max(call('PTTL', m.lock), lease)) end
  end
  if type(refused) == 'table' then return undo(i - 1, refused) end
end
return out
