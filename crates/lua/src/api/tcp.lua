local methods, read_until, is_address = ngx._tcp, ngx._tcp_until, ngx._is_address
local check_waits = ngx._check_waits
ngx._tcp, ngx._tcp_until = nil, nil

local error, setmetatable, tonumber, tostring, type = error, setmetatable, tonumber, tostring, type
local select = select

methods.__index = methods

-- In a socket: 1 stands for it, 2 for its owner, 3 is the key of its pool, 4, 5 and 8 are its timeouts, 11 is
-- where it comes from, and 12 its port there. Between them are those of lua-resty-core.

local function is_timeout(ms)
    return type(ms) == "number" and ms >= 0 and ms <= 2147483647
end

function methods.settimeouts(self, ...)
    if select("#", ...) ~= 3 then
        error("ngx.socket settimeouts: expecting 4 arguments (including the object) but seen "
            .. 1 + select("#", ...), 2)
    end
    local connect, send, read = ...
    connect, send, read = tonumber(connect or 0), tonumber(send or 0), tonumber(read or 0)
    if not (is_timeout(connect) and is_timeout(send) and is_timeout(read)) then
        error("bad timeout value", 2)
    end
    self[4], self[5], self[8] = connect, send, read
end

function methods.settimeout(self, ...)
    if select("#", ...) ~= 1 then
        error("ngx.socket settimeout: expecting 2 arguments (including the object) but seen "
            .. 1 + select("#", ...), 2)
    end
    local ms = tonumber((...) or 0)
    if not is_timeout(ms) then
        error("bad timeout value", 2)
    end
    self[4], self[5], self[8] = ms, ms, ms
end

local options = {
    keepalive = 1, reuseaddr = 2, ["tcp-nodelay"] = 3, sndbuf = 4, rcvbuf = 5, keepintvl = 6, keepcnt = 7,
}
local get_option, set_option = methods._getoption, methods._setoption
methods._getoption, methods._setoption = nil, nil

local function check_connected(self)
    if not self[1] then
        error("socket is never created nor connected", 3)
    end
end

function methods.getoption(self, option)
    check_connected(self)
    if option == nil then
        return nil, 'missing the "option" argument'
    end
    local number = options[option]
    if not number then
        return nil, "unsupported option " .. tostring(option)
    end
    return get_option(self, number)
end

function methods.setoption(self, option, value)
    if option == nil then
        return nil, 'missing the "option" argument'
    end
    if value == nil then
        return nil, 'missing the "value" argument'
    end
    check_connected(self)
    local number = options[option]
    if not number then
        return nil, "unsupported option " .. tostring(option)
    end
    if type(value) == "boolean" then
        value = value and 1 or 0
    end
    return set_option(self, number, value)
end

function methods.bind(self, ip, ...)
    if ip == nil or select("#", ...) > 1 then
        error("expecting 2 or 3 arguments, but got " .. (ip == nil and 1 or 2 + select("#", ...)), 2)
    end
    if not is_address(ip) then
        return nil, "bad address"
    end
    local port = select(1, ...)
    if port ~= nil then
        port = tonumber(port)
        if not port or port < 0 or port > 65535 then
            return nil, "bad port"
        end
    end
    self[11], self[12] = ip, port
    return 1
end

function methods.receiveuntil(self, pattern, options, ...)
    if type(self) ~= "table" then
        error("bad argument #1 to 'receiveuntil' (table expected, got " .. type(self) .. ")", 2)
    end
    if pattern == nil or select("#", ...) > 0 then
        error("expecting 2 or 3 arguments (including the object), but got "
            .. (pattern == nil and 1 or 3 + select("#", ...)), 2)
    end
    if type(pattern) == "number" then
        pattern = tostring(pattern)
    end
    if type(pattern) ~= "string" then
        error("bad argument #2 to 'receiveuntil' (string expected, got " .. type(pattern) .. ")", 2)
    end
    local inclusive = false
    if options ~= nil then
        if type(options) ~= "table" then
            error("bad argument #3 to 'receiveuntil' (table expected, got " .. type(options) .. ")", 2)
        end
        inclusive = options.inclusive
        if inclusive == nil then
            inclusive = false
        elseif type(inclusive) ~= "boolean" then
            error('bad "inclusive" option value type: ' .. type(inclusive), 2)
        end
    end
    if pattern == "" then
        return nil, "pattern is empty"
    end

    local is_over = false
    local function answer(data, err, partial, is_last)
        if data then
            is_over = is_last
            return data
        end
        return nil, err, partial
    end
    return function(size, ...)
        if select("#", ...) > 0 then
            error("expecting 0 or 1 argument, but seen " .. 1 + select("#", ...), 2)
        end
        if is_over then
            is_over = false
            return nil, nil, nil
        end
        return answer(read_until(self, pattern, inclusive, size))
    end
end

function ngx.socket.tcp(...)
    if select("#", ...) > 0 then
        error("expecting zero arguments, but got " .. select("#", ...), 2)
    end
    local refused = check_waits()
    if refused then
        error(refused, 2)
    end
    return setmetatable({}, methods)
end

ngx.socket.stream = ngx.socket.tcp

local begin_body = ngx._body_socket
ngx._body_socket = nil

ngx._tcp_methods = methods

local body_methods = {
    receive = methods.receive,
    receiveany = methods.receiveany,
    receiveuntil = methods.receiveuntil,
    settimeout = methods.settimeout,
    settimeouts = methods.settimeouts,
    getfd = methods.getfd,
    getoption = methods.getoption,
    setoption = methods.setoption,
}
body_methods.__index = body_methods

local client_methods = {
    receive = methods.receive,
    receiveany = methods.receiveany,
    receiveuntil = methods.receiveuntil,
    send = methods.send,
    settimeout = methods.settimeout,
    settimeouts = methods.settimeouts,
    getfd = methods.getfd,
    getoption = methods.getoption,
    setoption = methods.setoption,
}
client_methods.__index = client_methods

-- Where lua-resty-core puts functions of its own into them.
local registry = debug.getregistry()
registry.__tcp_cosocket_mt, registry.__tcp_req_cosocket_mt = methods, body_methods
registry.__tcp_raw_req_cosocket_mt = client_methods

function ngx.req.socket(...)
    if select("#", ...) > 1 then
        error("expecting 0 or 1 argument, but got " .. select("#", ...), 2)
    end
    local socket = {}
    local ok, err = begin_body(socket, (...))
    if not ok then
        return nil, err
    end
    return setmetatable(socket, (...) and client_methods or body_methods)
end

local function connected(socket, ok, err)
    if ok then
        return socket
    end
    return nil, err
end

function ngx.socket.connect(...)
    local socket = setmetatable({}, methods)
    return connected(socket, methods.connect(socket, ...))
end
