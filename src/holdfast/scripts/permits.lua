-- permits: lists the permits of a semaphore that are held on this node. Changes nothing.
--
-- KEYS: `name`.
--   `name`  The semaphore's name. The key of its slot 7 is the name with "[slot 7]" appended.
-- ARGV: `permits`.
--   `permits`  How many slots to read, beginning with slot 0.
-- Answer: three values for each slot whose key exists. They are its number, the key's value (its
--   first 256 bytes), and the key's PTTL (-1: no expiry).
local call, answer = redis.call, {}
for slot = 0, tonumber(ARGV[1]) - 1 do
    local key = KEYS[1] .. '[slot ' .. string.format('%.0f', slot) .. ']'
    local holder = call('GET', key)
    if holder then
        answer[#answer + 1] = slot
        answer[#answer + 1] = string.sub(holder, 1, 256)
        answer[#answer + 1] = call('PTTL', key)
    end
end
return answer
