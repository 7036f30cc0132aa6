local loaded, preload = package.loaded, package.preload
ngx._tcp_methods = nil
loaded.ngx = ngx
loaded.ndk = ndk

-- Its functions are the server's own: whoever asks for it has it already.
loaded["resty.core"] = { version = "0.1.33" }

for _, name in ipairs({
    "base64", "coroutine", "exit", "hash", "ndk", "param", "phase", "regex", "shdict", "socket", "uri",
    "var", "worker",
}) do
    local module = "resty.core." .. name
    preload[module] = preload[module] or function()
        return { version = "0.1.33" }
    end
end

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
