-- fair_scores: who waits at a fair lock besides a living first one of ours, and the scores; it is put
-- where that matters, behind fair_keys.
--
-- KEYS     as in fair_keys
--
-- Bound: scores are lowered within what is left of the budget: behind more waiters they stay as far
-- up as they are.

-- What is not ours, and does not look like a waiter of Redisson, <uuid>:<owner>, is dropped where a dead one is.
local function redissons(field)
  return string.byte(field, 37) == 58 and string.byte(field, 9) == 45 and #field <= LONG and not ours(field)
end

-- Until when a waiter of ours counts as alive, and its place; 0, as of a dead one, if its want can't be read.
local function alive_until(want)
  local alive, place = parts(want)
  return tonumber(alive or 0), tonumber(place or 0)
end

-- A score as a number with which one can count on: nil = none, and not farther away than a century.
local function bounded(score)
  score = tonumber(score or nil)
  return score and math.max(math.min(score, now + CENTURY), 0)
end
local function score_of(field) return bounded(call('ZSCORE', SCORES, field)) end

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
      if want then score = math.max(alive_until(want), score) end
      call('ZADD', SCORES, score, f)
    end
  end
end
