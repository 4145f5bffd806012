-- raise_token: make a fencing counter at least as large as a quorum's token.
--
-- KEYS[1]  the fencing counter
-- ARGV[1]  the token
-- ARGV[2]  the counter's TTL in ms, '-1' = no TTL
--
-- RETURN   1  the counter is not below the token
--          or an error: it holds no token
--
-- Twice: a counter is only ever raised to a value.
local n = counter(KEYS[1])
if type(n) == 'table' then return n end
if n < tonumber(ARGV[1]) then
  if ARGV[2] == '-1' then
    redis.call('SET', KEYS[1], ARGV[1])
  else
    redis.call('SET', KEYS[1], ARGV[1], 'PX', kept(ARGV[1], ARGV[2], redis.call('TIME')))
  end
end
return 1
