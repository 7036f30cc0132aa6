-- The handlers of the site.
local _M = {}

function _M.rewrite()
    ngx.ctx.seen = "rewrite"
    if ngx.var.arg_away then
        return ngx.redirect("/moved?" .. ngx.var.arg_away)
    end
end

function _M.access()
    ngx.ctx.seen = ngx.ctx.seen .. " access"
    if ngx.var.arg_key == "wrong" then
        return ngx.exit(ngx.HTTP_FORBIDDEN)
    end
end

function _M.content()
    ngx.req.read_body()
    local body = ngx.req.get_body_data() or ""
    ngx.say(ngx.ctx.seen, " content ", ngx.req.get_method(), " ", #body)
end

function _M.body()
    ngx.arg[1] = string.upper(ngx.arg[1])
end

function _M.log()
    ngx.var.told = ngx.ctx.seen or "nothing"
    ngx.shared.counts:incr("logged", 1, 0)
end

-- One line of a server that counts.
function _M.visits(port)
    local sock = ngx.socket.tcp()
    sock:settimeout(10000)
    local ok, err = sock:connect("127.0.0.1", port)
    if not ok then
        ngx.status = 503
        return ngx.say("no count: ", err)
    end
    local key = ngx.var.arg_of or "all"
    sock:send("*2\r\n$4\r\nINCR\r\n$" .. #key .. "\r\n" .. key .. "\r\n")
    local line = sock:receive()
    sock:setkeepalive(10000, 10)
    ngx.say("visit ", line and line:sub(2))
end

function _M.digest()
    local ok, sum = ngx.run_worker_thread("words", "digest", "sum", ngx.var.arg_of or "", 1000)
    ngx.say(ok and sum or "refused")
end

-- What others answer, asked beside each other.
function _M.gathered()
    local answers = { ngx.location.capture_multi {
        { "/cached/part", { args = "of=1" } }, { "/plain.txt" }, { "/php/index.php" },
    } }
    for _, answer in ipairs(answers) do
        ngx.say(answer.status, " ", #answer.body)
    end
end

function _M.spins()
    local till = os.clock() + 0.05
    while os.clock() < till do end
    ngx.say("spun")
end

-- What holds its thread and does not know it.
function _M.sleeps()
    local ffi = require "ffi"
    if not _M.has_usleep then
        ffi.cdef "int usleep(unsigned int microseconds);"
        _M.has_usleep = true
    end
    ffi.C.usleep(50000)
    ngx.say("slept")
end

-- What tries each way before it gives up.
function _M.matches()
    local found = ngx.re.match(string.rep("a", 22), "^(a+)+b$")
    ngx.say(found and "found" or "none")
end

function _M.counts()
    ngx.say("workers ", ngx.shared.counts:get("workers"), " logged ", ngx.shared.counts:get("logged"))
end

return _M
