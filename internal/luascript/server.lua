-- server: which server is this, and for how long has it been up?
--
-- KEYS[1]  any key of the slot in question: it chooses the node
--
-- RETURN   {uptime, run_id}   uptime in whole seconds
--
-- Twice: it reads only.
local info = redis.call('INFO', 'server')
return {tonumber(string.match(info, 'uptime_in_seconds:(%d+)')), string.match(info, 'run_id:(%x+)')}
