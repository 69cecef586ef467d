-- What the scripts of the read-write lock have in common.
--
-- A token ends in its kind, r or w. `name` holds a writer's token, or "shared" while a reader's
-- lease runs. `readers` has each reader's token and the deadline of its lease, in server ms.
-- `fence` is the highest fence of a writer here, `rfence` that of a reader. A reader's fence is
-- above every earlier writer's. A writer's fence is above every earlier fence.
local name, fence, queue, waiters, readers, rfence = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local token, K, call = ARGV[1], tonumber(ARGV[2]), redis.call
local t = call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function text(number) return string.format('%.0f', number) end    -- (why: see request.lua)

local holder = call('GET', name)
if holder == 'shared' then                          -- readers whose lease is over do not count
    call('ZREMRANGEBYSCORE', readers, '-inf', text(now))
    if call('EXISTS', readers) == 0 then
        call('DEL', name)
        holder = false
    end
end

local function isReader(it) return string.sub(it, -1) == 'r' end
local function twin(it) return string.sub(it, 1, -2) .. 'w' end         -- the writer that a reader was before its downgrade
local function setF(key, F, deadline)               -- gone only once the clock floor is above it, and the lease is over
    call('SET', key, text(F), 'PXAT', text(math.max(math.floor(F / 1000) + K, deadline)))
    return F
end
local function getF(key)                            -- what this node's fence stands at
    local F = call('GET', key)
    return F and tonumber(F) or now * 1000 - K * 500 - 1
end
local function lostF()                              -- no record: one that raises the fence of no reader who is here, as a grant would
    local F = getF(fence)
    for _, it in ipairs(holder == 'shared' and call('ZRANGE', readers, 0, -1) or {}) do
        F = math.min(F, tonumber(string.sub(it, 1, 16)) - 1)
    end
    return F
end
local function readF(P, deadline)                   -- a reader's fence, the same for as long as it holds: so the record has to last
    local F = tonumber(call('GET', fence) or lostF())
    -- It lasts K longer than it has to, so that the next readers find it long enough and take the
    -- usual case. It lasts no longer than 2 K: see request.lua.
    if call('PTTL', fence) < deadline - now then call('SET', fence, text(F), 'PXAT', text(math.min(deadline + K, now + 2 * K))) end
    F = math.max(F + 1, P)
    -- Not above the clock's floor but above a record: a clock that is set back takes the floor with it.
    if F > tonumber(call('GET', rfence) or 0) then setF(rfence, F, deadline) end
    return F
end
local function put(it, deadline)                    -- gives the node to a token, or prolongs its lease; never shortens
    local value = isReader(it) and 'shared' or it
    local fresh = holder ~= value
    local longer = fresh or deadline - now > call('PTTL', name)
    if isReader(it) then
        if fresh then call('DEL', readers) end      -- of some that were there when the key was taken away by hand
        call('ZADD', readers, 'GT', text(deadline), it)
        if longer then call('PEXPIREAT', readers, text(deadline)) end
    end
    if fresh then call('SET', name, value, 'PXAT', text(deadline))
    elseif longer then call('PEXPIREAT', name, text(deadline)) end
    holder = value
end
local function grant(it, deadline, P)
    local F
    if isReader(it) then F = readF(P, deadline)
    else F = setF(fence, math.max(getF(fence) + 1, getF(rfence) + 1, P), deadline) end
    put(it, deadline)
    return F
end
local function holds(it)
    if isReader(it) then return holder == 'shared' and call('ZSCORE', readers, it) end
    return holder == it
end
local function giveUp(it)
    if isReader(it) then
        call('ZREM', readers, it)
        if call('EXISTS', readers) == 1 then return end
    end
    call('DEL', name)
    holder = false
end
local function fits(it) return not holder or holder == 'shared' and isReader(it) end
local function leave(it) if call('ZREM', queue, it) == 1 then call('HDEL', waiters, it) end end
local function promote(P)                           -- all readers at the head, or one writer; returns F if this token got it
    local got
    while true do
        local head = call('ZRANGE', queue, 0, 0)[1]
        if not head then return got end
        local deadline = tonumber(call('HGET', waiters, head)) or 0
        -- Remove lapsed waiters first: a dead writer at the head must not keep readers out for as
        -- long as other readers stay.
        if deadline > now and not fits(head) then return got end
        leave(head)
        if deadline > now then
            -- not past now + 2 K, which is more than any ttl: the clock may have gone back since it queued
            local F = grant(head, math.min(deadline, now + 2 * K), head == token and P or tonumber(string.sub(head, 1, 16)))
            if head == token then got = F
            -- nobody listens: its connection is gone, and it will ask again.  An error (ACL) is no reason not to grant.
            elseif redis.pcall('PUBLISH', string.sub(head, 18, 49), 'g ' .. head .. ' ' .. text(F) .. ' ' .. name) == 0 then giveUp(head) end
        end
    end
end
