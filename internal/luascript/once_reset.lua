-- once_reset: forget the last run, and those before it.
--
-- KEYS[1]  redlatch_once:{lock}, see once
-- ARGV[1]  the record to delete, as an earlier call of this script has returned it; '' = none, only
--          say what there is
--
-- RETURN   {1}          deleted; also at once, if it is too long for a record
--          {0, record}  another one is there, '' = none
--
-- Twice: the second run finds the record gone. A record names its claim, so one that comes late
-- can't touch that of a later run.
local last = redis.call('GET', KEYS[1])
if last and (last == ARGV[1] or #last > 1024) then
  redis.call('DEL', KEYS[1])
  return {1}
end
return {0, last or ''}
