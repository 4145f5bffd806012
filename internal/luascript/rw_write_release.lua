-- rw_write_release: give the write lock back; or undo an acquisition that may have
-- left it, or a mark.
--
-- KEYS[1]  the lock
-- KEYS[2]  redlatch_void:{lock}
-- KEYS[3]  redlatch_rw_leases:{lock}
-- KEYS[4]  redlatch_rw_readers:{lock}
-- KEYS[5]  redlatch_rw_turn:{lock}
-- KEYS[6]  redlatch_rw_writers:{lock}
-- KEYS[7]  redlatch_rw_marks:{lock}
-- KEYS[last]  redlatch_trace:{lock}, if ARGV[5] is '1'
-- ARGV[1]  field of the acquisition (without ':write')
-- ARGV[2]  channel
-- ARGV[3]  PUBLISH or SPUBLISH
-- ARGV[4]  '0', or how long (ms) a late command of this acquisition must be refused
-- ARGV[5]  '1' = the acquisition left its trace
-- ARGV[6]  '1' = undo; also where a late command may have come
-- ARGV[7]  '0' = the receivers of a message can't be counted
-- ARGV[8]  the acquisition among those that wait; absent = ARGV[1]
--
-- If the lock is free then, and it is no reader's turn, the first writer that waits is called.
--
-- RETURN   1           done
--          0           not held by this acquisition; what a release by one key left was cleaned up
--          {2, error}  done, but the server refused the message
--
-- Bound: at most 1,000 leases that are over, and 64 dead writers, are taken away.
--
-- Twice: the second run finds the field gone; it can't touch another acquisition, not
-- even one of the same owner. Works when the server is out of memory: the first write
-- takes none.
local LOCK, LEASES, own, message = KEYS[1], KEYS[3], ARGV[1], nil
local field = own .. ':write'

local function time()
  -- clock stands here
  return now
end

-- The reads of the writer that stay: the lock lasts as long as the last of them.
local function settle(now)
  for _, f in ipairs(call('ZRANGEBYSCORE', LEASES, '-inf', now, 'LIMIT', 0, MOST)) do
    call('ZREM', LEASES, f)
    call('HDEL', LOCK, f)
  end
  local last = call('ZRANGE', LEASES, -1, -1, 'WITHSCORES')
  if not last[1] then return end
  call('PEXPIRE', LOCK, lasts(last[2] - now))
  call('PEXPIRE', LEASES, lasts(last[2] - now))
end

local done = pcall('HDEL', LOCK, field)
if replaced(done) then done = 0 end
if type(done) == 'table' then return done end
if ARGV[4] ~= '0' or ARGV[5] == '1' then
  -- leave stands here
  void(KEYS[2], own, ARGV[4])
  untrace(KEYS[#KEYS], own, ARGV[5])
end
local free, known = false, 0
if done == 1 then
  local fields = call('HLEN', LOCK)
  if fields > 1 then
    call('ZREM', LEASES, field)
    settle(time())
    fields = call('HLEN', LOCK)
  end
  if fields > 1 then
    call('HSET', LOCK, 'mode', 'read')
  else
    free = true
    -- while a cluster moves the slot this fails if one of them is not there; see rw_read_release
    if type(pcall('DEL', LOCK, LEASES)) == 'table' then
      call('DEL', LOCK)
      pcall('DEL', LEASES)
    end
  end
else
  known = call('ZREM', LEASES, field)
  free = call('EXISTS', LOCK) == 0
end
local waits = call('EXISTS', KEYS[4], KEYS[4], KEYS[5], KEYS[5], KEYS[6])
local readers = waits > 1 -- that wait, or have their turn; else at most writers
if done == 1 or known == 1 and free then
  -- Whoever waits to read now enters before the next writer.
  if readers and call('EXISTS', KEYS[4]) == 1 then pcall('RENAME', KEYS[4], KEYS[5]) end
  message = '1'
end
local left = false
if ARGV[6] == '1' then
  local entry = ARGV[8] or own
  pcall('ZREM', KEYS[7], entry)
  left = pcall('ZREM', KEYS[6], entry) == 1
  -- readers that stood back for this writer alone enter
  if left and call('EXISTS', KEYS[4]) == 1 and pcall('HGET', LOCK, 'mode') ~= 'write' then message = '1' end
end
local refused
if waits > 0 and (free or left) then
  local now = time()
  -- rw_call stands here
  local others = not free and call('EXISTS', LEASES) == 0 -- somebody must listen for their release
  if free and not (readers and readers_turn(KEYS[5])) or others then
    local comes
    comes, refused = call_writer(KEYS[6], KEYS[7], '', others, ARGV[3], ARGV[7])
    if free and not comes and readers and call('EXISTS', KEYS[4]) == 1 then message = '1' end -- they stood back for dead ones
  end
end
local sent = message and pcall(ARGV[3], ARGV[2], message)
if done == 1 and refused then return {2, refused.err} end
if done == 1 and type(sent) == 'table' then return {2, sent.err} end
return done
