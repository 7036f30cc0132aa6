//! Sockets to other servers: their options, TLS. C is shown the number of a socket, which is never followed
//! as an address. Sessions are held as certificates are (`held`).
#![expect(unsafe_code, reason = "pointers that C gives")]

use std::any::Any;
use std::ffi::{c_int, c_uchar, c_void};
use std::ptr;

use super::asking::{ERROR, OK, ask, ask_of, bytes, copy_error, exported, fail, put};
use super::held::{free, held, hold};

/// A request, which is not looked at (rule 2 of `core.rs`).
type Request = *const c_void;

/// A socket, which is no address of anything.
type Shown = *const c_void;

/// Functions of sockets, by number.
#[expect(missing_docs, reason = "each is what the function of its name wants")]
pub mod sockets {
    pub const OPTION: u8 = 0;
    pub const SET_OPTION: u8 = 1;
    pub const DESCRIPTOR: u8 = 2;
    pub const SHAKE: u8 = 3;
    pub const SHAKEN: u8 = 4;
    /// The session is at this address now.
    pub const GIVEN: u8 = 5;
    pub const SESSION: u8 = 6;
    pub const LIBRARY: u8 = 7;
    pub const CONTEXT: u8 = 8;
    pub const TRUST: u8 = 9;
    /// A session is needed no longer.
    pub const FREED: u8 = 10;
}

/// `ngx_str_t`.
#[repr(C)]
struct Text {
    len: usize,
    data: *const u8,
}

fn about(what: u8, socket: Shown, numbers: [f64; 2]) -> [f64; 4] {
    [f64::from(what), socket.addr() as f64, numbers[0], numbers[1]]
}

/// # Safety
/// As of [`put`].
unsafe fn say(what: u8, socket: Shown, error: *mut *const u8) -> c_int {
    let numbers = about(what, socket, [0.0; 2]);
    // SAFETY: by the contract.
    ask(|core| core.tcp, &[], &numbers, |code, reply| unsafe { fail(code, reply, error) })
}

exported! {
    /// The value of an option, by lua-resty-core's number.
    fn ngx_http_lua_ffi_socket_tcp_getoption(
        socket: Shown,
        option: c_int,
        value: *mut c_int,
        error: *mut c_uchar,
        error_len: *mut usize,
    ) -> c_int {
        let numbers = about(sockets::OPTION, socket, [f64::from(option), 0.0]);
        ask(|core| core.tcp, &[], &numbers, |code, reply| {
            match code {
                OK => put(value, reply.number as c_int),
                _ => copy_error(reply, error, error_len),
            }
            code
        })
    }

    /// Sets it.
    fn ngx_http_lua_ffi_socket_tcp_setoption(
        socket: Shown,
        option: c_int,
        value: c_int,
        error: *mut c_uchar,
        error_len: *mut usize,
    ) -> c_int {
        let numbers = about(sockets::SET_OPTION, socket, [f64::from(option), f64::from(value)]);
        ask(|core| core.tcp, &[], &numbers, |code, reply| {
            if code != OK {
                copy_error(reply, error, error_len);
            }
            code
        })
    }

    /// Its descriptor; -1 with words.
    fn ngx_http_lua_ffi_socket_tcp_getfd(request: Request, socket: Shown, error: *mut *const u8) -> c_int {
        let _ = request;
        say(sockets::DESCRIPTOR, socket, error)
    }

    /// Has it speak TLS: 0; -4 where it does; -1 with words; or -2, and the thread yields for it.
    fn ngx_http_lua_ffi_socket_tcp_sslhandshake(
        request: Request,
        socket: Shown,
        session: *mut c_void,
        wants_session: c_int,
        name: *const Text,
        verify: c_int,
        staple: c_int,
        chain: *const c_void,
        key: *const c_void,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        let name = name.as_ref().map_or(&[][..], |name| bytes(name.data, name.len));
        let numbers = [
            f64::from(sockets::SHAKE),
            socket.addr() as f64,
            f64::from(u8::from(wants_session != 0)),
            f64::from(u8::from(verify != 0)),
            f64::from(u8::from(staple != 0)),
            session.addr() as f64,
            f64::from(u8::from(!chain.is_null())),
        ];
        let held = [held(session), held(chain), held(key)];
        let objects: Vec<&(dyn Any + Send)> = held.into_iter().flatten().collect();
        ask_of(&objects, |core| core.tcp, &[name], &numbers, |code, reply| match code {
            ERROR => fail(code, reply, error),
            code => code,
        })
    }

    /// The outcome, and the session, which stays the same until another handshake.
    fn ngx_http_lua_ffi_socket_tcp_get_sslhandshake_result(
        request: Request,
        socket: Shown,
        session: *mut *mut c_void,
        error: *mut *const u8,
        code: *mut c_int,
    ) -> c_int {
        let _ = request;
        put(code, 0);
        let numbers = about(sockets::SHAKEN, socket, [0.0; 2]);
        let made = ask(|core| core.tcp, &[], &numbers, |code, reply| {
            if code != OK {
                return Err(fail(code, reply, error));
            }
            let made = reply.object.take().map(|object| hold(Some(object)));
            Ok((made, reply.number as usize))
        });
        match made {
            Err(code) => code,
            Ok((None, given)) => {
                put(session, ptr::with_exposed_provenance_mut(given));
                OK
            }
            Ok((Some(made), _)) => {
                put(session, made);
                let numbers = about(sockets::GIVEN, socket, [made.expose_provenance() as f64, 0.0]);
                ask(|core| core.tcp, &[], &numbers, |code, _| code)
            }
        }
    }

    /// The session that the server has given since the last one was taken.
    fn ngx_http_lua_socket_tcp_get_ssl_session(
        request: Request,
        socket: Shown,
        session: *mut *mut c_void,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        put(session, ptr::null_mut());
        let numbers = about(sockets::SESSION, socket, [0.0; 2]);
        ask(|core| core.tcp, &[], &numbers, |code, reply| {
            if code == OK {
                put(session, hold(reply.object.take()));
            }
            fail(code, reply, error)
        })
    }

    /// Lua needs a session no longer.
    fn ngx_http_lua_ffi_ssl_free_session(session: *mut c_void) {
        ask(|core| core.tcp, &[], &about(sockets::FREED, session, [0.0; 2]), |_, _| ());
        free(session);
    }

    /// There is no object of OpenSSL's behind it.
    fn ngx_http_lua_ffi_socket_tcp_get_ssl_pointer(
        request: Request,
        socket: Shown,
        library: *mut *mut c_void,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        put(library, ptr::null_mut());
        say(sockets::LIBRARY, socket, error)
    }

    /// Nor a context.
    fn ngx_http_lua_ffi_socket_tcp_get_ssl_ctx(
        request: Request,
        socket: Shown,
        context: *mut *mut c_void,
        error: *mut *const u8,
    ) -> c_int {
        let _ = request;
        put(context, ptr::null_mut());
        say(sockets::CONTEXT, socket, error)
    }

    /// Stores of OpenSSL's are not understood.
    fn ngx_http_lua_ffi_socket_tcp_settrustedstore(
        request: Request,
        socket: Shown,
        store: *mut c_void,
        error: *mut *const u8,
    ) -> c_int {
        let (_, _) = (request, store);
        say(sockets::TRUST, socket, error)
    }
}
