-- force_any: take a lock of whatever kind away from whoever holds it, and hand it
-- over or wake who waits, as its own unlock does.
--
-- KEYS[1..12], ARGV[1..6]  as in any_lock
-- KEYS[13]  redlatch_wait:{lock}
-- ARGV[7]   '' = all holds of any kind; 'lock' = of a plain or fair lock; 'rw' = of a read-write
--           lock; 'read' or 'write' = those of this mode of it
-- ARGV[8]   '' = whoever holds it; '1' = the owners from ARGV[11] on, perhaps none
-- ARGV[9]   what the names of the channels begin with on which clients are called
-- ARGV[10]  '1' = the receivers of a message can be counted
-- ARGV[11…]  the owners to evict, at most 1,000
--
-- RETURN   {1, kind, n, error, field...}  n holds were ended; up to 16 of their fields. kind as in
--              inspect; error: what the server said when it refused the message or the next
--              one's hold, '' = nothing
--          {0, kind, error}  nothing was held (in this mode); who waits all the same was woken, unless
--                           an owner was given or the server refused the message: error, else ''
--          {-1}             the key is no lock and was not touched
--          {-4, kind}       it is a lock of another kind than asked for; nothing was touched
--          {-2, kind, field}  held by somebody else than the owners given; nothing was touched
--
-- The reads of a writer are left to it when only its write lock is taken away, and
-- the other way round. The readers' timeout keys go when their holders notice, or by
-- their TTL.
--
-- Bound: of the readers those are looked at that are evicted by name, and to see for how long the
-- others stay at most 1,000 of them. If there are more the lock lasts for as long as before.
--
-- Twice: the second run finds the lock free, or frees its next holder: an operator's
-- command. With owners given it ends those acquisitions or nothing: a field of ours
-- names one acquisition.
local kind, mode = kind_of()
if kind == OTHER then return {-1} end
local want, only = ARGV[7], ARGV[8] ~= '' and {}
for i = 11, #ARGV do only[ARGV[i]] = true end
local refused = ''
if want ~= '' and (kind == RW) ~= (want ~= 'lock') then
  if call('EXISTS', LOCK) == 1 then return {-4, kind} end
  kind = NONE -- somebody waits for a lock of another kind: none of our business
end

local function send(channel, message)
  local sent = pcall(ARGV[1], channel, message)
  if type(sent) == 'table' and sent.err then refused = sent.err end
end

-- Who is next is looked up before anything is taken away: a server that refuses that refuses all.
local head, next_want
if kind == FAIR then head, next_want = first_waiter() end

-- Nobody holds it: whoever sleeps shall look.
local function tell(message)
  if kind == RW then
    local free = call('EXISTS', LOCK) == 0
    send(ARGV[5], message)
    if not free or not readers_turn(TURN) then
      local _, bad = call_writer(WRITERS, MARKS, '', not free, ARGV[1], ARGV[10])
      if bad then refused = bad.err end
    end
    return
  end
  if head then
    local bad = hand_over(head, next_want)
    if bad then refused = bad.err end
  end
  if call('EXISTS', LOCK) == 0 then
    send(ARGV[4], '0')
    local called = wake(KEYS[13], pcall('ZPOPMIN', KEYS[13]), ARGV[9], ARGV[1], ARGV[10], 64)
    if type(called) == 'table' then refused = called.err end
  end
end

if call('EXISTS', LOCK) == 0 then
  if not only or not next(only) then
    if kind == NONE then send(ARGV[5], '1') end
    tell('1')
  end
  return {0, kind, refused}
end

-- What goes and what stays: of many readers all, or one by name; whoever else holds it has a few
-- fields.
local holds = call('HLEN', LOCK) - (kind == RW and 1 or 0)
local readers, some = kind == RW and mode == 'read', nil
if not readers and holds > 64 then return {-1} end -- one owner's: two as a rule
if readers and (only or want == 'write' or holds > 64) then
  some = call('HSCAN', LOCK, '0', 'COUNT', 16)[2]
else
  some = call('HGETALL', LOCK)
end
local gone, write_gone, other, writer = {}, false, nil, nil -- gone: those that go, or some of many
for i = 1, #some, 2 do
  local f = some[i]
  if f ~= 'mode' or kind ~= RW then
    if not is_hold(f, some[i + 1]) then return {-1} end
    local writes = mode == 'write' and string.sub(f, -6) == ':write'
    if writes then writer = f end
    local in_mode = want ~= 'read' and want ~= 'write' or (want == 'write') == writes
    if in_mode and (not only or only[f] or (writes and only[string.sub(f, 1, -7)])) then
      gone[#gone + 1] = f
      write_gone = write_gone or writes
    elseif in_mode then
      other = f
    end
  end
end
if readers and only and want ~= 'write' then
  gone = {}
  for f in pairs(only) do
    if f ~= 'mode' and call('HEXISTS', LOCK, f) == 1 then gone[#gone + 1] = f end
  end
end
local going = #gone
if readers and not only and want ~= 'write' then going = holds end
local stay = holds - going
if going == 0 then
  if other then return {-2, kind, other} end
  return {0, kind, refused}
end

local trace = pcall('GET', KEYS[6])
if type(trace) == 'string' then
  trace = string.sub(trace, 1, LONG)
  local whose = string.match(trace, '^%S+')
  for _, f in ipairs(gone) do
    if stay == 0 or f == whose or f == (whose or '') .. ':write' then pcall('DEL', KEYS[6]) end
  end
end

-- Makes a read-write lock last as long as the latest-ending hold that is left.
local function settle()
  for _, f in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', now, 'LIMIT', 0, MOST)) do
    call('ZREM', LEASES, f)
    call('HDEL', LOCK, f)
    if f == writer then call('HSET', LOCK, 'mode', 'read') end
  end
  local need = -2
  local last = call('ZRANGE', LEASES, -1, -1, 'WITHSCORES')
  if last[1] and call('HEXISTS', LOCK, last[1]) == 0 then
    call('DEL', LEASES) -- of an earlier life of the lock: see rwlock/doc.go
  elseif last[1] then
    need = lasts(last[2] - now)
    call('PEXPIRE', LEASES, need)
  end
  if call('HLEN', LOCK) - 1 > call('ZCARD', LEASES) then
    local others = foreign_reads(LOCK, LEASES, ARGV[6])
    if not others then return end
    need = math.max(need, others)
  end
  if need <= 0 then
    call('DEL', LOCK, LEASES)
  else
    local left = call('PTTL', LOCK)
    call('PEXPIRE', LOCK, left < 0 and need or math.min(need, math.max(left, 1)))
  end
end

if kind ~= RW or stay == 0 then
  call('DEL', LOCK)
  if kind == RW then call('DEL', LEASES) end
else
  for _, f in ipairs(gone) do
    call('HDEL', LOCK, f)
    call('ZREM', LEASES, f)
  end
  if write_gone then call('HSET', LOCK, 'mode', 'read') end
  -- else the end of a writer that stays must be known
  if mode ~= 'write' or write_gone or writer and call('ZSCORE', LEASES, writer) then settle() end
end
-- Whoever waits to read now enters before the next writer.
if write_gone and call('EXISTS', READERS) == 1 then pcall('RENAME', READERS, TURN) end
tell(mode == 'write' and '1' or '0') -- also when others stay: who waits was told a time that may be far too long now
local out = {1, kind, going, refused}
for i = 1, math.min(#gone, 16) do out[#out + 1] = gone[i] end
return out
