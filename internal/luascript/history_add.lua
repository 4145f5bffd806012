-- history_add: note an eviction in the history.
--
-- KEYS[1]  redlatch_history:{prefix}, a stream; the fields of an entry are those of ARGV
-- ARGV[1]  how many entries to keep, about
-- ARGV[2..]  field, value, ...
--
-- RETURN   1  noted
--
-- Twice: a second run would note it twice; so it is not sent again once it may have run.
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', unpack(ARGV, 2))
return 1
