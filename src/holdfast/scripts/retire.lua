-- retire: gives the lock back at a later time. Until then nobody gets it.
--
-- KEYS: `name`, `queue`, `waiters`.
-- ARGV: `token`, `rest`.
--   `token`  As in request.lua.
--   `rest`   In how many ms the lock is free.
-- Answer: 1 if the token held this node, otherwise 0.
--
-- The fence record may end first. It lasts until the clock floor is above it, and nobody renews.
local call, name, queue, waiters, token = redis.call, KEYS[1], KEYS[2], KEYS[3], ARGV[1]
if call('ZREM', queue, token) == 1 then call('HDEL', waiters, token) end
if call('GET', name) ~= token then return 0 end
call('PEXPIRE', name, ARGV[2])
return 1
