-- watch: tells who leads, as far as this node knows. It will tell the asker when that changes.
--
-- KEYS: `leader`, `watchers`. Both are as in announce.lua.
-- ARGV: `token`, `ttl`.
--   `token`  Whom to tell, at its inbox. Empty: nobody.
--   `ttl`    For how long, in ms.
-- Answer: {term, version, ms, value}, or {0, 0, 0, ""} if nothing is known.
--   `ms` is for how long the leader is in office at least. 0: no longer.
local call, watchers, token, ttl = redis.call, KEYS[2], ARGV[1], tonumber(ARGV[2])
local t = call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)

if token ~= '' then
    call('ZADD', watchers, string.format('%.0f', now + ttl), token)
    if call('PTTL', watchers) < ttl then call('PEXPIRE', watchers, ARGV[2]) end
    while true do                                   -- those whose time is over
        local first = call('ZRANGE', watchers, 0, 0, 'WITHSCORES')
        if not first[1] or tonumber(first[2]) > now then break end
        call('ZREM', watchers, first[1])
    end
end

local term, version, ends, value = string.match(call('GET', KEYS[1]) or '', '^(%d+) (%d+) (%d+) (.*)$')
if not term then return {0, 0, 0, ''} end
return {tonumber(term), tonumber(version), math.max(tonumber(ends) - now, 0), value}
