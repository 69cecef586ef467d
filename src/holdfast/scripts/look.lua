-- look: reads the kept result. With a ballot, it also promises that this node stores no result of a
-- lower ballot from now on.
--
-- KEYS: `name`, `fence`, `result`.
-- ARGV: `ballot`, `K`, `token`.
--   `ballot`  0: promise nothing.
--   `K`       As in request.lua.
--   `token`   Empty: the ballot is the fence of the lock's holder, and nobody else has it. Otherwise
--             the holder has chosen the ballot. It is promised only if this token holds the lock here
--             and nothing is above the ballot. So every fence that is granted here later is above it.
-- Answer: {1 if promised, otherwise 0; F; PTTL of the result; the result or null}.
--   `F` is 0 without a ballot. The result begins with its own ballot, in 16 digits.
local call, name, fence, result = redis.call, KEYS[1], KEYS[2], KEYS[3]
local ballot, K, token = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local promised, F = 0, 0
if ballot > 0 then
    local t = call('TIME')
    F = tonumber(call('GET', fence) or '') or t[1] * 1000000 + t[2] - K * 500 - 1        -- no record: the clock floor
    if token == '' or F <= ballot and call('GET', name) == token then
        promised, F = 1, math.max(F, ballot)
        local deadline = t[1] * 1000 + math.floor(t[2] / 1000) + call('PTTL', name)        -- of the lease, which its record outlives
        local expiry = math.max(math.floor(F / 1000) + K, deadline)
        call('SET', fence, string.format('%.0f', F), 'PXAT', string.format('%.0f', expiry))
    end
end
return {promised, F, call('PTTL', result), call('GET', result)}
