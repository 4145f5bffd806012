-- fair_queue: the front of a fair lock's queue, and how a free lock is handed over; it is
-- put in front of the scripts that may do so, behind token, enter and fair_keys.
--
-- KEYS[5], KEYS[6], ARGV[1..3]  as in fair_keys
--
-- Bound: it drops up to half of the budget of dead waiters, about eight commands each; if there are
-- more the lock stays free, and the script says that it is to be asked again at once.

-- A score stands on that of the waiter in front, and Redisson takes its waiters'
-- waits off again when they acquire. What ours have on top must go with them, or
-- scores would grow with every change between the two kinds, and a dead waiter of
-- Redisson would block the queue for as long. Up to this much (ms) may stay.
local FAR = 15000

-- Takes a waiter off both the scores and the list; the command for the list stands last.
-- Where the server refuses one of the two neither is done, and a want that is gone
-- already is put back: a score without an entry would keep the keys for ever, an entry
-- without a score stops Redisson's waiters.
local function take_off(field, score, want, ...)
  local scored = type(pcall('ZREM', SCORES, field)) ~= 'table'
  if scored then
    if type(pcall(...)) ~= 'table' then return end
    if score then call('ZADD', SCORES, score, field) end
  end
  if want then call('HSET', WANTS, field, want) end
  -- refused again: the script ends with that error
  if scored then call(...) else call('ZREM', SCORES, field) end
end

-- Takes the first off, whose want may be gone already. Returns what it has on top, once all scores
-- have been lowered by so much.
local function take_first(head, gone, lowered)
  local score = call('ZSCORE', SCORES, head)
  take_off(head, score, gone, 'LPOP', QUEUE)
  local on_top = score and ours(head) and tonumber(score) - lowered - now or 0
  if on_top > FAR then
    on_top = lasts(on_top)
    -- A skip time may be long; waiters of ours behind have no more than it on top.
    local want = call('HGET', WANTS, head)
    if want then on_top = on_top - math.max(tonumber(parts(want) or 0) - now, 0) end
  end
  call('HDEL', WANTS, head)
  return on_top > FAR and on_top or 0
end

local function drop_first(head, gone)
  local by = take_first(head, gone, 0)
  if by > 0 then
    -- fair_scores stands here
    lower(0, by)
  end
end

-- The first who may have the lock: who is dead, has left, is stale by
-- Redisson's rule or is no waiter at all is dropped. A waiter of Redisson that is
-- dropped may be alive; it is called, so that it looks again and queues up anew,
-- instead of sleeping on until the time that it was told last. The call gives it no
-- right: its own script decides. Of one of ours also its client, its id and the parts of
-- its want, in a table. Nobody, and true: there are more to drop, and who is first is not
-- known yet.
local function first_waiter()
  local dropped, by = false, 0
  while true do
    local head, its, alive = call('LINDEX', QUEUE, '0'), nil, false
    if not head then
      if dropped then call('DEL', WANTS) end
      return nil
    end
    local want = ours(head) and call('HGET', WANTS, head)
    if want and #head <= LONG and string.byte(head, 37) == 58 and string.byte(head, 9) == 45 then
      local id = string.match(head, '^[^: ]*%-([^ ]*)$', 38)
      its = {string.sub(head, 1, 36), id, parts(want)}
      alive = id and its[3] and its[3] - now > 0
    end
    if alive and by == 0 then return head, its end
    -- fair_scores stands here
    local other = redissons(head)
    if other then alive = (score_of(head) or 0) - by > now end
    local more = not alive and budget <= MOST / 2
    if alive or more then
      if by > 0 then lower(0, by) end
      if more then return nil, nil, true end
      return head, its
    end
    if other then pcall(ARGV[1], ARGV[3] .. head, '0') end
    by = by + take_first(head, nil, by)
    dropped, budget = true, budget - 1
  end
end

-- Who gives the lock back, with its trace, '' = not known: the next one is told, if
-- its own acquisition is traced.
local giver = ''

-- Gives the free lock to the first in the queue: writes the hold of one of ours
-- that is known to be alive, calls any other. Its lease ends no later than the
-- time at which it would be skipped. Returns an error of the server, if any, and
-- after how many ms to look again (0: not known).
local function hand_over(head, its)
  if not head then
    local more
    head, its, more = first_waiter()
    if not head then return nil, more and 1 or 0 end
  end
  local sent
  if not its then
    -- fair_scores stands here
    -- There may be nobody of ours left to do it.
    call('PEXPIRE', QUEUE, SHARED)
    call('PEXPIRE', SCORES, SHARED)
    sent = pcall(ARGV[1], ARGV[3] .. head, '0')
    return type(sent) == 'table' and sent, (score_of(head) or now) - now + 1
  end
  local client, id, alive, place, skip, lease, fence, nonce, trace = unpack(its)
  local left = alive - now
  if left * 10 < tonumber(skip) then
    -- nearly dead: it takes the lock itself, or is dropped in a moment
    sent = pcall(ARGV[1], ARGV[2] .. client, id)
    return type(sent) == 'table' and sent, left + 1
  end
  local ms = lasts(math.min(left, tonumber(lease)))
  local n = '0'
  if fence ~= '-' then
    -- counter stands here
    -- token stands here
    n = token(KEYS[5], fence, false, clock)
  end
  -- its id begins with the time at which it began to wait
  local dot = string.find(id, '.', 1, true) or 1
  local waited = string.format('%d', math.max(0, now - (tonumber(string.sub(id, 1, dot - 1), 36) or now)))
  local as = waited ~= '0' and head .. '.' .. waited or head
  local refused = type(n) == 'table' and n or take(LOCK, as, ms)
  if refused then
    -- Its place stays, and it is called: its own try tells it why.
    pcall(ARGV[1], ARGV[2] .. client, id)
    return refused, 0
  end
  local dropped, why = protected(drop_first, head)
  if not dropped then
    -- Nor may it have the lock while it stands in the queue: it is called, too.
    call('HDEL', LOCK, as)
    pcall(ARGV[1], ARGV[2] .. client, id)
    return type(why) == 'table' and why or {err = tostring(why)}, 0
  end
  leave_trace(KEYS[6], as, trace, ms)
  sent = pcall(ARGV[1], ARGV[2] .. client, id .. ' ' .. place .. ' ' .. nonce .. ' ' ..
    (n == '0' and n or string.format('%.0f', n)) .. ' ' .. waited .. (trace ~= '' and giver ~= '' and ' ' .. giver or ''))
  return type(sent) == 'table' and sent, ms + 1
end
