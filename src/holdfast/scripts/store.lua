-- store: keeps a result, unless a higher ballot was promised or stored here. It tells everybody who
-- waits for the lock to look.
--
-- KEYS: `name`, `fence`, `queue`, `result`.
-- ARGV: `ballot`, `K`, `keep`, `value`.
--   `ballot`  16 digits.
--   `K`       As in request.lua.
--   `keep`    For how many ms to keep the result.
-- Answer: the ballot if it is stored now or was before, otherwise the higher ballot.
local call, name, fence, queue, result = redis.call, KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ballot, K = tonumber(ARGV[1]), tonumber(ARGV[2])
local kept = tonumber(string.sub(call('GET', result) or '', 1, 16)) or 0
if kept == ballot then return ballot end            -- said again: it does not last any longer for that
local t = call('TIME')
local F = tonumber(call('GET', fence) or '') or t[1] * 1000000 + t[2] - K * 500 - 1      -- no record: the clock floor
F = math.max(F, kept)
if F > ballot then return F end
local deadline = t[1] * 1000 + math.floor(t[2] / 1000) + call('PTTL', name)     -- of the lease, which its record outlives
local expiry = math.max(math.floor(ballot / 1000) + K, deadline)
call('SET', fence, string.format('%.0f', ballot), 'PXAT', string.format('%.0f', expiry))
call('SET', result, ARGV[1] .. ' ' .. ARGV[4], 'PX', ARGV[3])
for _, token in ipairs(call('ZRANGE', queue, 0, -1)) do
    redis.pcall('PUBLISH', string.sub(token, 18, 49), 'n ' .. token .. ' 0 ' .. name)    -- (forbidden (ACL): they look in their own time)
end
return ballot
