-- group_release: give several plain locks of one slot back, each wholly or down
-- to a count.
--
-- KEYS     for each member what release.lua takes: the lock, and
--          redlatch_void:{lock} and redlatch_trace:{lock} if asked for
-- ARGV     for each member eight: how many of the KEYS are its own, then the
--          first seven of release.lua (field, count, lease in ms, channel,
--          PUBLISH or SPUBLISH, '0' or how long in ms late commands must be
--          refused, '1' = it left its trace)
--
-- RETURN   one integer per member:
--          1  done
--          0  not held by this acquisition
--          2  done, but the server refused the message
--          3  count > 0: done, but the lease ends later than is needed
--         -1  the server refused
--          and, if there are a 2 or a -1, the last error as a string
--          A server that refuses all writes (a demoted master, say) says so, as
--          an error.
--
-- Twice: as release.lua; a lease is never lowered here. A member that is gone, or whose key is of another type,
-- does not stop the others; all are free before the first message goes out.
local out, say, k, err = {}, {}, 1, nil
-- these refuse every write: nothing was done, and another try may find another server
local function none(e)
  for _, code in ipairs({'READONLY', 'NOREPLICAS', 'MISCONF'}) do
    if string.find(e, code, 1, true) then return true end
  end
end
local function number(answer)
  if type(answer) ~= 'table' then return answer end
  if string.find(answer.err, 'WRONGTYPE', 1, true) then return 0 end
  err = answer.err
  return -1
end
for a = 1, #ARGV, 8 do
  local i, lock, field, count, void = #out + 1, KEYS[k], ARGV[a + 1], ARGV[a + 2], ARGV[a + 6]
  if void ~= '0' then
    redis.pcall('SADD', KEYS[k + 1], field)
    redis.pcall('PEXPIRE', KEYS[k + 1], void)
  end
  if count ~= '0' then
    local held = redis.pcall('HGET', lock, field)
    -- a write, though it changes nothing: a demoted master must not say "gone"
    if not held then
      local w = redis.pcall('HDEL', lock, field)
      held = type(w) == 'table' and w
    end
    out[i] = not held and 0 or type(held) == 'table' and number(held) or 1
    if out[i] == 1 then
      if tonumber(held) > tonumber(count) then redis.pcall('HSET', lock, field, count) end
      if redis.call('PTTL', lock) > tonumber(ARGV[a + 3]) then
        out[i] = 3
      else
        redis.pcall('PEXPIRE', lock, ARGV[a + 3])
      end
    end
  else
    out[i] = number(redis.pcall('HDEL', lock, field))
    if out[i] == 1 then
      if ARGV[a + 7] == '1' then redis.pcall('DEL', KEYS[k + ARGV[a] - 1]) end
      say[#say + 1] = {i, ARGV[a + 5], ARGV[a + 4]}
    end
  end
  if i == 1 and out[1] == -1 and none(err) then return redis.error_reply(err) end
  k = k + ARGV[a]
end
for _, s in ipairs(say) do
  local sent = redis.pcall(s[2], s[3], '0')
  if type(sent) == 'table' and sent.err then
    out[s[1]], err = 2, sent.err
  end
end
if err then out[#out + 1] = err end
return out
