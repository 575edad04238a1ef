-- The sandbox of scripts: what they reach, and nothing that outlives them. Run once in each
-- interpreter with the server's functions; returns those that the server calls.
local native = ...

local error, type, tostring, tonumber, select = error, type, tostring, tonumber, select
local pcall, xpcall, loadstring, setfenv = pcall, xpcall, loadstring, setfenv
local next, pairs, ipairs, rawget, rawset = next, pairs, ipairs, rawget, rawset
local getmetatable, setmetatable, collectgarbage = getmetatable, setmetatable, collectgarbage
local concat, floor = table.concat, math.floor
local byte, rep, sub = string.byte, string.rep, string.sub
local place = native.place
local is_halted, plain = native.is_halted, native.plain
local resume, yield, create, wrap = coroutine.resume, coroutine.yield, coroutine.create, coroutine.wrap

-- Tables that scripts see and cannot change, with the tables behind them. Scripts never hold those.
local originals = setmetatable({}, { __mode = "k" })
local READONLY = "Attempt to modify a readonly table"

local function refuse()
    error(READONLY, 2)
end

local shield_of_metatables = setmetatable({}, { __newindex = refuse, __metatable = false })
originals[shield_of_metatables] = {}

local function shield(original)
    local shown = {}
    originals[shown] = original
    return setmetatable(shown, {
        __index = original,
        __newindex = refuse,
        __metatable = shield_of_metatables,
    })
end

local function writable(t)
    if originals[t] then error(READONLY, 0) end
end

-- As the libraries of Lua say it, at the place of the script.
local function expect_table(number, name, ...)
    local value = select(number, ...)
    if type(value) ~= "table" then
        local text = "bad argument #%d to '%s' (table expected, got %s)"
        local given = select("#", ...) < number and "no value" or type(value)
        error(text:format(number, name, given), 3)
    end
end

-- What nothing catches: the server ends the script.
local HALTED = "the script was ended"

local function settle(ok, ...)
    if ok then return true, ... end
    if is_halted() then error(HALTED, 0) end
    local e = plain((...))
    if type(e) == "table" and type(rawget(e, "err")) == "string" then return false, e.err end
    return false, e
end

local globals = {}
local environment = shield(globals)

setmetatable(globals, {
    __index = function(_, name)
        local text = "Script attempted to access nonexistent global variable '%s'"
        error(text:format(tostring(name)), 2)
    end,
})

for _, name in ipairs {
    "assert", "error", "ipairs", "rawequal", "select", "tonumber", "tostring", "type", "unpack",
    "gcinfo", "_VERSION",
} do
    globals[name] = _G[name]
end
globals._G = environment

local function copied(t)
    local copy = {}
    for key, value in next, t do copy[key] = value end
    return copy
end

function globals.pairs(...)
    expect_table(1, "pairs", ...)
    local t = ...
    local original = originals[t]
    return pairs(original and copied(original) or t)
end

function globals.next(...)
    expect_table(1, "next", ...)
    local t, key = ...
    local original = originals[t]
    return next(original and copied(original) or t, key)
end

function globals.rawget(...)
    expect_table(1, "rawget", ...)
    local t, key = ...
    return rawget(originals[t] or t, key)
end

function globals.rawset(...)
    expect_table(1, "rawset", ...)
    local t, key, value = ...
    writable(t)
    return rawset(t, key, value)
end

function globals.setmetatable(...)
    expect_table(1, "setmetatable", ...)
    local t, metatable = ...
    writable(t)
    if metatable ~= nil and type(metatable) ~= "table" then
        error("bad argument #2 to 'setmetatable' (nil or table expected)", 2)
    end
    return setmetatable(t, metatable)
end

globals.getmetatable = getmetatable

function globals.pcall(f, ...)
    return settle(pcall(f, ...))
end

function globals.xpcall(f, handler)
    -- An error that ends the script is raised by the hook, and no hook would end the handler.
    return settle(xpcall(f, function(e)
        if is_halted() then return HALTED end
        return handler(plain(e))
    end))
end

-- Nothing that changes how later scripts are collected.
function globals.collectgarbage(what)
    if what == nil or what == "collect" then return collectgarbage() end
    if what == "count" then return collectgarbage("count") end
    local others = { stop = 0, restart = 0, step = 0, setpause = 0, setstepmul = 0 }
    if others[what] then return 0 end
    error("bad argument #1 to 'collectgarbage' (invalid option '" .. tostring(what) .. "')", 2)
end

-- Compiles text, never bytecode. The collector rests meanwhile.
local function compile(text, name)
    if byte(text) == 27 then return nil, "bytecode is not allowed" end
    collectgarbage("stop")
    local done, f, message = pcall(loadstring, text, name)
    collectgarbage("restart")
    if not done then error(f, 3) end
    return f and setfenv(f, environment), message
end

function globals.loadstring(text, name)
    if type(text) == "number" then text = tostring(text) end
    if type(text) ~= "string" then
        error("bad argument #1 to 'loadstring' (string expected, got " .. type(text) .. ")", 2)
    end
    return compile(text, name or text)
end

function globals.load(reader, name)
    local pieces = {}
    repeat
        local piece = reader()
        pieces[#pieces + 1] = piece
    until piece == nil or piece == ""
    return compile(concat(pieces), name or "=(load)")
end

globals.coroutine = shield {
    create = create,
    wrap = wrap,
    yield = yield,
    running = coroutine.running,
    status = coroutine.status,
    resume = function(...)
        return settle(resume(...))
    end,
}

-- Patterns are matched by the server, which bounds their time.
local strings = copied(string)
strings.dump = nil

local function text_of(value, number, name)
    if type(value) == "string" then return value end
    if type(value) == "number" then return tostring(value) end
    local given = value == nil and "no value" or type(value)
    local text = "bad argument #%d to '%s' (string expected, got %s)"
    error(text:format(number, name, given), 3)
end

strings.find, strings.match = native.find, native.match

function strings.gmatch(s, pattern)
    s, pattern = text_of(s, 1, "gmatch"), text_of(pattern, 2, "gmatch")
    local at = 1
    local function following(from, to, ...)
        if not from then
            at = #s + 2
            return nil
        end
        -- An empty match is followed by the next byte.
        at = to >= from and to + 1 or from + 1
        return ...
    end
    return function()
        if at > #s + 1 then return nil end
        return following(native.search(s, pattern, at))
    end
end
strings.gfind = strings.gmatch

-- What stands for a match: `%1` and the like in text, a field of a table, the result of a function.
local function expand(replacement, whole, ...)
    local captures, count = { ... }, select("#", ...)
    return native.expand(replacement, whole, captures, count)
end

local function replaced(replacement, whole, first, ...)
    local kind, value = type(replacement), nil
    if kind == "function" then
        value = replacement(first, ...)
    elseif kind == "table" then
        value = replacement[first]
    else
        return expand(replacement, whole, first, ...)
    end
    if not value then return whole end
    if type(value) ~= "string" and type(value) ~= "number" then
        error("invalid replacement value (a " .. type(value) .. ")", 4)
    end
    return value
end

function strings.gsub(s, pattern, replacement, most)
    s, pattern = text_of(s, 1, "gsub"), text_of(pattern, 2, "gsub")
    local kind = type(replacement)
    if kind == "number" then
        replacement = tostring(replacement)
    elseif kind ~= "string" and kind ~= "function" and kind ~= "table" then
        error("bad argument #3 to 'gsub' (string/function/table expected)", 2)
    end
    most = most and tonumber(most) or #s + 1
    local is_anchored = byte(pattern) == 94
    local pieces, at, count = {}, 1, 0
    local function take(from, to, ...)
        if not from then return false end
        count = count + 1
        pieces[#pieces + 1] = sub(s, at, from - 1)
        pieces[#pieces + 1] = replaced(replacement, sub(s, from, to), ...)
        if to >= from then
            at = to + 1
        else
            pieces[#pieces + 1] = sub(s, from, from)
            at = from + 1
        end
        return not is_anchored and at <= #s + 1
    end
    while count < most and take(native.search(s, pattern, at)) do end
    pieces[#pieces + 1] = sub(s, at)
    return concat(pieces), count
end

local MOST_REPEATED = 32 * 1024 * 1024

function strings.rep(s, n)
    s = text_of(s, 1, "rep")
    n = tonumber(n) or error("bad argument #2 to 'rep' (number expected)", 2)
    if #s == 0 or n < 1 then return "" end
    if #s * n > MOST_REPEATED then error("resulting string too large", 2) end
    return rep(s, n)
end

globals.string = shield(strings)
local metatable_of_strings = getmetatable("")
metatable_of_strings.__index = strings
metatable_of_strings.__metatable = shield { __index = globals.string }

local tables = copied(table)
for _, name in ipairs { "insert", "remove", "sort" } do
    local change = tables[name]
    tables[name] = function(...)
        expect_table(1, name, ...)
        writable((...))
        if name == "insert" and (select("#", ...) < 2 or select("#", ...) > 3) then
            error("wrong number of arguments to 'insert'", 2)
        end
        return change(...)
    end
end
globals.table = shield(tables)

local maths = copied(math)

function maths.random(low, high)
    local r = native.random()
    if low == nil then return r end
    local number = high and 2 or 1
    if high == nil then low, high = 1, low end
    low, high = floor(low), floor(high)
    if low > high then
        error("bad argument #" .. number .. " to 'random' (interval is empty)", 2)
    end
    return floor(r * (high - low + 1)) + low
end

function maths.randomseed(seed)
    native.randomseed(tonumber(seed) or 0)
end
globals.math = shield(maths)

for _, name in ipairs { "bit", "struct", "cmsgpack" } do
    globals[name] = shield(native[name])
end

-- Each has settings of its own. Those of `cjson` itself last as long as the script.
local function with_new(library)
    function library.new() return shield(with_new(native.new_cjson())) end
    return library
end
globals.cjson = shield(with_new(native.cjson))

local redis = {
    LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
    REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = 3,
    REDIS_VERSION = native.version, REDIS_VERSION_NUM = native.version_number,
}

function redis.error_reply(text)
    if type(text) ~= "string" then
        return { err = "ERR wrong number or type of arguments" }
    end
    if sub(text, 1, 1) == "-" then text = sub(text, 2) end
    -- A text of one word is a message without a code.
    if not text:find(" ", 1, true) then text = "ERR " .. text end
    return { err = text }
end

function redis.status_reply(text)
    if type(text) ~= "string" then
        return { err = "ERR wrong number or type of arguments" }
    end
    return { ok = text }
end

redis.sha1hex, redis.set_repl, redis.setresp = native.sha1hex, native.set_repl, native.setresp

-- There is no debugger, and what is done is logged as it always is.
function redis.breakpoint() return false end
function redis.debug() end
function redis.replicate_commands() return true end
globals.redis = shield(redis)

-- An error with the place that it comes from: the innermost function of a script.
local function describe(e)
    if is_halted() then return { err = HALTED } end
    e = plain(e)
    local text = e
    if type(e) == "table" then
        text = rawget(e, "err")
        if type(text) ~= "string" then text = "ERR the script raised a table without an error text" end
    else
        text = "ERR " .. tostring(e)
    end
    local source, line = place()
    return { err = text, source = source, line = line }
end

-- Reaches the transaction of the script that runs.
local current

local asks_protected = native.protected
local function protected_call(...) return current(asks_protected, ...) end

-- Runs a script, or a function of a library, which has its keys and arguments as its own.
local function run(f, is_function, keys, arguments, call)
    current = call
    if is_function then
        local callback = f
        f = function() return callback(keys, arguments) end
    else
        globals.KEYS, globals.ARGV = keys, arguments
    end
    redis.call, redis.pcall = call, protected_call
    redis.acl_check_cmd, redis.log = native.may_run, native.log
    local ok, result = xpcall(f, describe)
    globals.KEYS, globals.ARGV = nil, nil
    redis.call, redis.pcall, redis.acl_check_cmd, redis.log = nil, nil, nil, nil
    current = nil
    if ok then return true, result end
    -- Not enough memory, or an error in describing one: there is no place.
    if type(result) ~= "table" then return false, "ERR " .. tostring(plain(result)) end
    return false, result.err, result.source, result.line
end

-- The arguments by name of `redis.register_function`, with their types.
local NAMED = { function_name = "string", callback = "function", flags = "table", description = "string" }

local function named_arguments(given)
    local function refuse(text) error(text, 0) end
    for name, value in pairs(given) do
        local wanted = NAMED[name]
        if not wanted then refuse("unknown argument given to redis.register_function") end
        if type(value) ~= wanted then
            if name == "flags" then
                refuse("flags argument to redis.register_function must be a table representing function flags")
            end
            refuse(name .. " argument given to redis.register_function must be a " .. wanted)
        end
    end
    if not given.function_name then
        refuse("redis.register_function must get a function name argument")
    end
    if not given.callback then
        refuse("redis.register_function must get a callback argument")
    end
    return given
end

local function registered(...)
    local count = select("#", ...)
    local first, second = ...
    if count < 1 or count > 2 then
        error("wrong number of arguments to redis.register_function", 0)
    end
    if count == 1 then
        if type(first) ~= "table" then
            error("calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).", 0)
        end
        return named_arguments(first)
    end
    if type(first) ~= "string" and type(first) ~= "number" then
        error("first argument to redis.register_function must be a string", 0)
    end
    if type(second) ~= "function" then
        error("second argument to redis.register_function must be a function", 0)
    end
    return { function_name = tostring(first), callback = second }
end

-- Runs the code of a library: returns true and its functions, or false and an error.
local function load(f)
    local found = {}
    function redis.register_function(...)
        local new = registered(...)
        native.check_function(new.function_name, new.flags or {})
        for _, other in ipairs(found) do
            if other.function_name:lower() == new.function_name:lower() then
                error("Function already exists in the library", 0)
            end
        end
        found[#found + 1] = {
            function_name = new.function_name,
            callback = new.callback,
            flags = new.flags or {},
            description = new.description,
        }
    end
    local ok, result = xpcall(f, describe)
    redis.register_function = nil
    if ok then return true, found end
    return false, type(result) == "table" and result.err or "ERR " .. tostring(plain(result))
end

return compile, run, load
