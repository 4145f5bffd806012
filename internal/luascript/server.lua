-- server: which run of which server is this?
--
-- KEYS[1]  any key of the slot in question: it chooses the node
--
-- RETURN   {1, run_id}
--
-- Twice: it reads only.
return {1, string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')}
