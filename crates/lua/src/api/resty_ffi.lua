local ffi = require "ffi"
local host = ffi.cast("void *", ngx._host)
ngx._host = nil

-- What modules of others ask lua-resty-core's base for. A request is known to the server, not to them: what
-- they get stands for whatever their code runs for.
package.preload["resty.core.base"] = function()
    local base = { version = "0.1.33" }
    function base.get_request()
        return host
    end
    return base
end
