local at, check = ngx.timer.at, ngx.timer._check
ngx.timer._check = nil

local select, unpack = select, unpack

-- Begins anew before it runs, as long as its configuration does not end.
function ngx.timer.every(delay, f, ...)
    check(delay, f)
    local count, arguments = select("#", ...), { ... }
    local function run(premature)
        if not premature then
            at(delay, run)
        end
        return f(premature, unpack(arguments, 1, count))
    end
    return at(delay, run)
end
