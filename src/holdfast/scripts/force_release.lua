-- force_release: an operator takes the lock away on this node, whoever has it, and it is handed on.
--
-- KEYS  name fence queue waiters
-- ARGV  K only
--   K     the fence horizon in ms, half the guard
--   only  the value that has to hold it, or nothing is done; empty: whatever does
-- Answer: the value that held this node (its first 256 bytes), or null if nothing was taken from anybody
local name, fence, queue, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local call, K, only = redis.call, tonumber(ARGV[1]), ARGV[2]
local holder = call('GET', name)
if only ~= '' and holder ~= only then return false end
if holder == 'shared' or holder and string.match(holder, '^%d+:%x+:%x+:[rw]$') then return false end       -- rw_force_release's business
if holder then
    call('DEL', name)
    if string.match(holder, '^%d+:%x+:%x+$') then                   -- one of ours: it must not believe in this node any longer
        redis.pcall('PUBLISH', string.sub(holder, 18, 49), 'x ' .. holder .. ' 0 ' .. name)
    end
end
local answer = holder and string.sub(holder, 1, 256)
local t = call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function text(number) return string.format('%.0f', number) end
while true do                                       -- promote, as in request.lua
    local head = call('ZPOPMIN', queue)[1]
    if not head then return answer end
    local deadline = tonumber(call('HGET', waiters, head))
    call('HDEL', waiters, head)
    if deadline and deadline > now then
        local F = call('GET', fence)
        F = math.max(F and F + 1 or now * 1000 - K * 500, tonumber(string.sub(head, 1, 16)))
        deadline = math.min(deadline, now + 2 * K)
        call('SET', fence, text(F), 'PXAT', text(math.max(math.floor(F / 1000) + K, deadline)))
        call('SET', name, head, 'PXAT', text(deadline))
        if redis.pcall('PUBLISH', string.sub(head, 18, 49), 'g ' .. head .. ' ' .. text(F) .. ' ' .. name) ~= 0 then return answer end
        call('DEL', name)
    end
end
