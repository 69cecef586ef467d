-- rw_release: what release.lua is for an exclusive lock. rw_common.lua and rw_release_else.lua
-- follow it.
--
-- KEYS: `name`, `fence`, `queue`, `waiters`, `readers`, `rfence`.
-- ARGV: `token`, `K`. Both are as in request.lua.
-- Answer: 1 if the token held this node, or the writer did that it was before a downgrade.
--   Otherwise 0.
if redis.call('EXISTS', KEYS[3]) == 0 then          -- the usual case: nobody waits
    local call = redis.call
    local value = call('GET', KEYS[1])
    if value == ARGV[1] then
        call('DEL', KEYS[1])
        return 1
    elseif value == 'shared' then
        local t, first = call('TIME'), call('ZRANGE', KEYS[5], 0, 1, 'WITHSCORES')
        local now = t[1] * 1000 + math.floor(t[2] / 1000)
        if #first == 2 and first[1] == ARGV[1] then -- and nobody else is there
            call('DEL', KEYS[1], KEYS[5])
            return tonumber(first[2]) > now and 1 or 0
        end
        call('ZREMRANGEBYSCORE', KEYS[5], '-inf', string.format('%.0f', now))
        local gone = call('ZREM', KEYS[5], ARGV[1])
        if call('EXISTS', KEYS[5]) == 0 then call('DEL', KEYS[1]) end
        return gone
    end
end
