local deliver, error, pcall, require, type = ngx._deliver, error, pcall, require, type
ngx._deliver = nil

-- `pcall` stands between, so that errors of `require` have no place of this file in front.
function ngx._entry(module, name, ...)
    local ok, found = pcall(require, module)
    if not ok then
        error(found, 0)
    end
    if type(found) ~= "table" then
        error("invalid lua module", 0)
    end
    local f = found[name]
    if type(f) ~= "function" then
        error("invalid function", 0)
    end
    return deliver(f(...))
end
