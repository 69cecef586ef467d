-- inspect: how one lock is on this node. Changes nothing.
--
-- KEYS  name fence queue waiters
-- ARGV  most       how many of those who wait to tell of
-- Answer: {the holder's value (its first 256 bytes) or null, its PTTL (-1: no expiry, -2: no key), F as text or null, how many wait,
--          then for each of the first who wait: token, ms that its place in line is good for}
local name, fence, queue, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local call = redis.call
local t = call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local holder = call('GET', name)
local answer = {holder and string.sub(holder, 1, 256), call('PTTL', name), call('GET', fence), call('ZCARD', queue)}
for _, token in ipairs(call('ZRANGE', queue, 0, tonumber(ARGV[1]) - 1)) do
    answer[#answer + 1] = token
    answer[#answer + 1] = tonumber(call('HGET', waiters, token) or now) - now
end
return answer
