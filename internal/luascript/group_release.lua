-- group_release: give several plain locks of one slot back, each wholly or down
-- to a count.
--
-- KEYS     for each member what release.lua takes: the lock,
--          redlatch_void:{lock}, and redlatch_trace:{lock} if it left its trace
-- ARGV     for each member seven: how many of the KEYS are its own, then the six
--          of release.lua (field, count, lease in ms, channel, PUBLISH or
--          SPUBLISH, '0' or how long in ms late commands must be refused)
--
-- RETURN   one integer per member:
--          1  done
--          0  not held by this acquisition
--          2  done, but the server refused the message
--
-- Twice: as release.lua. A member that is gone, or whose key is of another type,
-- does not stop the others; all are free before the first message goes out.
local out, say, k = {}, {}, 1
for a = 1, #ARGV, 7 do
  local i, lock, field, count = #out + 1, KEYS[k], ARGV[a + 1], ARGV[a + 2]
  if ARGV[a + 6] ~= '0' then
    redis.pcall('SADD', KEYS[k + 1], field)
    redis.pcall('PEXPIRE', KEYS[k + 1], ARGV[a + 6])
  end
  if count ~= '0' then
    out[i] = redis.pcall('HEXISTS', lock, field) == 1 and 1 or 0
    if out[i] == 1 then
      redis.pcall('HSET', lock, field, count)
      redis.call('PEXPIRE', lock, ARGV[a + 3])
    end
  else
    out[i] = redis.pcall('HDEL', lock, field) == 1 and 1 or 0
    if out[i] == 1 then
      if ARGV[a] == '3' then redis.pcall('DEL', KEYS[k + 2]) end
      say[#say + 1] = {i, ARGV[a + 5], ARGV[a + 4]}
    end
  end
  k = k + ARGV[a]
end
for _, s in ipairs(say) do
  local sent = redis.pcall(s[2], s[3], '0')
  if type(sent) == 'table' and sent.err then out[s[1]] = 2 end
end
return out
