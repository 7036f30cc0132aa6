local mark = ngx._mark
ngx._mark = nil

local coroutine = coroutine
local error = error
local create, resume, yield = coroutine.create, coroutine.resume, coroutine.yield

-- Hands on what a thread below waits for, as often as it does.
local function pass(thread, ok, ...)
    if ok and (...) == mark then
        return pass(thread, resume(thread, yield(mark)))
    end
    return ok, ...
end

local function unwrap(ok, ...)
    if not ok then
        error((...), 0)
    end
    return ...
end

coroutine._yield = yield

function coroutine.resume(thread, ...)
    return pass(thread, resume(thread, ...))
end

function coroutine.wrap(f)
    local thread = create(f)
    return function(...)
        return unwrap(pass(thread, resume(thread, ...)))
    end
end
