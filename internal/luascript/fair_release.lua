-- fair_release: give a fair lock back, or leave its queue. The free lock goes to
-- the first in the queue. (A hold that stays, with a lower count, does not concern
-- the queue: that is release.lua's.)
--
-- KEYS, ARGV[1..3]  as in fair_queue
-- ARGV[4]  field of the acquisition
-- ARGV[5]  '0', or how long (ms) a late command of this acquisition must be refused
-- ARGV[6]  '1' = leave the queue, too
-- ARGV[7]  '1' = the acquisition left its trace beside the lock
--
-- RETURN   1           done
--          0           neither held by this acquisition nor in the queue; a lock that is free, as
--                      a release by one key leaves it, is handed over all the same
--          {2, error}  done, but the server refused the message or the next one's hold: that one
--                      keeps its place, and has been called
--
-- Twice: the second run finds the field gone; it can't touch another
-- acquisition, so the lock is handed over once. Works when the server is out of
-- memory: the first write takes none.
local field = ARGV[4]

-- Takes the marked entries off the list, all at once: that is paid for by as
-- many departures before it.
local function compact()
  local left = call('ZRANGEBYSCORE', SCORES, '-inf', '(100000000000')
  if #left < 64 or #left * 2 < call('LLEN', QUEUE) then return end
  local gone, stay = {}, {}
  for _, f in ipairs(left) do gone[f] = true end
  for _, f in ipairs(call('LRANGE', QUEUE, 0, -1)) do
    if not gone[f] then stay[#stay + 1] = f end
  end
  local ttl = call('PTTL', QUEUE)
  call('DEL', QUEUE)
  for i = 1, #stay, 1000 do
    call('RPUSH', QUEUE, unpack(stay, i, math.min(i + 999, #stay)))
  end
  if ttl > 0 then call('PEXPIRE', QUEUE, ttl) end
  call('ZREMRANGEBYSCORE', SCORES, '-inf', '(100000000000')
end

local function leave()
  local want = call('HGET', WANTS, field)
  local known = want and call('HDEL', WANTS, field) or 0
  local score = call('ZSCORE', SCORES, field)
  if not score then
    mend()
    return known
  end
  if call('LINDEX', QUEUE, 0) == field then
    drop_first(field, want)
  elseif call('LINDEX', QUEUE, -1) == field then
    -- The last entry is never a marked one: Redisson builds scores on it.
    local tail = field
    repeat
      take_off(tail, call('ZSCORE', SCORES, tail), tail == field and want, 'RPOP', QUEUE)
      tail = call('LINDEX', QUEUE, -1)
    until not tail or not ours(tail) or call('HEXISTS', WANTS, tail) == 1
  elseif call('LLEN', QUEUE) > 128 and not foreign(known) then
    call('ZADD', SCORES, 0, field)
    if call('ZCOUNT', SCORES, '-inf', '(100000000000') * 2 > call('LLEN', QUEUE) then compact() end
  else
    local at = call('LPOS', QUEUE, field)
    take_off(field, score, want, 'LREM', QUEUE, 1, field)
    if at then
      local front = tonumber(call('ZSCORE', SCORES, call('LINDEX', QUEUE, at - 1)) or '0')
      local on_top = tonumber(score) - math.max(front, now)
      if on_top > FAR then lower(at, on_top) end
    end
  end
  if call('EXISTS', QUEUE) == 0 then call('DEL', WANTS) end
  return 1
end

local held = pcall('HDEL', LOCK, field)
if replaced(held) then held = 0 end
if type(held) == 'table' then return held end
void(KEYS[7], field, ARGV[5])
giver = untrace(KEYS[6], field, ARGV[7]) or ''
local done = held == 1 and 1 or ARGV[6] == '1' and leave() or 0
if call('EXISTS', LOCK) == 0 then
  -- The lock is free whatever comes: an error of the hand-over is no error of the release.
  local ok, refused = protected(hand_over)
  if not ok and type(refused) ~= 'table' then refused = {err = tostring(refused)} end
  if refused and done == 1 then return {2, refused.err} end
end
return done
