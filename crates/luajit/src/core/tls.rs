//! Handshakes with clients and servers: facts about them, and the certificates that the other side is shown.
#![expect(unsafe_code, reason = "pointers that C gives")]

use std::any::Any;
use std::ffi::{c_int, c_uchar, c_uint, c_void};
use std::ptr;

use super::asking::{OK, ask, ask_of, bytes, copy, exported, fail, put, show};
use super::held::{held, hold};

/// A request, which is not looked at (rule 2 of `core.rs`).
type Request = *const c_void;

/// Functions of handshakes, by number.
#[expect(missing_docs, reason = "each is what the function of its name wants")]
pub mod handshake {
    pub const CLEAR: u8 = 0;
    pub const DER_CERTIFICATE: u8 = 1;
    pub const DER_KEY: u8 = 2;
    pub const CERTIFICATE: u8 = 3;
    pub const KEY: u8 = 4;
    pub const VERSION: u8 = 5;
    pub const SERVER_NAME: u8 = 6;
    pub const SERVER_ADDRESS: u8 = 7;
    pub const CLIENT_ADDRESS: u8 = 8;
    pub const SERVER_PORT: u8 = 9;
    pub const RANDOM: u8 = 10;
    pub const EXTENSION: u8 = 11;
    pub const EXTENSIONS: u8 = 12;
    pub const SUITES: u8 = 13;
    pub const PROTOCOLS: u8 = 14;
    pub const SESSION_ID: u8 = 15;
    pub const SESSION: u8 = 16;
    pub const SET_SESSION: u8 = 17;
    pub const ANSWER: u8 = 18;
    pub const VERIFICATION: u8 = 19;
    pub const SET_VERIFICATION: u8 = 20;
    pub const PEER_CERTIFICATE: u8 = 21;
    pub const UNKNOWN: u8 = 22;
    pub const SERVER_RANDOM: u8 = 23;
    pub const MASTER_KEY: u8 = 24;
    pub const SHARED_SUITES: u8 = 25;
    pub const EXPORT: u8 = 26;
    pub const CHECK_CLIENT: u8 = 27;
    /// With a server, not with a client: the second number.
    pub const WITH_SERVER: f64 = 1.0;
    /// Families of addresses.
    pub const UNIX: i32 = 0;
    pub const INET: i32 = 1;
    pub const INET6: i32 = 2;
}

use handshake::WITH_SERVER;

const WITH_CLIENT: f64 = 0.0;

/// Says something of a handshake, or looks at it.
///
/// # Safety
/// As of [`put`].
unsafe fn say(what: u8, side: f64, texts: &[&[u8]], error: *mut *const u8) -> c_int {
    let numbers = [f64::from(what), side];
    // SAFETY: by the contract.
    ask(|core| core.handshake, texts, &numbers, |code, reply| unsafe { fail(code, reply, error) })
}

/// Says something of a handshake with a thing that Lua holds.
///
/// # Safety
/// As of [`put`] and [`held`].
unsafe fn say_held(what: u8, side: f64, object: *const c_void, error: *mut *const u8) -> c_int {
    // SAFETY: by the contract.
    let objects: Vec<&(dyn Any + Send)> = unsafe { held(object) }.into_iter().collect();
    let numbers = [f64::from(what), side];
    // SAFETY: by the contract.
    ask_of(&objects, |core| core.handshake, &[], &numbers, |code, reply| unsafe { fail(code, reply, error) })
}

/// Shows C a text of the handshake.
///
/// # Safety
/// As of [`put`].
unsafe fn text_of(
    what: u8,
    number: f64,
    (data, len): (*mut *const u8, *mut usize),
    error: *mut *const u8,
) -> c_int {
    let numbers = [f64::from(what), WITH_CLIENT, number];
    ask(
        |core| core.handshake,
        &[],
        &numbers,
        |code, reply| {
            // SAFETY: by the contract.
            unsafe {
                if code >= OK {
                    show(reply, data, len);
                }
                fail(code, reply, error)
            }
        },
    )
}

/// # Safety
/// As of [`put`].
unsafe fn address_of(
    what: u8,
    (data, len): (*mut *const u8, *mut usize),
    family: *mut c_int,
    error: *mut *const u8,
) -> c_int {
    ask(
        |core| core.handshake,
        &[],
        &[f64::from(what), WITH_CLIENT],
        |code, reply| {
            // SAFETY: by the contract.
            unsafe {
                if code >= OK {
                    show(reply, data, len);
                    put(family, reply.number as c_int);
                }
                fail(code, reply, error)
            }
        },
    )
}

/// Copies a text of the handshake, where there is room for it, and says how long it is.
///
/// # Safety
/// As of [`copy`] and [`put`].
unsafe fn measured(what: u8, to: *mut u8, error: *mut *const u8) -> c_int {
    ask(
        |core| core.handshake,
        &[],
        &[f64::from(what), WITH_CLIENT],
        |code, reply| {
            if code < OK {
                // SAFETY: by the contract.
                return unsafe { fail(code, reply, error) };
            }
            // SAFETY: by the contract.
            unsafe { copy(to, &reply.text) };
            reply.text.len() as c_int
        },
    )
}

/// Numbers of cipher suites, as many as there is room for: how many.
///
/// # Safety
/// There is room for so many.
unsafe fn suites_of(what: u8, suites: *mut u16, room: usize, error: *mut *const u8) -> c_int {
    ask(
        |core| core.handshake,
        &[],
        &[f64::from(what), WITH_CLIENT],
        |code, reply| {
            if code < OK {
                // SAFETY: by the contract.
                return unsafe { fail(code, reply, error) };
            }
            let count = reply.places.len().min(room);
            for (at, number) in reply.places[..count].iter().enumerate() {
                // SAFETY: by the contract; `at` is less than `room`.
                unsafe { put(suites.add(at), *number as u16) };
            }
            count as c_int
        },
    )
}

/// A secret of the connection: as many bytes of it as there is room for, or how many they are.
///
/// # Safety
/// As of [`copy`] and [`put`].
unsafe fn secret(what: u8, to: *mut u8, room: *mut usize, error: *mut *const u8) -> c_int {
    let numbers = [f64::from(what), WITH_CLIENT];
    ask(
        |core| core.handshake,
        &[],
        &numbers,
        |code, reply| {
            // SAFETY: by the contract.
            unsafe {
                if code < OK {
                    return fail(code, reply, error);
                }
                let most = if room.is_null() { 0 } else { room.read_unaligned() };
                let count = reply.text.len().min(most);
                copy(to, &reply.text[..count]);
                put(room, if most == 0 { reply.text.len() } else { count });
            }
            OK
        },
    )
}

/// Asks for something that only an object of OpenSSL's could tell.
///
/// # Safety
/// As of [`put`].
unsafe fn unknown(error: *mut *const u8) -> c_int {
    // SAFETY: by the contract.
    unsafe { say(handshake::UNKNOWN, WITH_CLIENT, &[], error) }
}

exported! {
    /// The client is shown none of the configuration's certificates.
    fn ngx_http_lua_ffi_ssl_clear_certs(request: Request, error: *mut *const u8) -> c_int {
        let _ = request;
        say(handshake::CLEAR, WITH_CLIENT, &[], error)
    }

    /// The client is shown these certificates.
    fn ngx_http_lua_ffi_ssl_set_der_certificate(
        request: Request,
        der: *const c_uchar,
        len: usize,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        say(handshake::DER_CERTIFICATE, WITH_CLIENT, &[bytes(der, len)], error)
    }

    /// Their key.
    fn ngx_http_lua_ffi_ssl_set_der_private_key(
        request: Request,
        der: *const c_uchar,
        len: usize,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        say(handshake::DER_KEY, WITH_CLIENT, &[bytes(der, len)], error)
    }

    /// The client is shown these certificates, which Lua holds.
    fn ngx_http_lua_ffi_set_cert(request: Request, held: *const c_void, error: *mut *const u8) -> c_int {
        let _ = request;
        say_held(handshake::CERTIFICATE, WITH_CLIENT, held, error)
    }

    /// Their key, which Lua holds.
    fn ngx_http_lua_ffi_set_priv_key(request: Request, held: *const c_void, error: *mut *const u8) -> c_int {
        let _ = request;
        say_held(handshake::KEY, WITH_CLIENT, held, error)
    }

    /// The server is shown none of the configuration's certificates.
    fn ngx_http_lua_ffi_proxy_ssl_clear_certs(request: Request, error: *mut *const u8) -> c_int {
        let _ = request;
        say(handshake::CLEAR, WITH_SERVER, &[], error)
    }

    /// The server is shown these certificates.
    fn ngx_http_lua_ffi_proxy_ssl_set_der_certificate(
        request: Request,
        der: *const c_uchar,
        len: usize,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        say(handshake::DER_CERTIFICATE, WITH_SERVER, &[bytes(der, len)], error)
    }

    /// Their key.
    fn ngx_http_lua_ffi_proxy_ssl_set_der_private_key(
        request: Request,
        der: *const c_uchar,
        len: usize,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        say(handshake::DER_KEY, WITH_SERVER, &[bytes(der, len)], error)
    }

    /// The server is shown these certificates, which Lua holds.
    fn ngx_http_lua_ffi_proxy_ssl_set_cert(
        request: Request,
        held: *const c_void,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        say_held(handshake::CERTIFICATE, WITH_SERVER, held, error)
    }

    /// Their key, which Lua holds.
    fn ngx_http_lua_ffi_proxy_ssl_set_priv_key(
        request: Request,
        held: *const c_void,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        say_held(handshake::KEY, WITH_SERVER, held, error)
    }

    /// The version that is spoken with the client.
    fn ngx_http_lua_ffi_ssl_get_tls1_version(request: Request, error: *mut *const u8) -> c_int {
        let _ = request;
        say(handshake::VERSION, WITH_CLIENT, &[], error)
    }

    /// The version that is spoken with the server.
    fn ngx_http_lua_ffi_proxy_ssl_get_tls1_version(request: Request, error: *mut *const u8) -> c_int {
        let _ = request;
        say(handshake::VERSION, WITH_SERVER, &[], error)
    }

    /// The server that the client asks for; -5 where it does not say.
    fn ngx_http_lua_ffi_ssl_server_name(
        request: Request,
        name: *mut *const u8,
        len: *mut usize,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        text_of(handshake::SERVER_NAME, 0.0, (name, len), error)
    }

    /// The server name of the client's hello.
    fn ngx_http_lua_ffi_ssl_get_client_hello_server_name(
        request: Request,
        name: *mut *const u8,
        len: *mut usize,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        text_of(handshake::SERVER_NAME, 0.0, (name, len), error)
    }

    /// The bytes of the address that the client has connected to, and its family.
    fn ngx_http_lua_ffi_ssl_raw_server_addr(
        request: Request,
        address: *mut *const u8,
        len: *mut usize,
        family: *mut c_int,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        address_of(handshake::SERVER_ADDRESS, (address, len), family, error)
    }

    /// The bytes of the client's address, and its family.
    fn ngx_http_lua_ffi_ssl_raw_client_addr(
        request: Request,
        address: *mut *const u8,
        len: *mut usize,
        family: *mut c_int,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        address_of(handshake::CLIENT_ADDRESS, (address, len), family, error)
    }

    /// The port that the client has connected to.
    fn ngx_http_lua_ffi_ssl_server_port(request: Request, port: *mut u16, error: *mut *const u8) -> c_int {
        let _ = request;
        ask(
            |core| core.handshake,
            &[],
            &[f64::from(handshake::SERVER_PORT), WITH_CLIENT],
            |code, reply| {
                if code == OK {
                    put(port, reply.number as u16);
                }
                fail(code, reply, error)
            },
        )
    }

    /// The random bytes of the client's hello: as many as there is room for, or how many they are.
    fn ngx_http_lua_ffi_ssl_client_random(
        request: Request,
        to: *mut c_uchar,
        room: *mut usize,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        secret(handshake::RANDOM, to, room, error)
    }

    /// An extension of the client's hello; -5 where it is not there.
    fn ngx_http_lua_ffi_ssl_get_client_hello_ext(
        request: Request,
        kind: c_uint,
        data: *mut *const u8,
        len: *mut usize,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        text_of(handshake::EXTENSION, f64::from(kind), (data, len), error)
    }

    /// The numbers of the extensions of the client's hello, which stay until the next call.
    fn ngx_http_lua_ffi_ssl_get_client_hello_ext_present(
        request: Request,
        kinds: *mut *const c_int,
        count: *mut usize,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        let numbers = [f64::from(handshake::EXTENSIONS), WITH_CLIENT];
        ask(|core| core.handshake, &[], &numbers, |code, reply| {
            if code == OK {
                put(kinds, reply.places.as_ptr());
                put(count, reply.places.len());
            }
            fail(code, reply, error)
        })
    }

    /// The cipher suites of the client's hello: how many.
    fn ngx_http_lua_ffi_ssl_get_client_hello_ciphers(
        request: Request,
        suites: *mut u16,
        room: usize,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        suites_of(handshake::SUITES, suites, room, error)
    }

    /// The versions that may be spoken: bits of the library's.
    fn ngx_http_lua_ffi_ssl_set_protocols(request: Request, bits: c_int, error: *mut *const u8) -> c_int {
        let _ = request;
        let numbers = [f64::from(handshake::PROTOCOLS), WITH_CLIENT, f64::from(bits)];
        ask(|core| core.handshake, &[], &numbers, |code, reply| fail(code, reply, error))
    }

    /// The name of the session in hexadecimal digits.
    fn ngx_http_lua_ffi_ssl_get_session_id(
        request: Request,
        to: *mut c_uchar,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        measured(handshake::SESSION_ID, to, error).min(OK)
    }

    /// How many digits.
    fn ngx_http_lua_ffi_ssl_get_session_id_size(request: Request, error: *mut *const u8) -> c_int {
        let _ = request;
        measured(handshake::SESSION_ID, ptr::null_mut(), error)
    }

    /// The session that is to be kept.
    fn ngx_http_lua_ffi_ssl_get_serialized_session(
        request: Request,
        to: *mut c_uchar,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        measured(handshake::SESSION, to, error).min(OK)
    }

    /// How many bytes that is.
    fn ngx_http_lua_ffi_ssl_get_serialized_session_size(request: Request, error: *mut *const u8) -> c_int {
        let _ = request;
        measured(handshake::SESSION, ptr::null_mut(), error)
    }

    /// The session that the client asks for.
    fn ngx_http_lua_ffi_ssl_set_serialized_session(
        request: Request,
        session: *const c_uchar,
        len: c_int,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        let session = bytes(session, usize::try_from(len).unwrap_or(0));
        say(handshake::SET_SESSION, WITH_CLIENT, &[session], error)
    }

    /// The answer of an authority, for the client; -5 where it does not ask.
    fn ngx_http_lua_ffi_ssl_set_ocsp_status_resp(
        request: Request,
        answer: *const c_uchar,
        len: usize,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        say(handshake::ANSWER, WITH_CLIENT, &[bytes(answer, len)], error)
    }

    /// OpenSSL's number for the fault of the server's certificate; 0 is none.
    fn ngx_http_lua_ffi_proxy_ssl_get_verify_result(request: Request, error: *mut *const u8) -> c_int {
        let _ = request;
        say(handshake::VERIFICATION, WITH_SERVER, &[], error)
    }

    /// Says another one.
    fn ngx_http_lua_ffi_proxy_ssl_set_verify_result(
        request: Request,
        number: c_int,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        let numbers = [f64::from(handshake::SET_VERIFICATION), WITH_SERVER, f64::from(number)];
        ask(|core| core.handshake, &[], &numbers, |code, reply| fail(code, reply, error))
    }

    /// The server's certificate, for Lua to hold.
    fn ngx_http_lua_ffi_proxy_ssl_get_verify_cert(request: Request, error: *mut *const u8) -> *mut c_void {
        let _ = request;
        let numbers = [f64::from(handshake::PEER_CERTIFICATE), WITH_SERVER];
        ask(|core| core.handshake, &[], &numbers, |code, reply| {
            fail(code, reply, error);
            hold(reply.object.take().filter(|_| code >= OK))
        })
    }

    /// The cipher suites that both sides know, in the server's order; there has to be room for all that the
    /// server knows.
    fn ngx_http_lua_ffi_req_shared_ssl_ciphers(
        request: Request,
        suites: *mut u16,
        count: *mut u16,
        is_filtered: c_int,
        error: *mut *const u8,
    ) -> c_int {
        // No suite of the server's is one of those that mean nothing (GREASE).
        let (_, _) = (request, is_filtered);
        let room = if count.is_null() { 0 } else { count.read_unaligned() };
        let numbers = [f64::from(handshake::SHARED_SUITES), WITH_CLIENT, f64::from(room)];
        ask(|core| core.handshake, &[], &numbers, |code, reply| {
            put(count, reply.places.len().min(usize::from(room)) as u16);
            for (at, number) in reply.places.iter().take(usize::from(room)).enumerate() {
                put(suites.add(at), *number as u16);
            }
            fail(code, reply, error)
        })
    }

    /// There is no object of OpenSSL's behind the client's connection.
    fn ngx_http_lua_ffi_get_req_ssl_pointer(request: Request, error: *mut *const u8) -> *mut c_void {
        let _ = request;
        unknown(error);
        ptr::null_mut()
    }

    /// Nor behind the server's.
    fn ngx_http_lua_ffi_get_upstream_ssl_pointer(request: Request, error: *mut *const u8) -> *mut c_void {
        let _ = request;
        say(handshake::UNKNOWN, WITH_SERVER, &[], error);
        ptr::null_mut()
    }

    /// The client is asked for its certificate, which is checked by these; null: as the configuration says.
    fn ngx_http_lua_ffi_ssl_verify_client(
        request: Request,
        client: *const c_void,
        trusted: *const c_void,
        depth: c_int,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        let is_given = |held: *const c_void| f64::from(u8::from(!held.is_null()));
        let given = [is_given(client), is_given(trusted)];
        let objects: Vec<&(dyn Any + Send)> = held(client).into_iter().chain(held(trusted)).collect();
        let numbers =
            [f64::from(handshake::CHECK_CLIENT), WITH_CLIENT, f64::from(depth), given[0], given[1]];
        ask_of(&objects, |core| core.handshake, &[], &numbers, |code, reply| fail(code, reply, error))
    }

    /// The random bytes of the server's hello, once the handshake is over.
    fn ngx_http_lua_ffi_ssl_server_random(
        request: Request,
        to: *mut c_uchar,
        room: *mut usize,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        secret(handshake::SERVER_RANDOM, to, room, error)
    }

    /// The secret of the session.
    fn ngx_http_lua_ffi_ssl_session_master_key(
        request: Request,
        to: *mut c_uchar,
        room: *mut usize,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        secret(handshake::MASTER_KEY, to, room, error)
    }

    /// As many bytes as there is room for that only client and server can derive (RFC 5705).
    fn ngx_http_lua_ffi_ssl_export_keying_material(
        request: Request,
        to: *mut c_uchar,
        room: usize,
        label: *const c_uchar,
        label_len: usize,
        context: *const c_uchar,
        context_len: usize,
        has_context: c_int,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        let texts = [bytes(label, label_len), bytes(context, context_len)];
        let numbers = [f64::from(handshake::EXPORT), WITH_CLIENT, room as f64, f64::from(has_context)];
        ask(|core| core.handshake, &texts, &numbers, |code, reply| {
            if code == OK && reply.text.len() == room {
                copy(to, &reply.text);
            }
            fail(code, reply, error)
        })
    }

    /// Exports keying material of early data, which the TLS library cannot do.
    fn ngx_http_lua_ffi_ssl_export_keying_material_early(
        request: Request,
        to: *mut c_uchar,
        room: usize,
        label: *const c_uchar,
        label_len: usize,
        context: *const c_uchar,
        context_len: usize,
        error: *mut *const u8,
    ) -> c_int {
        let (_, _, _, _, _) = (request, to, room, label, label_len);
        let (_, _) = (context, context_len);
        unknown(error)
    }
}
