-- put: keeps a computed value, unless a later holder's value is there. It tells everybody who waits
-- for the value to read again.
--
-- KEYS: `name`, `{name}:cache`, `{name}:queue`.
-- ARGV: `fence`, `fresh`, `stale`, `ttl`, `value`.
--   `fence`  The fence of the lease under which the value was computed. A lower fence never
--            replaces a value. A note (see void.lua) is replaced only by a higher fence.
--   `fresh`  For how many ms the value is fresh.
--   `stale`  For how many ms more it is kept at least, for callers that accept a stale value.
--   `ttl`    For how many ms it would be fresh if it had been kept as soon as it was computed.
-- Answer: 1 if it is kept, 0 if a later holder's value or a note is there.
local call, cache = redis.call, KEYS[2]
local there = call('GET', cache) or ''
local above, fence = tonumber(string.match(there, '^%d+') or 0), tonumber(ARGV[1])
if above > fence or above == fence and string.match(there, '^%d+:$') then return 0 end
-- The previous value may have to stay for longer, because it hides an older value on another node.
-- So this one stays as long. It is not shown for longer: each caller limits how stale a value may be.
local lasts = math.max(ARGV[2] + ARGV[3], call('PTTL', cache))
local kept = ARGV[1] .. ':' .. string.format('%.0f', lasts - ARGV[2]) .. ':' .. ARGV[4] .. ' ' .. ARGV[5]
call('SET', cache, kept, 'PX', string.format('%.0f', lasts))
for _, token in ipairs(call('ZRANGE', KEYS[3], 0, -1)) do
    redis.pcall('PUBLISH', string.sub(token, 18, 49), 'n ' .. token .. ' 0 ' .. KEYS[1])
end
return 1
