-- put: keeps a value that was computed, unless a later holder's is there, and has everybody who waits for it look.
--
-- KEYS  name {name}:cache {name}:queue
-- ARGV  fence fresh stale ttl value
--   fence  of the lease under which it was computed: a value is never replaced by one with a lower fence, and it replaces a note (as
--          void.lua leaves one) only if its fence is higher
--   fresh  for how many ms it is fresh
--   stale  for how many ms more it is kept at least, to be shown to those who take it
--   ttl    for how many ms it would be fresh if it had been kept as soon as it was computed
-- Answer: 1 if it is kept, 0 if a later holder's value is there, or a note
local call, cache = redis.call, KEYS[2]
local there = call('GET', cache) or ''
local above, fence = tonumber(string.match(there, '^%d+') or 0), tonumber(ARGV[1])
if above > fence or above == fence and string.match(there, '^%d+:$') then return 0 end
-- What was here may have to stay for longer, since it hides an older value that another node still has. So this stays as long. It is not
-- shown for longer: each caller says itself how stale a value may be.
local lasts = math.max(ARGV[2] + ARGV[3], call('PTTL', cache))
local kept = ARGV[1] .. ':' .. string.format('%.0f', lasts - ARGV[2]) .. ':' .. ARGV[4] .. ' ' .. ARGV[5]
call('SET', cache, kept, 'PX', string.format('%.0f', lasts))
for _, token in ipairs(call('ZRANGE', KEYS[3], 0, -1)) do
    redis.pcall('PUBLISH', string.sub(token, 18, 49), 'n ' .. token .. ' 0 ' .. KEYS[1])
end
return 1
