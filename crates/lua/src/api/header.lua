local get_headers = ngx.resp._get_headers
ngx.resp._get_headers = nil
local gsub, lower = string.gsub, string.lower
local rawget, setmetatable = rawget, setmetatable

local any_case = {
    __index = function(headers, name)
        return rawget(headers, (gsub(lower(name), "_", "-")))
    end,
}

local function wrap(raw, headers, ...)
    if not raw then
        setmetatable(headers, any_case)
    end
    return headers, ...
end

function ngx.resp.get_headers(max, raw)
    return wrap(raw, get_headers(max, raw))
end

ngx._any_case = wrap
