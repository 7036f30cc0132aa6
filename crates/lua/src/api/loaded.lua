local loaded, preload = package.loaded, package.preload
loaded.ngx = ngx
loaded.ndk = ndk

-- Its functions are the server's own: whoever asks for it has it already.
loaded["resty.core"] = { version = "0.1.33" }

for _, name in ipairs({
    "base64", "ctx", "exit", "hash", "misc", "ndk", "param", "phase", "regex", "request", "response",
    "shdict", "time", "uri", "utils", "var", "worker",
}) do
    preload["resty.core." .. name] = function()
        return { version = "0.1.33" }
    end
end
