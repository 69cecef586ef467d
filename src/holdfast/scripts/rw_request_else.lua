-- rw_request, where the case is not the usual one. Comes after rw_common.lua.
local ttl, mode, P = tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local function keep(key)
    if call('PTTL', key) < ttl then call('PEXPIRE', key, text(ttl)) end
end
local function enqueue()                            -- or refresh; true if it was not in the queue
    local fresh, deadline = call('ZADD', queue, string.sub(token, 1, 16), token) == 1, now + ttl
    if fresh then
        if isReader(token) then leave(twin(token)) end
    else                                            -- never moved back: a late request may carry a shorter ttl
        deadline = math.max(deadline, tonumber(call('HGET', waiters, token) or 0))
    end
    call('HSET', waiters, token, text(deadline))
    keep(queue)
    keep(waiters)
    return fresh
end

if isReader(token) and holder == twin(token) then   -- a downgrade: it holds the node all the time
    local deadline = now + math.max(ttl, call('PTTL', name))
    giveUp(holder)
    put(token, deadline)
    local F = readF(P, deadline)
    promote(P)
    return {F, 0, 0}
end
if holds(token) then
    local head = call('ZRANGE', queue, 0, 0)[1]
    local lower = head and head < token
    if mode == 'c' and lower then
        giveUp(token)
        enqueue()
        local F = promote(P)
        if F then return {F, 0, 1} end
    else
        local left = math.max(ttl, call('PTTL', name))
        put(token, now + ttl)
        if isReader(token) then return {readF(P, now + ttl), lower and 1 or 0, 0} end
        local F = tonumber(call('GET', fence) or 0)
        if F < P then F = setF(fence, mode == 'k' and P or math.max(getF(fence), P), now + left)
        elseif call('PTTL', fence) < left then call('PEXPIRE', fence, text(math.min(left + K, 2 * K))) end   -- it outlives the lease: see request.lua
        return {F, lower and 1 or 0, 0}
    end
elseif fits(token) and call('EXISTS', queue) == 0 then                  -- the usual case
    local F = grant(token, now + ttl, P)
    return F == P and ARGV[5] or {F, 0, 1}
elseif mode == 't' then
    local F = promote(P)
    if F then return {F, 0, 1} end
    if fits(token) and call('EXISTS', queue) == 0 then return {grant(token, now + ttl, P), 0, 1} end
else
    local fresh = enqueue()
    local F = promote(P)
    if F then return {F, 0, 1} end
    if fresh and holder then
        local over = {holder}
        if holder == 'shared' then over = isReader(token) and {} or call('ZRANGE', readers, 0, -1) end
        for _, it in ipairs(over) do
            if it > token and string.match(it, '^%d+:%x+:%x+:[rw]$') then                   -- inquiry
                redis.pcall('PUBLISH', string.sub(it, 18, 49), 'i ' .. it .. ' 0 ' .. name)
            end
        end
    end
end
local left, place = call('PTTL', name), call('ZRANK', queue, token) or -1
local F = tonumber(call('GET', fence) or 0)
if not isReader(token) then F = math.max(F, tonumber(call('GET', rfence) or 0)) end
if holder ~= 'shared' then return {0, left, place, holder and string.sub(holder, 1, 64), F} end
local last = call('ZRANGE', readers, -1, -1, 'WITHSCORES')
return {0, last[2] - now, place, last[1], F}
