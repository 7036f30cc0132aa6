local native = ngx._pipe
ngx._pipe = nil

local ffi = require "ffi"
local concat, error, ipairs, tonumber, tostring, type = table.concat, error, ipairs, tonumber, tostring, type
local get_phase = ngx.get_phase
local ALL, BYTES, LINE, ANY = 0, 1, 2, 3
local TIMEOUT_MAX, TIMEOUT = 0xffffffff, 10000

ffi.cdef [[
    typedef struct {
        double number, write_timeout, stdout_read_timeout, stderr_read_timeout, wait_timeout;
        int _pid;
    } clearway_program;
]]

local TIMEOUTS = { "write_timeout", "stdout_read_timeout", "stderr_read_timeout", "wait_timeout" }
local methods = {}

local function check(program)
    if type(program) ~= "cdata" then
        error("not a process instance", 3)
    end
end

local function set_timeouts(program, values, level)
    for i, name in ipairs(TIMEOUTS) do
        local ms = values[i]
        if ms then
            if ms < 0 or ms > TIMEOUT_MAX then
                error("bad " .. name .. " option", level)
            end
            program[name] = ms
        end
    end
end

function methods.pid(program)
    return program._pid
end

function methods.set_timeouts(program, ...)
    set_timeouts(program, { ... }, 3)
end

local function reader(from, what, has_length)
    local is_errors, timeout = from == "stderr" and 1 or 0, from .. "_read_timeout"
    return function(program, length)
        if what == ANY then
            length = tonumber(length)
            if not length or length <= 0 then
                error("bad max argument", 2)
            end
        elseif has_length and length <= 0 then
            if length < 0 then
                error("bad len argument", 2)
            end
            return ""
        end
        check(program)
        return native.read(program.number, is_errors, what, length or 0, program[timeout])
    end
end

for _, from in ipairs { "stdout", "stderr" } do
    methods[from .. "_read_all"] = reader(from, ALL)
    methods[from .. "_read_bytes"] = reader(from, BYTES, true)
    methods[from .. "_read_line"] = reader(from, LINE)
    methods[from .. "_read_any"] = reader(from, ANY, true)
end

function methods.write(program, data)
    check(program)
    local kind = type(data)
    if kind == "table" then
        data = concat(data)
    elseif kind == "number" then
        data = tostring(data)
    elseif kind ~= "string" then
        error("bad data arg: string, number, or table expected, got " .. kind, 2)
    end
    return native.write(program.number, data, program.write_timeout)
end

local DIRECTIONS = { stdin = 0, stdout = 1, stderr = 2 }

function methods.shutdown(program, direction)
    check(program)
    local which = DIRECTIONS[direction]
    if not which then
        error("bad shutdown arg: " .. direction, 2)
    end
    return native.shutdown(program.number, which)
end

-- A program that could not be executed is one that has ended with 1, as where a child finds that out.
function methods.wait(program)
    check(program)
    if program._pid == 0 and program.number == 0 then
        program.number = -1
        return false, "exit", 1
    end
    return native.wait(program.number, program.wait_timeout)
end

function methods.kill(program, signal)
    check(program)
    if type(signal) ~= "number" then
        error("bad signal arg: number expected, got " .. tostring(signal), 2)
    end
    return native.kill(program.number, signal)
end

local Program = ffi.metatype("clearway_program", {
    __index = methods,
    __gc = function(program)
        native.drop(program.number)
    end,
})

local function words_of(args)
    local kind = type(args)
    if kind == "string" then
        return { "/bin/sh", "-c", args }
    end
    if kind ~= "table" then
        error("bad args arg: table expected, got " .. kind, 3)
    end
    local words = {}
    for i, word in ipairs(args) do
        words[i] = tostring(word)
    end
    if #words == 0 then
        error("bad args arg: non-empty table expected", 3)
    end
    return words
end

local function environment_of(environ)
    if type(environ) ~= "table" then
        error("bad environ option: table expected, got " .. type(environ), 3)
    end
    local words = {}
    for i, word in ipairs(environ) do
        if type(word) ~= "string" then
            error("bad value at index " .. i .. " of environ option: string expected, got " .. type(word), 3)
        end
        if not word:find("=", 2, true) then
            error("bad value at index " .. i .. " of environ option: 'name=[value]' format expected, got '"
                .. word .. "'", 3)
        end
        words[i] = word
    end
    return #words > 0 and words or nil
end

local pipe = { version = "0.1.33" }

function pipe.spawn(args, opts)
    if get_phase() == "init" then
        error("API disabled in the current context", 2)
    end
    local words, options = words_of(args), opts or {}
    local size, environ = 4096, nil
    if options.buffer_size then
        size = tonumber(options.buffer_size)
        if not size or size < 1 then
            error("bad buffer_size option", 2)
        end
    end
    if options.environ then
        environ = environment_of(options.environ)
    end
    local program, timeouts = Program(), {}
    for i, name in ipairs(TIMEOUTS) do
        timeouts[i] = options[name] or TIMEOUT
    end
    set_timeouts(program, timeouts, 3)
    native.read_ahead(words[1])
    local number, pid = native.spawn(words, options.merge_stderr and 1 or 0, size, environ)
    if not number then
        if pid then
            return nil, pid
        end
        return program
    end
    program.number, program._pid = number, pid
    return program
end

package.preload["ngx.pipe"] = function()
    return pipe
end
