-- token: fencing tokens; it is put in front of the scripts that acquire.
--
-- KEYS     none of its own

-- The token of an acquisition: the next one, or for a retry the one that it got. ttl
-- is the counter's in ms, '-1' = none, '' = not fenced: 0 then. t is the server's
-- time, if it is known. Or an error.
local function token(key, ttl, again, t)
  if ttl == '' then return 0 end
  local n = counter(key)
  if type(n) == 'table' or again and n > 0 then return n end
  t = t or call('TIME')
  n = math.max(n + 1, t[1] * 1000000 + t[2])
  if n > LAST_TOKEN then return redis.error_reply('ERR the fencing counter is used up: no token is larger than 2^53-1') end
  local set
  if ttl == '-1' then
    set = pcall('SET', key, string.format('%.0f', n))
  else
    set = pcall('SET', key, string.format('%.0f', n), 'PX', kept(n, ttl, t))
  end
  return set.err and set or n
end
