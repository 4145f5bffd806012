-- rw_read_release: give a read hold back; or undo an acquisition that may have left
-- one, or a place.
--
-- KEYS[1]  the lock
-- KEYS[2]  redlatch_void:{lock}
-- KEYS[3]  redlatch_rw_leases:{lock}
-- KEYS[4]  {lock}:<field>:rwlock_timeout:1
-- KEYS[5]  redlatch_rw_readers:{lock}
-- KEYS[6]  redlatch_rw_turn:{lock}
-- KEYS[7]  redlatch_rw_writers:{lock}
-- KEYS[8]  redlatch_rw_marks:{lock}
-- KEYS[last]  redlatch_trace:{lock}, if ARGV[6] is '1'
-- ARGV[1]  field of the acquisition
-- ARGV[2]  channel
-- ARGV[3]  PUBLISH or SPUBLISH
-- ARGV[4]  '0', or how long (ms) a late command of this acquisition must be refused
-- ARGV[5]  what the names of all timeout keys begin with: {lock}, or the lock's name with a tag
-- ARGV[6]  '1' = the acquisition left its trace
-- ARGV[7]  '1' = undo; also where a late command may have come
-- ARGV[8]  '0' = the receivers of a message can't be counted
-- ARGV[9]  the acquisition among those that wait; absent = ARGV[1]
--
-- If the lock is free then, and it is no other reader's turn, the first writer that waits is called. It is also
-- called, to look, if the lock will be free far sooner than it was told, or only readers of another library, whose
-- release calls nobody, are left.
--
-- Beside KEYS it reads <ARGV[5]>:<field>:rwlock_timeout:<i> of readers that are
-- not redlatch's: only when there are any and the leaver was the last to end.
--
-- RETURN   1           done
--          0           not held by this acquisition; what a release by one key left was cleaned up
--          {2, error}  done, but the server refused the message
--
-- Bound: at most 1,000 leases that are over are taken away, 1,000 fields and 1,000 timeout keys of
-- foreign readers looked at. If there are more the lock lasts for as long as before.
--
-- Twice: the second run finds the field gone; it can't touch another acquisition, not
-- even one of the same owner. Works when the server is out of memory: the first write
-- takes none.
local LOCK, LEASES, field, message, look = KEYS[1], KEYS[3], ARGV[1], nil, false

-- The lock is free. The set may have gone with its last member: while a cluster moves the slot, a
-- command that names a key which is not there fails.
local function gone()
  call('DEL', LOCK)
  pcall('DEL', LEASES)
end

-- makes the lock last as long as the latest-ending hold; true: there is none
local function settle()
  if call('HGET', LOCK, 'mode') == 'write' then
    if call('HLEN', LOCK) > 64 then return false end -- no lock any more
    -- the leaver reads under its own write lock, whose end must be known
    for _, f in ipairs(call('HKEYS', LOCK)) do
      if string.sub(f, -6) == ':write' and not call('ZSCORE', LEASES, f) then return false end
    end
  end
  for _, f in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', now, 'LIMIT', 0, MOST)) do
    call('ZREM', LEASES, f)
    call('HDEL', LOCK, f)
    if string.sub(f, -6) == ':write' then
      call('HSET', LOCK, 'mode', 'read')
      message = '1' -- as at its unlock: the readers that wait look again
    end
  end
  local ttl, need = call('PTTL', LOCK), -2
  local last = call('ZRANGE', LEASES, -1, -1, 'WITHSCORES')
  if last[1] then
    need = lasts(last[2] - now)
    call('PEXPIRE', LEASES, need)
  end
  if call('HLEN', LOCK) - 1 > call('ZCARD', LEASES) then
    -- hold stands here
    -- foreign stands here
    local others = foreign_reads(LOCK, LEASES, ARGV[5])
    look = not last[1]
    if not others then return false end
    need = math.max(need, others)
  end
  if need <= 0 then
    gone()
    return true
  end
  call('PEXPIRE', LOCK, need)
  -- A writer that waits was told a time that is far too long now. (Redisson's leave no mark.)
  if need * 2 < ttl then message = message or (call('HGET', LOCK, 'mode') == 'write' and '1' or '0') end
  return false
end

local done = pcall('HDEL', LOCK, field)
if replaced(done) then done = 0 end
if type(done) == 'table' then return done end
if ARGV[4] ~= '0' or ARGV[6] == '1' then
  -- leave stands here
  void(KEYS[2], field, ARGV[4])
  untrace(KEYS[#KEYS], field, ARGV[6])
end
local ends = pcall('ZSCORE', LEASES, field)
if replaced(ends) then ends = call('DEL', LEASES) - 1 end -- not ours, whatever it is: as if nothing had been noted
if type(ends) == 'table' then return ends end
ends = tonumber(ends or 0)
call('ZREM', LEASES, field)
call('DEL', KEYS[4])
local free = false
if done == 1 then
  if call('HLEN', LOCK) == 1 then
    gone()
    free = true
  elseif ends == 0 or ends >= tonumber(call('ZRANGE', LEASES, -1, -1, 'WITHSCORES')[2] or '0') then
    -- none of ours outlasts it
    free = settle()
  end
  if free then message = message or '0' end
  if ends > 0 and ends <= now then done = 0 end
else
  free = call('EXISTS', LOCK) == 0
  if free and ends > 0 then message = '0' end
end
if ARGV[7] == '1' then
  local entry = ARGV[9] or field
  local was = call('ZREM', KEYS[6], entry)
  call('ZREM', KEYS[5], entry)
  -- it was the last whose turn the writers stand back for
  if was == 1 and free and call('EXISTS', KEYS[6]) == 0 then message = '0' end
end
local refused
if (free or message or look) and call('EXISTS', KEYS[7]) == 1 then
  -- rw_call stands here
  if not free or not readers_turn(KEYS[6]) then
    local comes
    comes, refused = call_writer(KEYS[7], KEYS[8], '', not free, ARGV[3], ARGV[8])
    if free and not comes and call('EXISTS', KEYS[5]) == 1 then message = '1' end -- they stood back for dead ones
  end
end
local sent = message and pcall(ARGV[3], ARGV[2], message)
if done == 1 and refused then return {2, refused.err} end
if done == 1 and type(sent) == 'table' then return {2, sent.err} end
return done
