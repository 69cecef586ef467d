-- watch: who leads, as far as this node knows; and it will tell the asker when that changes.
--
-- KEYS  leader watchers
-- ARGV  token ttl
--   token  whom to tell, at its inbox; empty: nobody
--   ttl    for how long, in ms
-- Answer: {term, version, for how many ms it is in office at least (0: it is not any more), value}; {0, 0, 0, ""} if nothing is known
--
-- Both keys are as announce has them.
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
