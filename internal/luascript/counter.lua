-- counter: reading a fencing counter; it is put in front of the scripts that do.
--
-- KEYS     none of its own

-- The largest token: from here on, a number that counts in doubles stays the same.
local LAST_TOKEN = 9007199254740991

-- For how long (ms) a counter that stands at n is kept: for its TTL, and until the clock has passed it,
-- which may be behind: it was set back, or n is another server's. t is the server's time.
local function kept(n, ttl, t)
  return string.format('%.0f', math.max(ttl, (n - t[1] * 1000000 - t[2]) / 1000 + 1))
end

-- What a fencing counter stands at, 0 = there is none; or an error.
local function counter(key)
  local text = redis.pcall('GET', key)
  if type(text) == 'table' then return text end
  if not text then return 0 end
  local n = #text < 17 and string.match(text, '^[1-9]%d*$') and tonumber(text)
  if n and n <= LAST_TOKEN then return n end
  return redis.error_reply('ERR the fencing counter holds no number from 1 to 2^53-1: delete it')
end
