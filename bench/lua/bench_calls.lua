return {
    echo = function(...) return ... end,
    count = function(by)
        counted = (counted or 0) + (by or 1)
        return counted
    end,
    burn = function(seconds)
        local till = os.clock() + seconds
        while os.clock() < till do end
    end,
    -- How often the connection was used before that a request has gone over.
    fetch = function(port)
        local sock = ngx.socket.tcp()
        assert(sock:connect("127.0.0.1", port))
        local times = sock:getreusedtimes()
        assert(sock:send("GET /cheap HTTP/1.1\r\nHost: a\r\n\r\n"))
        local length
        repeat
            local line = assert(sock:receive())
            length = length or line:match("^Content%-Length: (%d+)")
        until line == ""
        assert(sock:receive(tonumber(length)))
        assert(sock:setkeepalive(60000, 10))
        return times
    end,
    memory = function() return collectgarbage("count") end,
}
