-- fair_release: give a fair lock back, or leave its queue. The free lock goes to
-- the first in the queue. (A hold that stays, with a lower count, does not concern
-- the queue: that is release.lua's.)
--
-- KEYS, ARGV[1..3]  as in fair_keys
-- ARGV[4]  field of the acquisition
-- ARGV[5]  '0', or how long (ms) a late command of this acquisition must be refused; one that came before
--          this, when the hold was lost already, has made a place: that is left, too
-- ARGV[6]  '1' = leave the queue, too
-- ARGV[7]  '1' = the acquisition left its trace beside the lock
-- ARGV[8]  the acquisition among those that wait, absent = ARGV[4]. A grant of it is given back, whatever field it has:
--          the message may be under way, or the server back with older data have granted it again
--
-- RETURN   1           done
--          0           neither held by this acquisition nor, with ARGV[6], in the queue; a lock that is free, as
--                      a release by one key leaves it, is handed over all the same
--          {2, error}  done, but the server refused the message or the next one's hold: that one
--                      keeps its place, and has been called
--
-- Bound: as in fair_queue and fair_leave.
--
-- Twice: the second run finds the field gone; it can't touch another
-- acquisition, so the lock is handed over once. Works when the server is out of
-- memory: the first write takes none.
local field, entry = ARGV[4], ARGV[8] or ARGV[4]

local held = pcall('HDEL', LOCK, field)
if held == 0 and call('HLEN', LOCK) == 1 then
  local one = call('HGETALL', LOCK)[1]
  if one and string.sub(one .. '.', 1, #entry + 1) == entry .. '.' then field, held = one, call('HDEL', LOCK, one) end
end
if replaced(held) then held = 0 end
if type(held) == 'table' then return held end
if ARGV[5] ~= '0' or ARGV[7] == '1' then
  -- leave stands here
  void(KEYS[7], entry, ARGV[5])
  giver = untrace(KEYS[6], field, ARGV[7]) or ''
end
local done = held
if held == 0 and (ARGV[6] == '1' or ARGV[5] ~= '0') then
  -- fair_scores stands here
  -- fair_life stands here
  -- fair_mend stands here
  -- fair_leave stands here
  local left = leave(entry)
  if ARGV[6] == '1' then done = left end
end
if call('EXISTS', LOCK) == 0 then
  -- The lock is free whatever comes: an error of the hand-over is no error of the release.
  local ok, refused = protected(hand_over)
  if not ok and type(refused) ~= 'table' then refused = {err = tostring(refused)} end
  if refused and done == 1 then return {2, refused.err} end
end
return done
