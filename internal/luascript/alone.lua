-- alone: the hold of a lock that has one holder; it is put in front of the scripts that
-- look, behind hold.
--
-- KEYS     none of its own

-- The one hold of a plain or fair lock, and its count; nil when the key holds something else.
local function only_hold(lock)
  if call('TYPE', lock).ok ~= 'hash' or call('HLEN', lock) ~= 1 then return end
  local one = call('HGETALL', lock) -- nothing if the field has a TTL of its own that is over
  if #one == 2 and is_hold(one[1], one[2]) then return one[1], one[2] end
end
