-- force_release: takes the lock away on this node for an operator, and hands it on.
--
-- KEYS: `name`, `fence`, `queue`, `waiters`.
-- ARGV: `K`, `only`.
--   `K`     The fence horizon in ms, half the guard.
--   `only`  The value that must hold the name, or the script does nothing. Empty: any value.
-- Answer: the value that held this node (its first 256 bytes), or null if nothing was taken.
--
-- It also repairs a fence record that no clock allows: one that is further ahead of this node's
-- clock than K, or is no number. Clients count no fence of such a node. The record becomes now + K.
-- Every fence that was proposed by a usable clock was below that. So every later fence is greater
-- than all that were ever counted.
local name, fence, queue, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local call, K, only = redis.call, tonumber(ARGV[1]), ARGV[2]
local holder = call('GET', name)
if only ~= '' and holder ~= only then return false end
local t = call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function text(number) return string.format('%.0f', number) end
local known, most = call('GET', fence), (now + K) * 1000
if known and not ((tonumber(known) or math.huge) <= most) then call('SET', fence, text(most), 'PXAT', text(now + 2 * K)) end
-- Read-write locks are left to rw_force_release.
if holder == 'shared' or holder and string.match(holder, '^%d+:%x+:%x+:[rw]$') then return false end
if holder then
    call('DEL', name)
    -- A holdfast client must stop counting on this node.
    if string.match(holder, '^%d+:%x+:%x+$') then
        redis.pcall('PUBLISH', string.sub(holder, 18, 49), 'x ' .. holder .. ' 0 ' .. name)
    end
end
local answer = holder and string.sub(holder, 1, 256)
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
