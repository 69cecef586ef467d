-- request: asks for the lock. The first try, heartbeat, retry, fence write-back, renewal and cede
-- are all this call.
--
-- KEYS: `name`, `fence`, `queue`, `waiters`.
-- ARGV: `token`, `ttl`, `mode`, `P`, `K`, `PXAT`.
--   `token`  Ticket (16 digits) ":" inbox (32) ":" serial (8), of the characters [0-9a-f:] only. Its
--            width is fixed because it is compared as a string.
--   `ttl`    The length of the lease in ms.
--   `mode`   w: wait. t: try. c: cede. k: keep, which is wait by a claim that is held.
--   `P`      The proposed fence. A first request proposes the ticket, a write-back the largest F
--            seen, a renewal the fence that was agreed.
--   `K`      The fence horizon in ms, half the guard. All clients use the same, and 2 K is more than
--            any ttl.
--   `PXAT`   When P's record may expire, in ms, at least P + K. It is an argument so that the usual
--            case below needs no other arithmetic.
-- Answer to a grant: {F, lower, fresh}.
--   `F`      The fence.
--   `lower`  1: a lower ticket waits here.
--   `fresh`  1: granted now. 0: held before.
--   The text P stands for {P, 0, 1}, the usual case: a table would cost as much as two more
--   commands. The number F stands for {F, 0, 0}, the usual renewal.
-- Answer to a denial: {0, PTTL of the holder's key, place in the queue, the holder's value, F}.
--   The place is -1 outside of the queue. The value is its first 64 bytes, or null. F is 0 without a
--   record.
--
-- The fence record lasts at least as long as the lease of the token that holds the name. If it
-- expired earlier, the next renewal would raise F by the clock floor. If that answer were lost, the
-- client could not tell the rise from a grant to another client.
-- The record lasts no longer than 2 K after it was written, or K after F. Otherwise a node that
-- restarts with old data, and is guarded for 2 K, would still have a record that is below a fence
-- it has forgotten, and would not use the clock floor.
local call = redis.call

-- Numbers are passed to commands as text: Redis 7.2.0 to 7.2.4 would write 1.8e15 as 1.8e+15
-- (redis#13113), which is no valid expiry.

-- The usual renewal, 6 calls: the token holds the name, nobody waits, and the fence record is at
-- least P. It does what `keep` and `keepF` do below, and needs neither the time nor the functions.
-- Anything else takes the long way.
if ARGV[3] == 'k' and call('GET', KEYS[1]) == ARGV[1] and call('EXISTS', KEYS[3]) == 0 then
    local F = tonumber(call('GET', KEYS[2]) or 0)
    if F >= tonumber(ARGV[4]) then
        local left, ttl = call('PTTL', KEYS[1]), tonumber(ARGV[2])
        if left < ttl then
            call('PEXPIRE', KEYS[1], ARGV[2])
            left = ttl
        end
        if call('PTTL', KEYS[2]) < left then
            local K = tonumber(ARGV[5])
            call('PEXPIRE', KEYS[2], string.format('%.0f', math.min(left + K, 2 * K)))
        end
        return F
    end
end

-- The usual case, 3 calls (4 on a fresh name): free, and nobody waits.
if call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
    if call('EXISTS', KEYS[3]) == 0 then
        local P, K, answer = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[4]
        local old = tonumber(call('SET', KEYS[2], ARGV[4], 'PXAT', ARGV[6], 'GET'))
        if not old or old >= P then
            local least
            if old then
                least = old + 1
            else                                                        -- no record: the clock floor
                local t = call('TIME')
                least = t[1] * 1000000 + t[2] - K * 500
            end
            if least > P then
                local expiry = math.max(math.floor(least / 1000) + K, tonumber(ARGV[6]))
                call('SET', KEYS[2], string.format('%.0f', least), 'PXAT', string.format('%.0f', expiry))
                answer = {least, 0, 1}
            end
        end
        -- PXAT is long enough for the first renewals of any lease, but not for all of a long one.
        local ttl = tonumber(ARGV[2])
        if ttl * 4 > K * 3 and call('PTTL', KEYS[2]) < ttl then call('PEXPIRE', KEYS[2], ARGV[2]) end
        return answer
    end
    call('DEL', KEYS[1])
end

local name, fence, queue, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, ttl, mode, P, K = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local t = call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local holder = call('GET', name)

local function text(number) return string.format('%.0f', number) end
-- What this node's fence stands at.
local function getF()
    local F = call('GET', fence)
    return F and tonumber(F) or now * 1000 - K * 500 - 1
end
-- Gone only once the clock floor is above it, and the lease is over.
local function setF(F, deadline)
    call('SET', fence, text(F), 'PXAT', text(math.max(math.floor(F / 1000) + K, deadline)))
    return F
end
-- For the ttl at least: an expiry is never moved back. Returns what is left, in ms.
local function keep(key)
    local left = call('PTTL', key)
    if left >= ttl then return left end
    call('PEXPIRE', key, ARGV[2])
    return ttl
end
local function record() return tonumber(call('GET', fence) or 0) end
-- Raised to P at least, and kept for as long as the lease.
local function keepF(left)
    local F = record()
    -- A holder's P is T. Its lost record must not rise above T by the clock floor: that would look like a grant.
    if F < P then return setF(mode == 'k' and P or math.max(getF(), P), now + left) end
    if call('PTTL', fence) < left then call('PEXPIRE', fence, text(math.min(left + K, 2 * K))) end
    return F
end
-- Or refresh; true if it was not in the queue.
local function enqueue()
    local fresh, deadline = call('ZADD', queue, string.sub(token, 1, 16), token) == 1, now + ttl
    if not fresh then                               -- never moved back: a late request may carry a shorter ttl
        deadline = math.max(deadline, tonumber(call('HGET', waiters, token) or 0))
    end
    call('HSET', waiters, token, text(deadline))
    keep(queue)
    keep(waiters)                                   -- each by itself: one of them may have been deleted by hand
    return fresh
end
-- The lock key is free: returns F if it went to this token.
local function promote()
    while true do
        local head = call('ZPOPMIN', queue)[1]
        if not head then return end
        local deadline = tonumber(call('HGET', waiters, head))
        call('HDEL', waiters, head)
        if deadline and deadline > now then
            local mine = head == token
            -- not past now + 2 K, which is more than any ttl: the clock may have gone back since it queued
            deadline = math.min(deadline, now + 2 * K)
            local F = setF(math.max(getF() + 1, tonumber(string.sub(head, 1, 16)), mine and P or 0), deadline)
            call('SET', name, head, 'PXAT', text(deadline))
            if mine then return F end
            -- nobody listens: its connection is gone, and it will ask again.  An error (ACL) is no reason not to grant.
            -- Concatenated: %s would cut a name at a NUL byte.
            if redis.pcall('PUBLISH', string.sub(head, 18, 49), 'g ' .. head .. ' ' .. text(F) .. ' ' .. name) ~= 0 then return end
            call('DEL', name)
        end
    end
end

if holder == token then
    local head = call('ZRANGE', queue, 0, 0)[1]
    local lower = head and head < token
    if mode == 'c' and lower then
        enqueue()
        call('DEL', name)
        local F = promote()
        if F then return {F, 0, 1} end
    else
        local F = keepF(keep(name))
        return lower and {F, 1, 0} or F
    end
elseif mode == 't' then
    if not holder then
        local F = promote()                         -- (its own token can be in the queue only by a late command)
        if F then return {F, 0, 1} end
        if call('EXISTS', name) == 0 then           -- those who waited are gone
            call('SET', name, token, 'PX', ARGV[2])
            return {setF(math.max(getF() + 1, P), now + ttl), 0, 1}
        end
    end
else
    local fresh = enqueue()
    if not holder then
        local F = promote()
        if F then return {F, 0, 1} end
    elseif fresh and holder > token and string.match(holder, '^%d+:%x+:%x+$') then      -- inquiry
        redis.pcall('PUBLISH', string.sub(holder, 18, 49), 'i ' .. holder .. ' 0 ' .. name)
    end
end
holder = call('GET', name)
return {0, call('PTTL', name), call('ZRANK', queue, token) or -1, holder and string.sub(holder, 1, 64), record()}
