local native = ngx._balancer
ngx._balancer = nil

local error, tonumber, type = error, tonumber, type

local balancer = { version = "0.1.33" }

local function refuse(number, name, text)
    error("bad argument #" .. number .. " to '" .. name .. "' (" .. text .. ")", 3)
end

function balancer.set_current_peer(address, port, host)
    if host ~= nil and type(host) ~= "string" then
        refuse(3, "set_current_peer", "string expected, got " .. type(host))
    end
    return native.set_current_peer(address, tonumber(port or 0), host)
end

-- Seconds, and how many requests.
function balancer.enable_keepalive(timeout, requests)
    timeout, requests = timeout or 60, requests or 100
    for number, value in ipairs({ timeout, requests }) do
        if type(value) ~= "number" then
            refuse(number, "enable_keepalive", "number expected, got " .. type(value))
        end
        if value < 0 then
            refuse(number, "enable_keepalive", "expected >= 0")
        end
    end
    return native.enable_keepalive(timeout * 1000, requests)
end

function balancer.set_more_tries(count)
    return native.set_more_tries(count)
end

function balancer.get_last_failure()
    return native.get_last_failure()
end

local function milliseconds(seconds, what)
    if not seconds then
        return 0
    end
    if type(seconds) ~= "number" or seconds <= 0 then
        error("bad " .. what .. " timeout", 3)
    end
    return seconds * 1000
end

function balancer.set_timeouts(connect, send, read)
    connect = milliseconds(connect, "connect")
    send = milliseconds(send, "send")
    read = milliseconds(read, "read")
    local ok, err = native.set_timeouts(connect, send, read)
    if ok then
        return true
    end
    return false, err
end

function balancer.recreate_request()
    return native.recreate_request()
end

function balancer.set_upstream_tls(on)
    return native.set_upstream_tls(on ~= 0 and on ~= false)
end

function balancer.bind_to_local_addr(address)
    if type(address) ~= "string" then
        refuse(1, "bind_to_local_addr", "string expected, got " .. type(address))
    end
    return native.bind_to_local_addr(address)
end

package.preload["ngx.balancer"] = function()
    return balancer
end
