-- probe: calls every command that the scripts of locks call, on a key that nobody else uses. So a
-- client learns which of them its user may not call, or the server does not have, before a lock
-- depends on one. A server that refuses writes shows it here, too.
--
-- KEYS: a key of this client's prefix. It does not exist afterwards.
-- ARGV: `more`. If it is there, what only other primitives call is called, too.
-- Answer: for each command that fails, its name and the error. An empty list: all can be called.
local key, told = KEYS[1], {}
local function try(...)
    local answer = redis.pcall(...)
    if type(answer) ~= 'table' or not answer.err then return true end
    -- Where DEL is refused, the key keeps its type. Whether a command may be called is checked before that.
    if string.find(answer.err, 'WRONGTYPE', 1, true) then return true end
    told[#told + 1] = (...)
    told[#told + 1] = answer.err
end
local set = try('SET', key, '1', 'PX', '1000')
try('GET', key)
try('MGET', key)
try('EXISTS', key)
try('PTTL', key)
try('PEXPIRE', key, '1000')
if ARGV[1] then try('PEXPIREAT', key, '9000000000000') end
-- Otherwise what follows could stay for ever.
if try('DEL', key) or set then
    try('ZADD', key, '1', 'a')
    try('ZRANK', key, 'a')
    try('ZRANGE', key, '0', '0')
    try('ZREM', key, 'b')
    if ARGV[1] then
        try('ZSCORE', key, 'a')
        try('ZCARD', key)
        try('ZREMRANGEBYSCORE', key, '2', '3')
    end
    try('ZPOPMIN', key)
    try('HSET', key, 'a', 'b')
    try('HGET', key, 'a')
    try('HDEL', key, 'a')
    -- ZPOPMIN may have been refused.
    redis.pcall('DEL', key)
end
try('TIME')
try('PUBLISH', '00000000000000000000000000000000', '')
return told
