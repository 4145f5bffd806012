-- group_release: give several plain locks of one slot back, each wholly or down
-- to a count.
--
-- KEYS     for each member what release.lua takes: the lock, and
--          redlatch_void:{lock}, redlatch_trace:{lock} and redlatch_wait:{lock} if asked for
-- ARGV     for each member nine: how many of the KEYS are its own, then those of
--          release.lua (field, count, channel, PUBLISH or SPUBLISH, what is done with this
--          client's place, '0' or how long in ms late commands must be refused, '1' = it left its
--          trace, '0' = receivers can't be counted), '' where one of them is absent
--
-- RETURN   a code and a text per member, the text '' where there is nothing to say:
--          1  done; the text: as a number, whom it called, as release.lua says
--          0  not held by this acquisition
--          2  done, but the server refused the message: the text says why
--         -1  the server refused: the text is its error
--
-- Twice: as release.lua. A member that is gone, whose key is of another type, or that is
-- refused, does not stop the others; all are free before the first message goes out.
local out, say, lists, i, k = {}, {}, {}, 1, 1
for a = 1, #ARGV, 9 do
  local lock, field, count, own = KEYS[k], ARGV[a + 1], ARGV[a + 2], k + ARGV[a] - 1
  local done
  if count ~= '0' then
    -- shrink stands here
    done = shrink(lock, field, count)
  else
    done = pcall('HDEL', lock, field)
    if replaced(done) then done = 0 end
    if type(done) ~= 'table' then
      if ARGV[a + 6] ~= '' or ARGV[a + 7] == '1' then
        -- leave stands here
        void(KEYS[k + 1], field, ARGV[a + 6] ~= '' and ARGV[a + 6] or '0')
        untrace(KEYS[own - 1], field, ARGV[a + 7])
      end
      if done == 1 or call('EXISTS', lock) == 0 then
        say[#say + 1] = {i, a, done == 1, KEYS[own]}
        lists[#lists + 1] = KEYS[own]
      end
    end
  end
  if type(done) == 'table' then
    out[i], out[i + 1] = -1, done.err
  else
    out[i], out[i + 1] = done, ''
  end
  i, k = i + 2, k + ARGV[a]
end
local waited = #lists > MOST or #lists > 0 and pcall('EXISTS', unpack(lists)) ~= 0
for _, s in ipairs(say) do
  local at, a, freed, list = s[1], s[2], s[3], s[4]
  local sent, called = freed and pcall(ARGV[a + 4], ARGV[a + 3], '0') or 0, 0
  if waited then
    if ARGV[a + 5] ~= '' then pcall('ZREM', list, string.sub(ARGV[a + 1], 1, 36)) end
    -- wake stands here
    called = wake(list, pcall('ZPOPMIN', list), calls_of(list), ARGV[a + 4], ARGV[a + 8], 64)
  end
  if ARGV[a + 5] == '1' and (called == 1 or called == 2) then
    -- enlist stands here
    enlist(list, ARGV[a + 1], '0')
  end
  if type(called) == 'table' then sent, called = called, 0 end
  if freed then
    if type(sent) == 'table' then
      out[at], out[at + 1] = 2, sent.err
    elseif called ~= 0 then
      out[at + 1] = tostring(called == 2 and sent > 0 and 1 or called)
    end
  end
end
return out
