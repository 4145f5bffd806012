-- rw_read: take the read lock for a new hold of an owner (0 -> 1).
--
-- KEYS[1]  the lock, a hash: mode, <client>:<owner> -> reads, <client>:<owner>:write -> writes
-- KEYS[2]  redlatch_void:{lock}
-- KEYS[3]  redlatch_rw_leases:{lock}
-- KEYS[4]  {lock}:<field>:rwlock_timeout:1
-- KEYS[5]  redlatch_rw_writers:{lock}
-- KEYS[6]  redlatch_rw_marks:{lock}
-- KEYS[7]  redlatch_rw_readers:{lock}
-- KEYS[8]  redlatch_rw_turn:{lock}
-- KEYS[9]  the fencing counter, if ARGV[7] is not ''
-- KEYS[last]  redlatch_trace:{lock}, if ARGV[8] is not ''
-- ARGV[1]  field of this acquisition
-- ARGV[2]  lease, ms
-- ARGV[3]  when this acquisition was refused first, µs of the server; '' = never
-- ARGV[4]  field of the owner's write hold, with ':write'; '' = none
-- ARGV[5]  '1' = enter although writers wait
-- ARGV[6]  how long a place among the waiting readers lives, ms; '0' = leave none
-- ARGV[7]  '' = not fenced; else the counter's TTL in ms, '-1' = no TTL
-- ARGV[8]  '' = no trace; '-' = read the holder's only; else the traceparent to leave
-- ARGV[9]  PUBLISH or SPUBLISH
-- ARGV[10] '0' = the receivers of a message can't be counted
-- ARGV[11] the acquisition among those that wait; absent = ARGV[1]
--
-- RETURN   {1, token}  acquired, and no writer waits that it would stand back for; token is the
--                      last writer's, 0 = there was none
--          {2, token}  held by this very acquisition: a retry; the lease was set again
--          {3, token}  acquired in its turn, while writers wait
--          {4, token, room}  acquired, while writers wait that came later: the first of them
--                      so many µs after this acquisition was refused first
--          {0, pttl, holder, trace, look, now, marked}  not now; pttl in ms, -1 = no TTL, -2 =
--                      nobody holds it; look: for how many ms it can't be admitted at least without
--                      a message, 0 = as pttl says; now in µs, for ARGV[3]; marked 1 = nothing but
--                      the mark of a writer that came before is in the way
--          {-1}        this acquisition was given up before
--          {-3}        the key is no lock; it was not touched
--          1, 2 and 3 come as a bare integer when it is not fenced
--
-- At a free lock whose end has called nobody (it was a TTL's, or by hand) it calls the first writer, as a release does.
--
-- Bound: at most 10 dead readers and 1,064 dead writers are taken away; behind more writers it
-- answers {0, …} with a look of 1 ms.
--
-- Twice: the field names the acquisition, so a second run finds its own field
-- and sets nothing but the lease. A run that comes after the acquisition was
-- given up finds its field in the void set. A place is a member of a set.
local LOCK, LEASES, OWN, field, lease = KEYS[1], KEYS[3], KEYS[4], ARGV[1], tonumber(ARGV[2])
local entry = ARGV[11] or field
local us = clock[1] * 1000000 + clock[2]
local mode, mine, other, stale
if call('EXISTS', LOCK, KEYS[2]) > 0 then
  local head = pcall('HMGET', LOCK, 'mode', field)
  if head.err then return replaced(head) and {-3} or head end
  mode, mine = head[1], head[2]
  if mode and mode ~= 'read' and mode ~= 'write' then return {-3} end
  if call('SISMEMBER', KEYS[2], field) == 1 then return {-1} end
  local known = mine
  if mode and not mine then
    -- The set of leases belongs to this life of the hash only if any one of its members is in
    -- it: they were all added during one life (see rwlock/doc.go). Then the hash is a lock, too.
    local one = call('ZRANGE', LEASES, 0, 0)[1]
    known = one and call('HEXISTS', LOCK, one) == 1
    stale = one and not known
  end
  if not known then
    -- hold stands here
    -- whose stands here
    local no
    if mode then
      if not rw_holder(LOCK) then return {-3} end
    else
      other, no = whose(LOCK, '') -- a plain lock?
      if no then return no end
    end
  end
end

local function raise(key, ms)
  if call('PTTL', key) < ms then return pcall('PEXPIRE', key, ms) end
end

local function enter(code, room)
  local ends, n = now + lease, 0
  if ARGV[7] ~= '' then
    -- counter stands here
    n = counter(KEYS[9])
    if type(n) == 'table' then return n end
  end
  if mine then
    -- first, since it takes no memory: whoever holds the lock may tell so again
    call('PEXPIRE', LOCK, math.max(call('PTTL', LOCK), lease))
    ends = now + lasts(math.max(ends, tonumber(call('ZSCORE', LEASES, field) or '0')) - now)
    call('SET', OWN, '1', 'PX', ends - now)
  elseif mode then
    if stale then call('DEL', LEASES) end
    call('SET', OWN, '1', 'PX', ARGV[2])
    call('HSET', LOCK, field, 1)
    local set = raise(LOCK, lease)
    if type(set) == 'table' then
      -- refused (an ACL that forgot it): the lock would end with another's lease
      call('HDEL', LOCK, field)
      call('DEL', OWN)
      return set
    end
  else
    call('SET', OWN, '1', 'PX', ARGV[2])
    call('HSET', LOCK, 'mode', 'read', field, 1)
    local set = pcall('PEXPIRE', LOCK, ARGV[2])
    if type(set) == 'table' then
      -- refused (an ACL that forgot it): a lock without a lease must not stay
      call('DEL', LOCK, OWN)
      return set
    end
    call('DEL', LEASES)
  end
  call('ZADD', LEASES, ends, field)
  raise(LEASES, lease)
  if mode == 'write' then
    -- Its own reads whose leases have ended, which nobody else takes away.
    for _, f in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', now, 'LIMIT', 0, 10)) do
      if string.sub(f, -6) ~= ':write' then
        call('HDEL', LOCK, f)
        call('ZREM', LEASES, f)
      end
    end
  end
  -- also without ARGV[3]: the answer that refused it may have been lost
  if call('EXISTS', KEYS[7], KEYS[8]) > 0 then
    call('ZREM', KEYS[7], entry)
    call('ZREM', KEYS[8], entry)
    if ARGV[6] ~= '0' then raise(KEYS[8], tonumber(ARGV[6])) end -- see readers_turn
  end
  if ARGV[8] ~= '' then
    -- traces stands here
    share_trace(LOCK, KEYS[#KEYS], field, ARGV[8], ARGV[2])
  end
  if ARGV[7] == '' then return room and {code, 0, room} or code end
  if n > 0 and ARGV[7] ~= '-1' then raise(KEYS[9], tonumber(ARGV[7])) end
  return {code, n, room}
end

local function refuse(ms, holder, marked)
  if ARGV[6] ~= '0' then
    local at = KEYS[7]
    if call('ZSCORE', KEYS[8], entry) then at = KEYS[8] end
    for _, f in ipairs(call('ZRANGEBYSCORE', at, '-inf', now, 'LIMIT', 0, 10)) do call('ZREM', at, f) end
    local set = pcall('ZADD', at, now + ARGV[6], entry)
    if type(set) ~= 'table' then raise(at, tonumber(ARGV[6])) end
  end
  local several, left = not holder, nil
  if several then holder = call('ZRANGE', LEASES, -1, -1)[1] end
  if holder and #holder > LONG then holder = '' end
  -- traces stands here
  holder, left = traced(LOCK, KEYS[#KEYS], ARGV[8], holder, several)
  return {0, call('PTTL', LOCK), holder or '', left, lasts(ms), us, marked or 0}
end

if mine then return enter(2) end
if mode == 'write' then
  if ARGV[4] ~= '' and call('HEXISTS', LOCK, ARGV[4]) == 1 then return enter(1) end
  if call('HLEN', LOCK) > 64 then return {-3} end
  local writer
  for _, f in ipairs(call('HKEYS', LOCK)) do -- one owner's: three as a rule
    if string.sub(f, -6) == ':write' then writer = f end
  end
  local ends = writer and call('ZSCORE', LEASES, writer)
  if not ends then return refuse(0, writer and string.sub(writer, 1, -7)) end
  if tonumber(ends) > now then return refuse(ends - now, string.sub(writer, 1, -7)) end
  -- its lease has ended, and only a read hold of its owner keeps the hash
  call('HDEL', LOCK, writer)
  call('ZREM', LEASES, writer)
  if call('HLEN', LOCK) == 1 then
    call('DEL', LOCK, LEASES) -- it has outlived the lease by a moment
    mode = nil
  else
    call('HSET', LOCK, 'mode', 'read')
    mode = 'read'
  end
end
if other then return refuse(0, other) end

if ARGV[5] ~= '1' and call('EXISTS', KEYS[5]) == 1 then
  if call('ZSCORE', KEYS[8], entry) then return enter(3) end
  local came = us
  if ARGV[3] ~= '' then came = tonumber(ARGV[3]) end
  local called = mode -- or nobody is to be
  for i = 0, MOST do
    local first = call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')
    if not first[1] then break end
    if i == MOST then return refuse(1) end
    if tonumber(first[2]) >= came then return enter(4, first[2] - came) end
    local alive = tonumber(call('ZSCORE', KEYS[6], first[1]) or '0')
    if alive > now then
      -- rw_call stands here
      if called or readers_turn(KEYS[8]) then return refuse(alive - now, nil, 1) end
      called = true
      call_writer(KEYS[5], KEYS[6], field, false, ARGV[9], ARGV[10])
    elseif tonumber(call('ZRANGE', KEYS[6], -1, -1, 'WITHSCORES')[2] or '0') <= now then
      call('DEL', KEYS[5], KEYS[6]) -- all are dead
      break
    else
      call('ZREM', KEYS[5], first[1])
      call('ZREM', KEYS[6], first[1])
    end
  end
end
return enter(1)
