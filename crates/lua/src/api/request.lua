local get_headers = ngx.req._get_headers
ngx.req._get_headers = nil
local wrap = ngx._any_case
ngx._any_case = nil

function ngx.req.get_headers(max, raw)
    return wrap(raw, get_headers(max, raw))
end
