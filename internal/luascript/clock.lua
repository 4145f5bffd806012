-- clock: the server's time, {s, us} and in ms; it is put in front of scripts.
--
-- KEYS     none
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
