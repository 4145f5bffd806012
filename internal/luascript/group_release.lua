-- group_release: give several plain locks of one slot back, each wholly or down
-- to a count.
--
-- KEYS     for each member what release.lua takes: the lock, and
--          redlatch_void:{lock} and redlatch_trace:{lock} if asked for
-- ARGV     for each member seven: how many of the KEYS are its own, then those of
--          release.lua (field, count, channel, PUBLISH or SPUBLISH, '0' or how long in
--          ms late commands must be refused, '1' = it left its trace)
--
-- RETURN   a code and a text per member, the text '' where there is nothing to say:
--          1  done
--          0  not held by this acquisition
--          2  done, but the server refused the message: the text says why
--         -1  the server refused: the text is its error
--
-- Twice: as release.lua. A member that is gone, whose key is of another type, or that is
-- refused, does not stop the others; all are free before the first message goes out.
local out, say, i, k = {}, {}, 1, 1
for a = 1, #ARGV, 7 do
  local lock, field, count, last = KEYS[k], ARGV[a + 1], ARGV[a + 2], KEYS[k + ARGV[a] - 1]
  local done
  if count ~= '0' then
    done = shrink(lock, field, count)
  else
    done = pcall('HDEL', lock, field)
    if replaced(done) then done = 0 end
    if type(done) ~= 'table' then
      void(KEYS[k + 1], field, ARGV[a + 5])
      untrace(last, field, ARGV[a + 6])
      if done == 1 then say[#say + 1] = {i, ARGV[a + 4], ARGV[a + 3]} end
    end
  end
  if type(done) == 'table' then
    out[i], out[i + 1] = -1, done.err
  else
    out[i], out[i + 1] = done, ''
  end
  i, k = i + 2, k + ARGV[a]
end
for _, s in ipairs(say) do
  local sent = pcall(s[2], s[3], '0')
  if type(sent) == 'table' then out[s[1]], out[s[1] + 1] = 2, sent.err end
end
return out
