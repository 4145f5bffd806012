-- fair_leave: a waiter leaves a fair lock's queue; it is put where that is so, behind fair_queue,
-- fair_life and fair_mend.
--
-- KEYS     as in fair_keys
--
-- Bound: up to 1,000 marked entries at the end of the list go, and two others with a search by the
-- server itself, about 10 ns an entry.

-- More than half of the list are never marked entries: who leaves one takes off as many.
local function thin_out()
  for _, f in ipairs(call('ZRANGEBYSCORE', SCORES, '-inf', '(100000000000', 'LIMIT', 0, 2)) do
    if call('ZCOUNT', SCORES, '-inf', '(100000000000') * 2 <= call('LLEN', QUEUE) then return end
    take_off(f, '0', nil, 'LREM', QUEUE, 1, f)
  end
end

local function leave(field)
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
      budget = budget - 1
      tail = call('LINDEX', QUEUE, -1)
    until not tail or not ours(tail) or call('HEXISTS', WANTS, tail) == 1 or budget <= 0
    if tail and budget <= 0 and ours(tail) then call('ZADD', SCORES, bounded(score), tail) end
  elseif call('LLEN', QUEUE) > 128 and not foreign(call('ZCARD', SCORES), call('HLEN', WANTS) + known) then
    call('ZADD', SCORES, 0, field)
    thin_out()
  else
    local at = call('LPOS', QUEUE, field)
    take_off(field, score, want, 'LREM', QUEUE, 1, field)
    if at then
      local front = score_of(call('LINDEX', QUEUE, at - 1)) or 0
      local on_top = bounded(score) - math.max(front, now)
      if on_top > FAR then lower(at, on_top) end
    end
  end
  if call('EXISTS', QUEUE) == 0 then
    call('DEL', WANTS)
  elseif foreign(call('ZCARD', SCORES), call('HLEN', WANTS)) then
    call('PEXPIRE', QUEUE, SHARED)
    call('PEXPIRE', SCORES, SHARED)
  end
  return 1
end
