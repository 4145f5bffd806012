-- enlist: the client of a refused acquisition goes on the list of those that wait for the
-- lock; it is put where that is so.
--
-- KEYS     none of its own

-- place: '' = it does not wait. A number of µs = the place that it was called with, and has lost:
-- it stands in front, among others that have lost as they came. Else it goes to the end, if it is
-- not on the list. A list that nobody needs any more ends after a minute. A client's id is the first
-- 36 characters of its fields. Returns an error that lasts (a permission is missing).
local function enlist(list, field, place)
  if place == '' then return end
  local client, t, set = string.sub(field, 1, 36), redis.call('TIME'), nil
  local us, came = t[1] * 1000000 + t[2], tonumber(place)
  for _ = 1, 2 do
    if came and came > 1 and came <= us then
      set = redis.pcall('ZADD', list, came - 4e15, client)
    else
      set = redis.pcall('ZADD', list, 'NX', us, client)
      -- It stands there with a time that is yet to come, since the clock was set back: behind all who come until then.
      if set == 0 and (tonumber(redis.pcall('ZADD', list, 'XX', 'INCR', 0, client)) or 0) > us then
        redis.pcall('ZADD', list, us, client)
      end
    end
    if type(set) ~= 'table' or not string.find(set.err, 'WRONGTYPE', 1, true) then break end
    redis.pcall('DEL', list) -- not ours, whatever it is
  end
  redis.pcall('PEXPIRE', list, '60000')
  if type(set) ~= 'table' then return end
  -- A server that takes no writes for the moment answers all the same: whoever waits looks by itself.
  for _, why in ipairs({'OOM', 'MISCONF', 'READONLY', 'NOREPLICAS'}) do
    if string.find(set.err, why, 1, true) then return end
  end
  return set
end
