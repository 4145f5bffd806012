-- token: fencing tokens; it is put in front of the scripts that acquire.
--
-- KEYS     none of its own

-- The token of an acquisition: the next one, or for a retry the one that it got. ttl
-- is the counter's in ms, '-1' = none, '' = not fenced: 0 then. t is the server's
-- time, if it is known. Or an error.
local function token(key, ttl, again, t)
  if ttl == '' then return 0 end
  local n = pcall('GET', key)
  if type(n) == 'table' then return n end
  n = tonumber(n or '0')
  if not n then return redis.error_reply('ERR the fencing counter holds no number') end
  if again and n > 0 then return n end
  t = t or call('TIME')
  n = math.max(n + 1, t[1] * 1000000 + t[2])
  local set
  if ttl == '-1' then
    set = pcall('SET', key, string.format('%.0f', n))
  else
    set = pcall('SET', key, string.format('%.0f', n), 'PX', ttl)
  end
  return set.err and set or n
end
