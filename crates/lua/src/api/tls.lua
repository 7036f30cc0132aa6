local native = ngx._tls
ngx._tls = nil

local error, select, type, tostring = error, select, type, tostring
local handshake, latest, debug = native.handshake, native.session, native.debug
local read_certificates, read_key = native.read_certificates, native.read_key
local format = string.format
local ffi = require "ffi"

-- Texts that Lua takes for objects of the FFI, as callers expect of them.
ffi.cdef [[
    typedef struct { double number; uint32_t length; char bytes[?]; } clearway_tls_session;
    typedef struct { uint32_t length; char bytes[?]; } clearway_tls_certificates;
    typedef struct { uint32_t length; char bytes[?]; } clearway_tls_key;
]]
local session_type = ffi.typeof("clearway_tls_session")
local certificates_type = ffi.typeof("clearway_tls_certificates")
local key_type = ffi.typeof("clearway_tls_key")

local function hold(kind, text)
    local held = kind(#text)
    held.length = #text
    ffi.copy(held.bytes, text, #text)
    return held
end

local function text_of(kind, held)
    if type(held) == "cdata" and ffi.istype(kind, held) then
        return ffi.string(held.bytes, held.length)
    end
    return nil
end

local last = 0

local function let_go(session)
    debug(format("lua ssl free session: %012X", session.number))
end

local function keep(text, number)
    text = text or ""
    local session = session_type(#text)
    session.length = #text
    ffi.copy(session.bytes, text, #text)
    session.number = number
    debug(format("lua ssl save session: %012X", number))
    return ffi.gc(session, let_go)
end

local methods = ngx._tcp_methods
ngx._tcp_methods = nil

-- In a socket: 6 and 7 are the certificates and the key that it shows, 13 stands for one with TLS.

function methods.setclientcert(self, certificates, key)
    if not certificates and not key then
        self[6], self[7] = nil, nil
        return true
    end
    if not certificates or not key then
        return nil, "client certificate must be supplied with corresponding private key"
    end
    if type(certificates) ~= "cdata" then
        return nil, "bad cert arg: cdata expected, got " .. type(certificates)
    end
    if type(key) ~= "cdata" then
        return nil, "bad pkey arg: cdata expected, got " .. type(key)
    end
    self[6], self[7] = certificates, key
    return true
end

local function numbered(self, session, is_resumed)
    if is_resumed and type(session) == "cdata" then
        return session.number
    end
    last = last + 1
    return last
end

function methods.sslhandshake(self, session, name, verify, staple, ...)
    local excess = select("#", ...)
    if not self or excess > 0 then
        error("ngx.socket sslhandshake: expecting 1 ~ 5 arguments (including the object), but seen "
            .. (self and 5 + excess or 0))
    end
    if not self[1] then
        error("socket is never created nor connected")
    end
    local known = text_of(session_type, session)
    if known then
        debug(format("lua ssl set session: %012X", session.number))
    end
    if name and type(name) ~= "string" then
        name = tostring(name)
    end
    local certificates, key = text_of(certificates_type, self[6]), text_of(key_type, self[7])
    local was_secure = self[13] == self[1] and self[1]
    local is_resumed, said, text = handshake(self, known, name, verify, staple, certificates, key)
    if is_resumed == nil then
        return nil, said
    end
    if was_secure then
        if session then
            return session
        end
    else
        self[13] = self[1]
        debug(said)
        if is_resumed then
            debug("SSL reused session")
        end
    end
    if session == false then
        return true
    end
    -- A session that is taken up without another one being given is good for further connections.
    return keep(text or (is_resumed and known), numbered(self, session, is_resumed))
end

function methods.getsslsession(self)
    if not self then
        error("ngx.socket getsslsession: expecting the cosocket object, but seen none")
    end
    local is_resumed, err, text = latest(self)
    if is_resumed == nil then
        return nil, err
    end
    last = last + 1
    return keep(text, last)
end

local ssl = { version = "0.1.33" }

function ssl.parse_pem_cert(pem)
    local ok, err = read_certificates(pem)
    if not ok then
        return nil, err
    end
    return hold(certificates_type, pem)
end

function ssl.parse_pem_priv_key(pem)
    local ok, err = read_key(pem)
    if not ok then
        return nil, err
    end
    return hold(key_type, pem)
end

function ssl._certificates(held)
    return text_of(certificates_type, held)
end

function ssl._key(held)
    return text_of(key_type, held)
end

package.preload["ngx.ssl"] = function()
    return ssl
end
