-- inspect: how one lock is on this node. Changes nothing.
--
-- KEYS  name fence queue waiters rwqueue rwwaiters readers
-- ARGV  most       how many of those who read, and how many of those who wait, to tell of
-- Answer: {the holder's value (its first 256 bytes) or null, its PTTL (-1: no expiry, -2: no key), F as text or null, how many wait,
--          how many readers are told of, then for each of them: token, ms that its lease lasts;
--          then for each of the first who wait: token, ms that its place in line is good for}
local call, most = redis.call, tonumber(ARGV[1])
local t = call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local holder = call('GET', KEYS[1])
local answer = {holder and string.sub(holder, 1, 256), call('PTTL', KEYS[1]), call('GET', KEYS[2]), 0, 0}
if holder == 'shared' then
    local readers = call('ZRANGE', KEYS[7], 0, most - 1, 'WITHSCORES')
    for i = 1, #readers, 2 do
        answer[#answer + 1] = readers[i]
        answer[#answer + 1] = readers[i + 1] - now
    end
    answer[5] = #readers / 2
end
for i = 3, 5, 2 do                                  -- the queue of exclusive locks, and that of read-write locks: one name has one of them
    answer[4] = answer[4] + call('ZCARD', KEYS[i])
    for _, token in ipairs(call('ZRANGE', KEYS[i], 0, most - 1)) do
        answer[#answer + 1] = token
        answer[#answer + 1] = tonumber(call('HGET', KEYS[i + 1], token) or now) - now
    end
end
return answer
