-- guarded: does some work only if no later holder has been here, in one step.
--
-- KEYS: those of the work, then one record for each name.
-- ARGV: those of the work, then one fence for each record, in the order of the records. After them
--   come `count`, `keep` and `kind`.
--   `count`  How many records there are.
--   `keep`   In ms. 0: for ever.
--   `kind`   "r" for a read, "w" for a write.
-- Answer: {1, the work's answer}, or {0, which record, the fence that it has seen}. The latter means
--   that nothing was written.
--
-- A record is a hash. Its field `seen` is the highest fence. Its field `written` is the highest fence
-- that was no reader's. The record expires `keep` after its last use, but not before this server's
-- clock is `keep` past the fence itself. Without a record, a fence that is older than `keep` is
-- refused. An expired record would have refused no others.

-- Comes first, so that the work sees no other name of this script.
local function work(KEYS, ARGV)
--[[work]]
end

local call = redis.call
local kind, keep, records = ARGV[#ARGV], tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV - 2])
local keys, arguments = #KEYS - records, #ARGV - records - 3
local t = call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local floor = keep > 0 and (now - keep) * 1000 or 0

local latest = {}
for i = 1, records do
    local fence, seen = tonumber(ARGV[arguments + i]), call('HMGET', KEYS[keys + i], 'seen', 'written')
    local least = tonumber(seen[kind == 'r' and 2 or 1] or floor)
    if fence < least then return {0, i, least} end
    latest[i] = math.max(fence, tonumber(seen[1] or 0))
end
for i = 1, records do
    local record, fence = KEYS[keys + i], ARGV[arguments + i]
    if latest[i] == tonumber(fence) then call('HSET', record, 'seen', fence) end
    if kind == 'w' then call('HSET', record, 'written', fence) end
    if keep > 0 then
        call('PEXPIREAT', record, string.format('%.0f', math.max(now, math.ceil(latest[i] / 1000)) + keep))
    else
        call('PERSIST', record)
    end
end

-- Copies, because Lua's unpack takes 8,000 values at most.
local function first(list, many)
    local part = {}
    for i = 1, many do part[i] = list[i] end
    return part
end
local answer = work(first(KEYS, keys), first(ARGV, arguments))
if type(answer) == 'table' and answer.err then return answer end
return {1, answer}
