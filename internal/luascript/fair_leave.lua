-- fair_leave: a waiter leaves a fair lock's queue; it is put where that is so, behind fair_queue,
-- fair_life and fair_mend.
--
-- KEYS     as in fair_keys

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
      tail = call('LINDEX', QUEUE, -1)
    until not tail or not ours(tail) or call('HEXISTS', WANTS, tail) == 1
  elseif call('LLEN', QUEUE) > 128 and not foreign(call('ZCARD', SCORES), call('HLEN', WANTS) + known) then
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
  if call('EXISTS', QUEUE) == 0 then
    call('DEL', WANTS)
  elseif foreign(call('ZCARD', SCORES), call('HLEN', WANTS)) then
    call('PEXPIRE', QUEUE, SHARED)
    call('PEXPIRE', SCORES, SHARED)
  end
  return 1
end
