-- foreign: the leases of readers that are not redlatch's, whose keys can't be declared; it is put
-- in front of the scripts that ask for them, behind hold.
--
-- KEYS     none of its own
--
-- Beside KEYS it reads <prefix>:<field>:rwlock_timeout:<i>, i from 1 to the field's count.
local asked = 0 -- PTTLs, of at most MOST in a run

-- For how long a reader needs the lock: ms, -2 = not at all; nil = that would take too many
-- questions. Nobody nests so deep.
local function foreign_read(prefix, field, count)
  local n, longest = tonumber(count), -2
  if asked + n > MOST then return nil end
  asked = asked + n
  for i = n, 1, -1 do
    longest = math.max(longest, call('PTTL', prefix .. ':' .. field .. ':rwlock_timeout:' .. i))
  end
  return longest
end

-- For how long those of a lock need it that are not in the set of our leases: ms, -2 = not at all;
-- nil = that is not known, and the lock's TTL has to stay.
local function foreign_reads(lock, leases, prefix)
  if call('HLEN', lock) > MOST + 1 then return nil end
  local all, longest = call('HGETALL', lock), -2
  for i = 1, #all, 2 do
    if is_hold(all[i], all[i + 1]) and not call('ZSCORE', leases, all[i]) then
      local needs = foreign_read(prefix, all[i], all[i + 1])
      if not needs then return nil end
      longest = math.max(longest, needs)
    end
  end
  return longest
end
