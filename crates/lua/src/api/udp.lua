local methods, is_address, check_waits = ngx._udp, ngx._is_address, ngx._check_waits
ngx._udp, ngx._is_address, ngx._check_waits = nil, nil, nil
methods.__index = methods

local error, select, setmetatable, tonumber = error, select, setmetatable, tonumber
-- In a socket: 1 is its number, 2 its owner, 6 how long it waits, 11 where it comes from.

function methods.settimeout(self, ms, ...)
    if select("#", ...) > 0 or ms == nil then
        error("ngx.socket settimout: expecting at least 2 arguments (including the object) but seen "
            .. (ms == nil and 1 or 2 + select("#", ...)), 2)
    end
    self[6] = tonumber(ms)
end

function methods.bind(self, ip, ...)
    if ip == nil or select("#", ...) > 0 then
        error("expecting 2 arguments, but got " .. (ip == nil and 1 or 2 + select("#", ...)), 2)
    end
    if not is_address(ip) then
        return nil, "bad address"
    end
    self[11] = ip
    return 1
end

function ngx.socket.udp(...)
    if select("#", ...) > 0 then
        error("expecting zero arguments, but got " .. select("#", ...), 2)
    end
    local refused = check_waits()
    if refused then
        error(refused, 2)
    end
    return setmetatable({}, methods)
end
