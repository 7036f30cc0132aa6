local native = ngx._ocsp
ngx._ocsp = nil

local ocsp = { version = require("ngx.ssl").version }

function ocsp.get_ocsp_responder_from_der_chain(chain, longest)
    local url, err = native.responder(chain)
    if url and longest and #url > longest then
        return url:sub(1, longest), "truncated"
    end
    return url, err
end

function ocsp.create_ocsp_request(chain, longest)
    local question, err = native.question(chain)
    if question and longest and #question > longest then
        return nil, "output buffer too small: " .. #question .. " > " .. longest
    end
    return question, err
end

function ocsp.validate_ocsp_response(answer, chain, longest)
    local ok, said = native.judge(answer, chain)
    if not ok and longest then
        return nil, said:sub(1, longest)
    end
    return ok, said
end

function ocsp.set_ocsp_status_resp(answer)
    if native.set(answer) then
        return true
    end
    return true, "no status req"
end

package.preload["ngx.ocsp"] = function()
    return ocsp
end
