-- survey: how some locks are on this node, in short. Changes nothing.
--
-- ARGV  keys
--   keys  those of the locks. Each has its length and a colon before it, such as 3:job.
--   They are not KEYS, because they lie in different slots. A node that is the only shard of a cluster would refuse them.
-- Answer: six items for each key. The first three are the value (its first 256 bytes) or null, its PTTL (-1: no expiry, -2: no key),
--   and F as text or null. The others are how many wait, the token that is first in line or null, and the note or null.
--   Of the note, it tells the first 2048 bytes.
local function try(...)
    local answer = redis.pcall(...)                 -- (another type, or a key that this user may not read)
    return not (type(answer) == 'table' and answer.err) and answer
end
local function text(key, most)
    local value = try('GET', key)
    return value and string.sub(value, 1, most)
end
local function line(queue)                          -- how many wait in it, and who is first
    local first = try('ZRANGE', queue, 0, 0)
    return try('ZCARD', queue) or 0, first and first[1] or false
end

local keys, answer, at = ARGV[1], {}, 1
while at <= #keys do
    local size, start = string.match(keys, '^(%d+):()', at)
    at = start + size
    local key = string.sub(keys, start, at - 1)
    local tag = string.match(key, '^[^{]*{([^}]+)}')
    local before, after = '{' .. (tag or key) .. '}:', tag and ':' .. key or ''
    local queue, rwqueue, waiting, first = before .. 'queue' .. after, before .. 'rwqueue' .. after, 0, false
    local lines = try('EXISTS', queue, rwqueue)     -- one name has one of them, and most have none
    if lines and lines > 0 then
        waiting, first = line(queue)
        if waiting == 0 then waiting, first = line(rwqueue) end
    end
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3] = text(key, 256), try('PTTL', key), text(before .. 'fence' .. after, 32)
    answer[n + 4], answer[n + 5], answer[n + 6] = waiting, first, text(before .. 'note' .. after, 2048)
end
return answer
