-- release: gives the lock back, or cancels a waiter, and hands the lock on.
--
-- KEYS: `name`, `fence`, `queue`, `waiters`.
-- ARGV: `token`, `K`. Both are as in request.lua.
-- Answer: 1 if the token held this node, otherwise 0.
local name, fence, queue, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, call = ARGV[1], redis.call
local holder, mine = call('GET', name), 0
if holder == token then
    call('DEL', name)
    holder, mine = false, 1
end
if call('EXISTS', queue) == 0 then return mine end
if call('ZREM', queue, token) == 1 then call('HDEL', waiters, token) end
if holder then return mine end
local t, K = call('TIME'), tonumber(ARGV[2])
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function text(number) return string.format('%.0f', number) end
while true do                                       -- promote, as in request.lua
    local head = call('ZPOPMIN', queue)[1]
    if not head then return mine end
    local deadline = tonumber(call('HGET', waiters, head))
    call('HDEL', waiters, head)
    if deadline and deadline > now then
        local F = call('GET', fence)
        F = math.max(F and F + 1 or now * 1000 - K * 500, tonumber(string.sub(head, 1, 16)))
        deadline = math.min(deadline, now + 2 * K)
        call('SET', fence, text(F), 'PXAT', text(math.max(math.floor(F / 1000) + K, deadline)))
        call('SET', name, head, 'PXAT', text(deadline))
        if redis.pcall('PUBLISH', string.sub(head, 18, 49), 'g ' .. head .. ' ' .. text(F) .. ' ' .. name) ~= 0 then return mine end
        call('DEL', name)
    end
end
