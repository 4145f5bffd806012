-- rw_write: take the write lock for a new owner (0 -> 1).
--
-- KEYS[1]  the lock
-- KEYS[2]  redlatch_void:{lock}
-- KEYS[3]  redlatch_rw_leases:{lock}
-- KEYS[4]  redlatch_rw_writers:{lock}
-- KEYS[5]  redlatch_rw_marks:{lock}
-- KEYS[6]  redlatch_rw_turn:{lock}
-- KEYS[7]  the fencing counter, if ARGV[4] is not ''
-- KEYS[last]  redlatch_trace:{lock}, if ARGV[5] is not ''
-- ARGV[1]  field of this acquisition (without ':write')
-- ARGV[2]  lease, ms
-- ARGV[3]  how long its mark lives, ms; '0' = leave none
-- ARGV[4]  '' = not fenced; else the counter's TTL in ms, '-1' = no TTL
-- ARGV[5]  '' = no trace; '-' = read the holder's only; else the traceparent to leave
-- ARGV[6]  PUBLISH or SPUBLISH
-- ARGV[7]  '0' = the receivers of a message can't be counted
-- ARGV[8]  the acquisition among those that wait; absent = ARGV[1]
--
-- RETURN   {1, token}  acquired
--          {2, token}  held by this very acquisition: a retry; the lease was set again
--          {0, pttl, holder, trace, look, others}  busy; pttl in ms, -1 = no TTL, -2 = nobody holds it
--                      (it is the turn of readers, or of another writer, who was called); look: for how many ms it
--                      can't be admitted at least without a message, 0 = as pttl says; others 1 = there are
--                      readers of another library, whose release calls nobody. '', 0 and 0 at the end are left out
--          {-1}        this acquisition was given up before
--          {-3}        the key is no lock; it was not touched
--          1 and 2 come as a bare integer when there is no token, and for {1, token} a token
--          over 1,000
--
-- Twice: the field names the acquisition, so a second run finds its own field
-- and changes nothing but the lease; a mark keeps the time of its first run, if that has passed. A
-- run that comes after the acquisition was given up finds its field in the void set. Another
-- writer's mark is only ever made to count for less long; it is called once.
--
-- Bound: at most 164 marks of writers, and 100 leases, that have ended are taken away.
local LOCK, LEASES, own, lease, fence, trace = KEYS[1], KEYS[3], ARGV[1], tonumber(ARGV[2]), ARGV[4], ARGV[5]
local field, entry, others = own .. ':write', ARGV[8] or own, 0

-- 0: nobody holds it; more than 3: the void set is there.
local found = call('EXISTS', LOCK, LEASES, KEYS[6], KEYS[2], KEYS[2], KEYS[2], KEYS[2])

local function refuse(ms, holder)
  if ARGV[3] ~= '0' then
    -- Four times in the life of a mark the keys are given more time, and marks that have ended go.
    local lives = tonumber(ARGV[3])
    local due = call('PTTL', KEYS[4]) < lives or call('PTTL', KEYS[5]) < lives
    if due then
      for _, f in ipairs(pcall('ZRANGEBYSCORE', KEYS[5], '-inf', now, 'LIMIT', 0, 100)) do
        pcall('ZREM', KEYS[4], f)
        pcall('ZREM', KEYS[5], f)
      end
    end
    local us = clock[1] * 1000000 + clock[2]
    local set = pcall('ZADD', KEYS[4], 'NX', us, entry)
    -- Its time is yet to come, since the clock was set back: it would be behind all who come until then.
    if set == 0 and tonumber(pcall('ZSCORE', KEYS[4], entry) or 0) > us then set = pcall('ZADD', KEYS[4], us, entry) end
    if type(set) ~= 'table' then set = pcall('ZADD', KEYS[5], now + lives, entry) end
    if due and type(set) ~= 'table' then
      for i = 4, 5 do
        if call('PTTL', KEYS[i]) < lives then pcall('PEXPIRE', KEYS[i], lives + math.floor(lives / 4)) end
      end
    end
  end
  local several, left = not holder, ''
  if several and found > 0 then holder = call('ZRANGE', LEASES, -1, -1)[1] end
  if not holder or #holder > LONG then holder = '' end
  if trace ~= '' then
    -- traces stands here
    holder, left = traced(LOCK, KEYS[#KEYS], trace, holder, several)
  end
  local ttl = found == 0 and -2 or call('PTTL', LOCK)
  if others ~= 0 then return {0, ttl, holder, left, lasts(ms), others} end
  if left == '' and ms == 0 then return {0, ttl, holder} end
  return {0, ttl, holder, left, lasts(ms)}
end

-- The token, 0 = it is not fenced; or an error.
local function number(again)
  if fence == '' then return 0 end
  -- counter stands here
  -- token stands here
  return token(KEYS[7], fence, again, clock)
end

if found > 0 and found < 4 and pcall('HLEN', LOCK) == 2 then
  -- the most frequent answer: one writer has it
  local all = call('HGETALL', LOCK)
  local f, count = all[3], all[4]
  if count and f ~= field and all[1] == 'mode' and all[2] == 'write' and #f <= LONG and #count < 16 and
     string.match(f, '^%x+%-%x+%-%x+%-%x+%-%x+:[^ ]+:write$') and string.match(count, '^%d+$') then
    return refuse(0, string.sub(f, 1, -7))
  end
end
if found > 0 then
  local last = pcall('ZRANGE', LEASES, -1, -1)[1]
  local head = pcall('HMGET', LOCK, 'mode', field, last or field)
  if head.err then return replaced(head) and {-3} or head end
  local mode, mine = head[1], head[2]
  if found > 3 and call('SISMEMBER', KEYS[2], own) == 1 then return {-1} end
  if mine then
    -- first, since it takes no memory: whoever holds the lock may tell so again
    call('PEXPIRE', LOCK, math.max(call('PTTL', LOCK), lease))
    call('ZADD', LEASES, math.max(now + lease, tonumber(call('ZSCORE', LEASES, field) or '0')), field)
    if call('PTTL', LEASES) < lease then call('PEXPIRE', LEASES, lease) end
    local n = number(true)
    if type(n) == 'table' then return n end
    return n > 0 and {2, n} or 2
  end
  local none, ms, known, holder = false, 0, nil, nil
  if mode == 'read' then
    -- Ours whose leases have ended are not in the way, whatever TTL another library
    -- has given the lock meanwhile.
    local ended = 0
    for _, f in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', now, 'LIMIT', 0, 100)) do
      call('ZREM', LEASES, f)
      ended = ended + call('HDEL', LOCK, f)
    end
    local fields = call('HLEN', LOCK) - 1
    none = fields == 0 and ended > 0
    if none then
      known = true
    else
      -- as long as somebody waits who wants to know
      local ttl = call('PTTL', LOCK)
      if ttl > call('PTTL', LEASES) then call('PEXPIRE', LEASES, ttl) end
      -- If there are only ours the last of them says when to look.
      local last = call('ZRANGE', LEASES, -1, -1, 'WITHSCORES')
      known = last[1] and call('HEXISTS', LOCK, last[1]) == 1
      if known and fields == call('ZCARD', LEASES) then
        ms = last[2] - now
        if ttl >= 0 then ms = math.min(ms, ttl) end
        ms = math.max(1, ms)
      else
        others = 1
      end
    end
  elseif mode == 'write' and head[3] and string.sub(last, -6) == ':write' then
    holder, known = string.sub(last, 1, -7), true
  elseif mode == 'write' then
    if call('HLEN', LOCK) > 64 then return {-3} end
    for _, f in ipairs(call('HKEYS', LOCK)) do -- one owner's: three as a rule
      if string.sub(f, -6) == ':write' then holder = string.sub(f, 1, -7) end
    end
    known = holder and call('ZSCORE', LEASES, holder .. ':write')
  elseif mode then
    return {-3}
  end
  -- One of ours in the hash says that it is a lock; else its entries must.
  if not known then
    -- hold stands here
    -- whose stands here
    local no
    if mode then
      if not rw_holder(LOCK) then return {-3} end
    else
      holder, no = whose(LOCK, '') -- a plain lock?
      if no then return no end
    end
  end
  if none then
    call('DEL', LOCK)
  elseif mode or holder then
    return refuse(ms, holder)
  end
end

local mine = ARGV[3] == '0' and own or string.sub(own, 1, 37)
local head = pcall('ZRANGE', KEYS[4], 0, 0)
local waits = head[1]
local behind = head.err or waits and waits ~= mine and string.sub(waits, 1, 37) ~= mine
if found > 0 or behind then
  -- rw_call stands here
  -- Readers that waited at the last write unlock enter before the next writer.
  local turn = found > 0 and readers_turn(KEYS[6])
  if turn then return refuse(turn) end
  -- Writers enter in the order of their marks. The first one is called if it was not; if it does not come within a
  -- moment, its mark counts no more until it is refreshed. In a process the order is that of its line, whose first one
  -- asks: several that asked at the same time may have left their marks in another one.
  local first = behind and call_writer(KEYS[4], KEYS[5], mine, false, ARGV[6], ARGV[7], head)
  if first then return refuse(first) end
  if behind then waits = first == nil end -- false: nobody is on that list
end

local n = number(false)
if type(n) == 'table' then return n end
call('HSET', LOCK, 'mode', 'write', field, '1')
local set = pcall('PEXPIRE', LOCK, ARGV[2])
if type(set) == 'table' then
  -- refused (an ACL that forgot it): a lock without a lease must not stay
  call('DEL', LOCK)
  return set
end
if found > 0 then call('DEL', LEASES) end
call('ZADD', LEASES, now + lease, field)
call('PEXPIRE', LEASES, ARGV[2])
if waits then pcall('ZREM', KEYS[4], entry) end
pcall('ZREM', KEYS[5], entry)
if trace ~= '' and trace ~= '-' then pcall('SET', KEYS[#KEYS], own .. ' ' .. trace, 'PX', ARGV[2]) end
if n > 1000 then return n end
return n > 0 and {1, n} or 1
