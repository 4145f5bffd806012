-- fair_queue: the front of a fair lock's queue, and how a free lock is handed over; it is
-- put in front of the scripts that may do so, behind token, enter and fair_keys.
--
-- KEYS[5], KEYS[6], ARGV[1..3]  as in fair_keys
--
-- Bound: it drops up to half of the budget of dead waiters, about eight commands each; if there are
-- more the lock stays free, and the script says that it is to be asked again at once. Scores are
-- lowered within what is left: behind more waiters they stay as far up as they are.

-- Takes an amount off the scores of the waiters from an index of the list on.
-- Ours keep what they need themselves. Redisson does so for its own at each
-- acquisition; here only where one of ours has passed a far score on, which is
-- where Redisson's waiters are in the queue.
local function lower(from, by)
  if budget <= 0 then return end
  for _, f in ipairs(call('LRANGE', QUEUE, from, from + budget - 1)) do
    budget = budget - 1
    local score = score_of(f) or 0
    if score > 100000000000 then
      score = score - by
      local want = ours(f) and call('HGET', WANTS, f)
      if want then score = math.max(score, alive_until(want)) end
      call('ZADD', SCORES, score, f)
    end
  end
end

-- A score stands on that of the waiter in front, and Redisson takes its waiters'
-- waits off again when they acquire. What ours have on top must go with them, or
-- scores would grow with every change between the two kinds, and a dead waiter of
-- Redisson would block the queue for as long. Up to this much (ms) may stay.
local FAR = 15000

local function denied(answer) return type(answer) == 'table' and answer.err end

-- Takes a waiter off both the scores and the list; the command for the list stands last.
-- Where the server refuses one of the two neither is done, and a want that is gone
-- already is put back: a score without an entry would keep the keys for ever, an entry
-- without a score stops Redisson's waiters.
local function take_off(field, score, want, ...)
  local unscored = pcall('ZREM', SCORES, field)
  if not denied(unscored) then
    if not denied(pcall(...)) then return end
    if score then call('ZADD', SCORES, score, field) end
  end
  if want then call('HSET', WANTS, field, want) end
  -- refused again: the script ends with that error
  if denied(unscored) then call('ZREM', SCORES, field) else call(...) end
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
    if want then on_top = on_top - math.max(alive_until(want) - now, 0) end
  end
  call('HDEL', WANTS, head)
  return on_top > FAR and on_top or 0
end

local function drop_first(head, gone)
  local by = take_first(head, gone, 0)
  if by > 0 then lower(0, by) end
end

-- What the living first one of ours wants, once it has been found.
local its_client, its_id, its_left, its_place, its_skip, its_lease, its_fence, its_nonce, its_trace

local function lives(head, want)
  if not want or #head > LONG or #want > LONG then return false end
  its_left = (tonumber(string.sub(want, 1, 13)) or 0) - now
  if its_left <= 0 then return false end
  its_client, its_id = string.match(head, '^([^: ]*):[^: ]*%-([^ ]*)$')
  its_place, its_skip, its_lease, its_fence, its_nonce, its_trace = string.match(want, WANT)
  return its_id and its_place and string.byte(head, 37) == 58 and string.byte(head, 9) == 45
end

-- The first who may have the lock: who is dead, has left, is stale by
-- Redisson's rule or is no waiter at all is dropped. A waiter of Redisson that is
-- dropped may be alive; it is called, so that it looks again and queues up anew,
-- instead of sleeping on until the time that it was told last. The call gives it no
-- right: its own script decides. Nobody, and true: there are more to drop, and who is
-- first is not known yet.
local function first_waiter()
  local dropped, by = false, 0
  while true do
    local head, want, alive = call('LINDEX', QUEUE, 0), nil, false
    if not head then
      if dropped then call('DEL', WANTS) end
      return nil
    end
    local other = false
    if ours(head) then
      want = call('HGET', WANTS, head)
      alive = lives(head, want)
    elseif redissons(head) then
      other, alive = true, (score_of(head) or 0) - by > now
    end
    local more = not alive and budget <= MOST / 2
    if alive or more then
      if by > 0 then lower(0, by) end
      return not more and head or nil, want, more
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
local function hand_over(head, want)
  if not head then
    local more
    head, want, more = first_waiter()
    if not head then return nil, more and 1 or 0 end
  end
  local sent
  if not want then
    -- There may be nobody of ours left to do it.
    call('PEXPIRE', QUEUE, SHARED)
    call('PEXPIRE', SCORES, SHARED)
    sent = pcall(ARGV[1], ARGV[3] .. head, '0')
    return type(sent) == 'table' and sent, (score_of(head) or now) - now + 1
  end
  if its_left * 10 < tonumber(its_skip) then
    -- nearly dead: it takes the lock itself, or is dropped in a moment
    sent = pcall(ARGV[1], ARGV[2] .. its_client, its_id)
    return type(sent) == 'table' and sent, its_left + 1
  end
  local ms = lasts(math.min(its_left, tonumber(its_lease)))
  local n = token(KEYS[5], its_fence == '-' and '' or its_fence, false, clock)
  local refused = type(n) == 'table' and n or take(LOCK, head, ms)
  if refused then
    -- Its place stays, and it is called: its own try tells it why.
    pcall(ARGV[1], ARGV[2] .. its_client, its_id)
    return refused, 0
  end
  local dropped, why = protected(drop_first, head)
  if not dropped then
    -- Nor may it have the lock while it stands in the queue: it is called, too.
    call('HDEL', LOCK, head)
    pcall(ARGV[1], ARGV[2] .. its_client, its_id)
    return type(why) == 'table' and why or {err = tostring(why)}, 0
  end
  leave_trace(KEYS[6], head, its_trace, ms)
  sent = pcall(ARGV[1], ARGV[2] .. its_client, its_id .. ' ' .. its_place .. ' ' .. its_nonce .. ' ' ..
    string.format('%.0f', n) .. (its_trace ~= '' and giver ~= '' and ' ' .. giver or ''))
  return type(sent) == 'table' and sent, ms + 1
end
