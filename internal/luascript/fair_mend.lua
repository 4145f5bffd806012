-- fair_mend: a fair lock's queue that has lost a key; it is put where that is seen, behind
-- fair_keys.
--
-- KEYS, ARGV[1..3]  as in fair_keys
--
-- Bound: it calls at most 1,000; more of Redisson's look again when the time ends that they were
-- told.

-- The list and the scores change together, always. One that is there alone has lost the
-- other (dropped for memory, a DEL by hand): nobody would be called any more, or Redisson's
-- scripts would stop at an entry without a score. Both begin anew: ours are put back by
-- their refreshes, Redisson's are called and queue up again.
local function mend()
  if call('EXISTS', QUEUE, SCORES) ~= 1 then return end
  local left = call('LRANGE', QUEUE, 0, MOST - 1)
  if #left == 0 then left = call('ZRANGEBYSCORE', SCORES, '-inf', '+inf', 'LIMIT', 0, MOST) end
  call('DEL', QUEUE, SCORES)
  for _, f in ipairs(left) do
    if redissons(f) then pcall(ARGV[1], ARGV[3] .. f, '0') end
  end
end
