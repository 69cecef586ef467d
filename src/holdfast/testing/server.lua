-- What surrounds the scripts of simulated nodes: what they see of Redis, and how they are run.
--
-- Answers are encoded here and not in Python: one string crosses the border instead of a table, and %d truncates as
-- Redis's cast does.

local command = ...                                 -- Python's: executes one command; an error comes back as a table

local redis = {pcall = command}
function redis.call(...)
    local reply = command(...)
    if type(reply) == 'table' and reply.err then error(reply, 0) end
    return reply
end
function redis.error_reply(line) return {err = line} end
function redis.status_reply(line) return {ok = line} end

-- What scripts see, and cannot change: it is the same for all servers.
local function kept(things)
    return setmetatable({}, {__index = things, __newindex = function()
        error('Attempt to modify a readonly table', 2)
    end})
end
local world = {
    redis = kept(redis), string = kept(string), math = kept(math), table = kept(table),
    assert = assert, error = error, ipairs = ipairs,
    next = next, pairs = pairs, pcall = pcall, select = select, tonumber = tonumber,
    tostring = tostring, type = type, unpack = unpack,
}
local globals = kept(setmetatable(world, {
    __index = function(_, name)
        error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
    end,
}))

local function line(text) return (string.gsub(text, '[\r\n]', ' ')) end

local function encode(answer)
    local kind = type(answer)
    if kind == 'string' then return '$' .. #answer .. '\r\n' .. answer .. '\r\n' end
    if kind == 'number' then return string.format(':%d\r\n', answer) end
    if kind == 'boolean' and answer then return ':1\r\n' end
    if kind ~= 'table' then return '_\r\n' end
    if answer.err then return '-' .. line(answer.err) .. '\r\n' end
    if answer.ok then return '+' .. line(answer.ok) .. '\r\n' end
    local parts = {}
    for at, item in ipairs(answer) do parts[at] = encode(item) end              -- (to the first nil, as in Redis)
    return '*' .. #parts .. '\r\n' .. table.concat(parts)
end

local function compile(source)
    local script, wrong = loadstring(source, '@user_script')
    if script then return setfenv(script, globals) end
    return nil, wrong
end

local function failed(wrong)
    local level, at = 2, debug.getinfo(2, 'Sl')
    while at and at.source ~= '@user_script' do
        level = level + 1
        at = debug.getinfo(level, 'Sl')
    end
    return {type(wrong) == 'table' and wrong.err or 'ERR ' .. tostring(wrong), at and at.currentline or 0}
end

local function run(script, keys, ...)
    local words, KEYS, ARGV = {...}, {}, {}
    for at = 1, keys do KEYS[at] = words[at] end
    for at = keys + 1, #words do ARGV[at - keys] = words[at] end
    rawset(world, 'KEYS', KEYS)
    rawset(world, 'ARGV', ARGV)
    local done, answer = xpcall(script, failed)
    if done then return encode(answer) end
    return nil, answer[1], answer[2]
end

return compile, run
