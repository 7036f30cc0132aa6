local native, hello, session, proxy = ngx._ssl, ngx._clienthello, ngx._session, ngx._proxyssl
ngx._ssl, ngx._clienthello, ngx._session, ngx._proxyssl = nil, nil, nil, nil

local error, ipairs, pairs, type = error, ipairs, pairs, type
local concat = table.concat
local ssl = require "ngx.ssl"

ssl.SSL3_VERSION = 0x0300
ssl.TLS1_VERSION = 0x0301
ssl.TLS1_1_VERSION = 0x0302
ssl.TLS1_2_VERSION = 0x0303
ssl.TLS1_3_VERSION = 0x0304

for _, name in ipairs({
    "clear_certs", "server_name", "server_port", "raw_client_addr", "raw_server_addr", "get_tls1_version",
    "cert_pem_to_der",
}) do
    local work = native[name]
    ssl[name] = function(...)
        return work(...)
    end
end

local function set_der(convert, set)
    return function(der)
        local pem, err = convert(der)
        if not pem then
            return nil, err
        end
        return set(pem)
    end
end

ssl.set_der_cert = set_der(native.cert_der_to_pem, native.set_cert)
ssl.set_der_priv_key = set_der(native.priv_key_der_to_pem, native.set_priv_key)

function ssl.set_cert(certificates)
    return native.set_cert(ssl._certificates(certificates) or "")
end

function ssl.set_priv_key(key)
    return native.set_priv_key(ssl._key(key) or "")
end

function ssl.priv_key_pem_to_der(pem, password)
    return native.priv_key_pem_to_der(pem, password)
end

function ssl.parse_der_cert(der)
    local pem, err = native.cert_der_to_pem(der)
    if not pem then
        return nil, err
    end
    return ssl.parse_pem_cert(pem)
end

function ssl.parse_der_priv_key(der)
    local pem, err = native.priv_key_der_to_pem(der)
    if not pem then
        return nil, err
    end
    return ssl.parse_pem_priv_key(pem)
end

local names = {
    [0x0300] = "SSLv3", [0x0301] = "TLSv1", [0x0302] = "TLSv1.1", [0x0303] = "TLSv1.2", [0x0304] = "TLSv1.3",
}

local function named(get_number)
    return function()
        local name = names[get_number()]
        if name then
            return name
        end
        return nil, "unknown version"
    end
end

ssl.get_tls1_version_str = named(native.get_tls1_version)

-- As many bytes as are asked for, or with 0 how many there are.
for _, name in ipairs({ "get_client_random", "get_server_random", "get_session_master_key" }) do
    local get = native[name]
    ssl[name] = function(length)
        if length and type(length) ~= "number" then
            error("bad argument #1 to '" .. name .. "' (number expected, got " .. type(length) .. ")", 2)
        end
        local bytes, err = get()
        if not bytes then
            return nil, err
        end
        if length == 0 then
            return #bytes
        end
        return bytes:sub(1, length or #bytes)
    end
end

function ssl.export_keying_material(length, label, context)
    return native.export_keying_material(length, label, context)
end

function ssl.get_req_shared_ssl_ciphers()
    return native.get_shared_ciphers()
end

-- Certificates that are trusted, in place of those of the configuration where there are any.
function ssl.verify_client(authorities, depth, trusted)
    local function pem(certificates)
        return certificates and (ssl._certificates(certificates) or "none") or ""
    end
    return native.verify_client(pem(authorities), depth or -1, pem(trusted))
end

local clienthello = { version = ssl.version }

function clienthello.get_client_hello_server_name()
    return hello.server_name()
end

function clienthello.get_client_hello_ext(kind)
    if not kind or type(kind) ~= "number" then
        return nil, "bad argument: ext_type must be a number"
    end
    return hello.extension(kind)
end

function clienthello.get_client_hello_ext_present()
    return hello.extensions()
end

function clienthello.get_client_hello_ciphers()
    return hello.ciphers()
end

function clienthello.get_supported_versions()
    local spoken = {}
    for _, number in ipairs(hello.versions()) do
        if names[number] then
            spoken[#spoken + 1] = names[number]
        end
    end
    return spoken
end

function clienthello.set_protocols(protocols)
    return hello.set_protocols(concat(protocols, " "))
end

local sessions = { version = ssl.version }

function sessions.get_session_id()
    return session.id()
end

function sessions.get_serialized_session()
    return session.get()
end

function sessions.set_serialized_session(text)
    return session.set(text)
end

local proxyssl = { version = ssl.version, get_tls1_version_str = named(proxy.get_tls1_version) }

function proxyssl.get_tls1_version()
    return proxy.get_tls1_version()
end

for _, name in ipairs({
    "SSL3_VERSION", "TLS1_VERSION", "TLS1_1_VERSION", "TLS1_2_VERSION", "TLS1_3_VERSION",
}) do
    proxyssl[name] = ssl[name]
end

local proxysslcert = { version = ssl.version }

function proxysslcert.clear_certs()
    return proxy.clear_certs()
end

function proxysslcert.set_cert(certificates)
    return proxy.set_cert(ssl._certificates(certificates) or "")
end

function proxysslcert.set_priv_key(key)
    return proxy.set_priv_key(ssl._key(key) or "")
end

proxysslcert.set_der_cert = set_der(native.cert_der_to_pem, proxy.set_cert)
proxysslcert.set_der_priv_key = set_der(native.priv_key_der_to_pem, proxy.set_priv_key)

local proxysslverify = { version = ssl.version }

function proxysslverify.set_verify_result(number)
    return proxy.set_verify_result(number)
end

function proxysslverify.get_verify_result()
    return proxy.get_verify_result()
end

function proxysslverify.get_verify_cert()
    local pem, err = proxy.get_verify_cert()
    if not pem then
        return nil, err
    end
    return ssl.parse_pem_cert(pem)
end

for name, module in pairs({
    ["ngx.proxyssl"] = proxyssl, ["ngx.ssl.proxysslcert"] = proxysslcert,
    ["ngx.ssl.proxysslverify"] = proxysslverify,
}) do
    package.preload[name] = function()
        return module
    end
end

package.preload["ngx.ssl.clienthello"] = function()
    return clienthello
end

package.preload["ngx.ssl.session"] = function()
    return sessions
end
