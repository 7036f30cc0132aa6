-- Modules that OpenResty's packages bring, in terms of what the server has. Those whose functions are the
-- server's own anyway (resty.core.*) are there for code that asks for them by name.
local native = ngx._modules
ngx._modules = nil

local ffi = require "ffi"
local assert, ceil, error, next, select = assert, math.ceil, error, next, select
local loadstring, tonumber, tostring, type = loadstring, tonumber, tostring, type
local preload, registry = package.preload, debug.getregistry()
local VERSION = "0.1.33"

ffi.cdef [[
    typedef struct { size_t len; const unsigned char *data; } ngx_str_t;
    typedef struct ngx_http_request_s ngx_http_request_t;
    typedef struct { int len; const unsigned char *data; } ngx_http_lua_ffi_str_t;
]]

local shown = ffi.cast("ngx_http_request_t *", native.vm)
local vm = ffi.cast("void *", native.vm)
local look = ffi.cast("clearway_fast", native.is_for_request)

local function is_for_request()
    return look(vm, nil, 0, nil, 0, 0, 0) == 1
end

-- Any address will do, as long as C gets it back only; it is the VM's.
local function get_request()
    if is_for_request() then
        return shown
    end
end

preload["thread.exdata"] = function()
    return function(data)
        if data ~= nil then
            error("a thread's data is the server's", 2)
        end
        return get_request()
    end
end

local base = {
    version = VERSION, get_request = get_request, new_tab = require "table.new",
    clear_tab = require "table.clear", FFI_OK = 0, FFI_ERROR = -1, FFI_AGAIN = -2, FFI_BUSY = -3,
    FFI_DONE = -4, FFI_DECLINED = -5, FFI_ABORT = -6, FFI_NO_REQ_CTX = -100, FFI_BAD_CONTEXT = -101,
}

local bytes = ffi.typeof("char[?]")
local room, room_bytes, size, message = nil, 4096, ffi.new("size_t[1]"), ffi.new("char *[1]")

function base.get_string_buf_size()
    return room_bytes
end

function base.set_string_buf_size(wanted)
    if wanted > 0 then
        room, room_bytes = nil, ceil(wanted)
    end
end

function base.get_string_buf(wanted, own)
    if own or wanted > room_bytes then
        return ffi.new(bytes, wanted)
    end
    room = room or ffi.new(bytes, room_bytes)
    return room
end

function base.get_size_ptr()
    return size
end

function base.get_errmsg_ptr()
    return message
end

-- A place in a table for a value, by number; [0] is the first of those that were given back.
function base.ref_in_table(places, value)
    if value == nil then
        return -1
    end
    local free = places[0]
    if free and free ~= 0 then
        places[0] = places[free]
    else
        free = #places + 1
    end
    places[free] = value
    return free
end

function base.allows_subsystem(...)
    for i = 1, select("#", ...) do
        if select(i, ...) == "http" then
            return
        end
    end
    error("unsupported subsystem: http", 2)
end

local context = { version = VERSION }

-- The table, which is made if there is none: of the one that is given.
function context.get_ctx_table(given)
    if given and not native.has_ctx() then
        ngx.ctx = given
    end
    return ngx.ctx
end

local utils = { version = VERSION }

function utils.str_replace_char(text, find, with)
    if not text:find(find, 1, true) then
        return text
    end
    local from, to, count = find:byte(), with:byte(), #text
    local made = base.get_string_buf(count)
    for at = 1, count do
        local byte = text:byte(at)
        made[at - 1] = byte == from and to or byte
    end
    return ffi.string(made, count)
end

local function values_of(value)
    if type(value) ~= "table" then
        return tostring(value)
    end
    local texts = {}
    for at = 1, #value do
        texts[at] = tostring(value[at])
    end
    return texts, #texts == 0
end

local request, set_header = { version = VERSION }, ngx.req.set_header
local add_request_header = native.add_request_header

function request.set_req_header(name, value, override)
    if not is_for_request() then
        error("API disabled in the current context", 3)
    end
    if name == nil then
        error("bad 'name' argument: string expected, got nil", 3)
    end
    name = tostring(name)
    if override then
        return set_header(name, value)
    end
    if value == nil then
        error("bad 'value' argument: string or table expected, got nil", 3)
    end
    local texts, is_empty = values_of(value)
    if is_empty then
        error("bad 'value' argument: non-empty table expected", 3)
    end
    return add_request_header(name, texts)
end

local response, add_response_header = { version = VERSION }, native.add_response_header

function response.set_resp_header(_, name, value, no_override)
    if not no_override then
        ngx.header[tostring(name)] = value
        return
    end
    if value == nil then
        error("invalid header value", 3)
    end
    local texts, is_empty = values_of(value)
    if not is_empty then
        add_response_header(tostring(name), texts)
    end
end

response.bypass_if_checks = native.bypass_if_checks

local time = { version = VERSION }

function time.monotonic_msec()
    return native.monotonic_ms()
end

function time.monotonic_time()
    return native.monotonic_ms() / 1000
end

local magic = { version = VERSION, _VERSION = VERSION }
local properties = getmetatable(ngx)
local getters, setters = {}, {}

function magic.register_ngx_magic_key_getter(key, get)
    local any = properties.__index
    if not next(getters) then
        properties.__index = function(of, name)
            local known = getters[name]
            if known then
                return known()
            end
            return any(of, name)
        end
    end
    getters[key] = get
end

function magic.register_ngx_magic_key_setter(key, set)
    local any = properties.__newindex
    if not next(setters) then
        properties.__newindex = function(of, name, value)
            local known = setters[name]
            if known then
                return known(value)
            end
            return any(of, name, value)
        end
    end
    setters[key] = set
end

local errlog = { version = VERSION }

function errlog.raw_log(level, text)
    if type(level) ~= "number" then
        error("bad argument #1 to 'raw_log' (must be a number)", 2)
    end
    if type(text) ~= "string" then
        error("bad argument #2 to 'raw_log' (must be a string)", 2)
    end
    if not native.raw_log(level, text) then
        error("bad log level", 2)
    end
end

function errlog.get_sys_filter_level()
    return native.filter_level()
end

local NOT_KEPT = 'directive "lua_capture_error_log" is not set'

function errlog.set_filter_level(level)
    if not level then
        return nil, 'missing "level" argument'
    end
    if not native.are_lines_kept() then
        return nil, NOT_KEPT
    end
    if not native.keep_lines(level) then
        return nil, "bad log level: " .. level
    end
    return true
end

-- Level, time and text of each line that is taken, up to `most`, behind one another.
function errlog.get_logs(most, lines)
    if not native.are_lines_kept() then
        return nil, NOT_KEPT
    end
    lines = lines or {}
    local count = 0
    for _ = 1, most or 10 do
        local level, time, text = native.take_line()
        if not level then
            break
        end
        lines[count + 1], lines[count + 2], lines[count + 3] = level, time, text
        count = count + 3
    end
    lines[count + 1] = nil
    return lines
end

local process, process_type, master = { version = VERSION }, native.process_type, native.master_pid

function process.type()
    return process_type()
end

function process.get_master_pid()
    return master()
end

function process.enable_privileged_agent(connections)
    if ngx.get_phase() ~= "init" then
        return nil, "API disabled in the current context"
    end
    connections = connections or 512
    if type(connections) ~= "number" or connections < 0 then
        return nil, "bad 'connections' argument: number expected and greater than 0"
    end
    native.want_agent(connections)
    return true
end

function process.signal_graceful_exit()
    native.end_process()
end

local http_request, http_response = { version = VERSION }, { version = VERSION }

function http_request.add_header(name, value)
    return request.set_req_header(name, value, false)
end

function http_response.add_header(name, value)
    return response.set_resp_header(nil, name, value, true)
end

function http_response.set_status(status, reason)
    if not is_for_request() then
        error("no request found")
    end
    native.set_status(tonumber(status), reason or "")
end

http_response.bypass_if_checks = response.bypass_if_checks

-- Variables that the configuration says are there before processes have them, and where there is one alone.
-- What code has said since then, by C's setenv, counts for more.
local environment, getenv, had = native.environment, os.getenv, {}
for _, name in next, native.environment_names() do
    had[name] = getenv(name) or false
end

local function getenv_now(name)
    local text = type(name) == "number" and tostring(name) or name
    local value = getenv(name)
    if had[text] == nil or (value or false) ~= had[text] then
        return value
    end
    return environment(text) or value
end

-- As upstream, another one is there as soon as it is called behind `init_by_lua`.
function os.getenv(name)
    if is_for_request() then
        os.getenv = getenv_now
    end
    return getenv_now(name)
end

-- Modules of our own, by their names.
local own = {
    ["resty.core.base"] = base, ["resty.core.ctx"] = context, ["resty.core.utils"] = utils,
    ["resty.core.request"] = request,
    ["resty.core.response"] = response, ["resty.core.time"] = time, ["resty.core.misc"] = magic,
    ["ngx.errlog"] = errlog, ["ngx.process"] = process, ["ngx.req"] = http_request,
    ["ngx.resp"] = http_response, ["resty.core"] = { version = VERSION },
}

-- Those whose functions are the server's own anyway.
for name in ("base64 coroutine exit hash ndk param phase regex shdict socket uri var worker"):gmatch("%w+") do
    own["resty.core." .. name] = { version = VERSION }
end

-- Versions of lua-resty-core that were seen to run here, and modules of it that are taken from the path: what
-- they call is there. The others' functions are ours.
local VERIFIED = { [VERSION] = true }
local TAKEN = {}
for name in ("base base64 exit hash misc ndk param phase regex request response shdict socket time uri utils "
    .. "var worker coroutine ctx"):gmatch("%w+") do
    TAKEN["resty.core." .. name] = true
end
for name in ("balancer base64 core errlog ocsp pipe process proxyssl re req resp semaphore ssl "
    .. "ssl.clienthello ssl.proxysslcert ssl.proxysslverify ssl.session"):gmatch("%S+") do
    TAKEN[name == "core" and "resty.core" or "ngx." .. name] = true
end

-- Parts of the server's own have asked for some while the VM was made.
for name in next, TAKEN do
    package.loaded[name] = nil
end

-- Whether the path has a verified version, by the path: code may change it.
local verified = {}

local function is_verified()
    local path = package.path
    local known = verified[path]
    if known == nil then
        local file = package.searchpath("resty.core.base", path)
        local opened = file and io.open(file)
        local text = opened and opened:read("*a") or ""
        if opened then
            opened:close()
        end
        local version = text:match('_M%.version = "([%w.]+)"')
        known = version ~= nil and VERIFIED[version] == true
        verified[path] = known
        if file and not known then
            native.warn_of(version or "unknown")
        end
    end
    return known
end

-- What the whole of it brings is there before a part of it, as upstream has it: parts rely on others.
local is_begun = false

-- What that has loaded, for those who ask again: one function for all, since code that makes one is not
-- compiled.
local loaded_before = {}

local function loaded_module(name)
    return loaded_before[name]
end

-- It keeps tables of `ngx.ctx` on a shelf of its own, which those go over to that there are.
local function with_own_shelf(load)
    return function(...)
        local before = registry.ngx_lua_ctx_tables
        local module = load(...)
        local shelf = registry.ngx_lua_ctx_tables
        if shelf ~= before then
            for number, value in next, before do
                shelf[number] = value
            end
            native.set_shelf(shelf)
        end
        return module
    end
end

-- `_yield` is Lua's own to it, for what cannot wait; to the others it is what yields to the server.
local function with_raw_yield(load)
    return function(...)
        local to_server = coroutine._yield
        coroutine._yield = coroutine.yield
        local is_loaded, module = pcall(load, ...)
        coroutine._yield = to_server
        if not is_loaded then
            error(module, 0)
        end
        return module
    end
end

local AMID = { ["resty.core.ctx"] = with_own_shelf, ["resty.core.coroutine"] = with_raw_yield }

local function core_of_path(name)
    if not is_begun then
        is_begun = true
        require "resty.core"
    end
    local loaded = package.loaded[name]
    if type(loaded) == "table" then
        loaded_before[name] = loaded
        return loaded_module
    end
    local file = assert(package.searchpath(name, package.path))
    local load = assert(loadfile(file))
    local amid = AMID[name]
    return amid and amid(load) or load
end

local function own_module(name)
    return own[name]
end

-- Before modules that are there without a path.
table.insert(package.loaders, 1, function(name)
    if TAKEN[name] and is_verified() then
        return core_of_path(name)
    end
    local module = own[name]
    return module and own_module
end)

-- Modules that are found where the path has none of that name.
local code_of = native.code
table.insert(package.loaders, function(name)
    local code = code_of(name)
    return code and assert(loadstring(code, "=" .. name))
end)
