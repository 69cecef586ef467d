-- rw_request: what request.lua is for an exclusive lock. rw_common.lua and rw_request_else.lua
-- follow it.
--
-- KEYS: `name`, `fence`, `queue`, `waiters`, `readers`, `rfence`.
-- ARGV: `token`, `K`, `ttl`, `mode`, `P`. All are as in request.lua. The token ends in its kind.
-- Answer: as in request.lua. If readers hold the name, a denial has the value of the reader whose
--   lease lasts longest.
--
-- The usual case comes first, without what the others need: free, and nobody waits.
if redis.call('EXISTS', KEYS[1], KEYS[3], KEYS[5]) == 0 then
    local call, P, K = redis.call, tonumber(ARGV[5]), tonumber(ARGV[2])
    local t, F, R = call('TIME'), tonumber(call('GET', KEYS[2])), tonumber(call('GET', KEYS[6]))
    local deadline = t[1] * 1000 + math.floor(t[2] / 1000) + ARGV[3]
    local floor = t[1] * 1000000 + t[2] - K * 500
    if (F or floor) < P and (R or floor) < P then
        local expiry = string.format('%.0f', math.max(math.floor(P / 1000) + K, deadline))     -- (a fence record outlives the lease)
        if string.sub(ARGV[1], -1) == 'w' then
            call('SET', KEYS[2], ARGV[5], 'PXAT', expiry)
            call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
            return ARGV[5]
        elseif F and call('PTTL', KEYS[2]) >= tonumber(ARGV[3]) then
            deadline = string.format('%.0f', deadline)
            call('SET', KEYS[6], ARGV[5], 'PXAT', expiry)
            call('SET', KEYS[1], 'shared', 'PXAT', deadline)
            call('ZADD', KEYS[5], deadline, ARGV[1])
            call('PEXPIREAT', KEYS[5], deadline)
            return ARGV[5]
        end
    end
end
