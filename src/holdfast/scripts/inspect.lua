-- inspect: shows the state of one lock on this node. Changes nothing.
--
-- KEYS: `name`, `fence`, `queue`, `waiters`, `rwqueue`, `rwwaiters`, `readers`, `note`.
-- ARGV: `most`.
--   `most`  How many readers to list at most, and how many waiters.
-- Answer: {holder, its PTTL, F, waiters, readers, note, then the listed readers, then the listed waiters}.
--   `holder`   The holder's value (its first 256 bytes), or null.
--   `PTTL`     -1: the key has no expiry. -2: there is no key.
--   `F`        The fence record as text, or null.
--   `waiters`  How many wait.
--   `readers`  How many readers are listed.
--   `note`     The note (its first 2048 bytes), or null.
--   Each listed reader is a token and the ms that its lease lasts. Each listed waiter is a token
--   and the ms that its place in the queue lasts.
local call, most = redis.call, tonumber(ARGV[1])
local t = call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local holder = call('GET', KEYS[1])
local note = call('GET', KEYS[8])
local answer = {
    holder and string.sub(holder, 1, 256), call('PTTL', KEYS[1]), call('GET', KEYS[2]), 0, 0, note and string.sub(note, 1, 2048)
}
if holder == 'shared' then
    local readers = call('ZRANGE', KEYS[7], 0, most - 1, 'WITHSCORES')
    for i = 1, #readers, 2 do
        answer[#answer + 1] = readers[i]
        answer[#answer + 1] = readers[i + 1] - now
    end
    answer[5] = #readers / 2
end
-- A name has the queue of an exclusive lock or that of a read-write lock.
for i = 3, 5, 2 do
    answer[4] = answer[4] + call('ZCARD', KEYS[i])
    for _, token in ipairs(call('ZRANGE', KEYS[i], 0, most - 1)) do
        answer[#answer + 1] = token
        answer[#answer + 1] = tonumber(call('HGET', KEYS[i + 1], token) or now) - now
    end
end
return answer
