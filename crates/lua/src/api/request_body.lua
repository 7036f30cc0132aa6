local set_body_file = ngx.req._set_body_file
ngx.req._set_body_file = nil
local error = error

function ngx.req.set_body_file(...)
    local ok, err = set_body_file(...)
    if not ok and err then
        error(err, 2)
    end
end
