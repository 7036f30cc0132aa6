local loaded = package.loaded
ngx._tcp_methods = nil
loaded.ngx = ngx
loaded.ndk = ndk

-- Modules that call OpenSSL's functions by name, as those of the process: the server itself has none of them,
-- so the system's library is loaded before the first such module.
local needs_crypto = {
    aes = true, hmac = true, md5 = true, random = true, rsa = true, sha = true, sha1 = true, sha224 = true,
    sha256 = true, sha384 = true, sha512 = true,
}
local crypto

table.insert(package.loaders, 2, function(name)
    if not crypto and needs_crypto[name:match("^resty%.(%w+)$")] then
        local ffi = require "ffi"
        local ok, library = pcall(ffi.load, "libcrypto.so.3", true)
        crypto = ok and library
    end
    return nil
end)

-- Upstream has `resty.core` loaded from the start; here that happens when code looks whether it is.
local is_looked_for = false
setmetatable(loaded, {
    __index = function(_, name)
        if name == "resty.core" and not is_looked_for then
            is_looked_for = true
            local ok, core = pcall(require, name)
            is_looked_for = false
            return ok and core or nil
        end
        return nil
    end,
})
