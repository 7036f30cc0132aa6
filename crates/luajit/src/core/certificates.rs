//! Certificates and keys that Lua holds, and the answers of authorities (OCSP).
#![expect(unsafe_code, reason = "pointers that C gives")]

use std::ffi::{CStr, c_char, c_int, c_long, c_uchar, c_void};

use super::asking::{ERROR, OK, ask, bytes, copy, copy_error, exported, fail, put};
use super::held::{free, hold};

/// `NGX_BUSY`
const BUSY: c_int = -3;

/// Conversions of certificates and keys, by number.
#[expect(missing_docs, reason = "each is what the function of its name wants")]
pub mod reading {
    pub const PEM_TO_DER: u8 = 0;
    pub const KEY_PEM_TO_DER: u8 = 1;
    pub const OF_PEM: u8 = 2;
    pub const KEY_OF_PEM: u8 = 3;
    pub const OF_DER: u8 = 4;
    pub const KEY_OF_DER: u8 = 5;
}

/// Questions about authorities, by number.
#[expect(missing_docs, reason = "each is what the function of its name wants")]
pub mod ocsp {
    pub const RESPONDER: u8 = 0;
    pub const QUESTION: u8 = 1;
    pub const JUDGE: u8 = 2;
}

/// Turns a text into DER: how many bytes, or -1.
///
/// # Safety
/// There is room for as many bytes as the text has.
unsafe fn to_der(what: u8, texts: &[&[u8]], to: *mut u8, error: *mut *const u8) -> c_int {
    let room = texts.first().map_or(0, |text| text.len());
    ask(
        |core| core.certificates,
        texts,
        &[f64::from(what)],
        |code, reply| {
            if code >= OK && reply.text.len() > room {
                reply.text.clear();
                reply.text.extend_from_slice(b"no room for it in DER");
                // SAFETY: by the contract.
                return unsafe { fail(ERROR, reply, error) };
            }
            if code < OK {
                // SAFETY: by the contract.
                return unsafe { fail(code, reply, error) };
            }
            // SAFETY: by the contract there is so much room.
            unsafe { copy(to, &reply.text) };
            reply.text.len() as c_int
        },
    )
}

/// Reads a text, for Lua to hold; null with words.
///
/// # Safety
/// As of [`put`].
unsafe fn read(what: u8, text: &[u8], error: *mut *const u8) -> *mut c_void {
    ask(
        |core| core.certificates,
        &[text],
        &[f64::from(what)],
        |code, reply| {
            // SAFETY: by the contract.
            unsafe { fail(code, reply, error) };
            hold(reply.object.take().filter(|_| code >= OK))
        },
    )
}

/// A text about certificates in a room that says how large it is: `NGX_BUSY` where it is longer, with the
/// beginning of it, and how long it is.
///
/// # Safety
/// There are so many bytes.
unsafe fn about(
    what: u8,
    chain: &[u8],
    (to, room): (*mut u8, *mut usize),
    error: *mut *const u8,
) -> (c_int, usize) {
    ask(
        |core| core.ocsp,
        &[chain],
        &[f64::from(what)],
        |code, reply| {
            // SAFETY: by the contract.
            unsafe {
                if code != OK {
                    return (fail(code, reply, error), 0);
                }
                let len = reply.text.len();
                let count = len.min(if room.is_null() { 0 } else { room.read_unaligned() });
                copy(to, &reply.text[..count]);
                put(room, count);
                (if count < len { BUSY } else { OK }, len)
            }
        },
    )
}

exported! {
    /// Certificates of PEM in DER: how many bytes.
    fn ngx_http_lua_ffi_cert_pem_to_der(
        pem: *const c_uchar,
        len: usize,
        der: *mut c_uchar,
        error: *mut *const u8,
    ) -> c_int {
        to_der(reading::PEM_TO_DER, &[bytes(pem, len)], der, error)
    }

    /// A key of PEM in DER: how many bytes.
    fn ngx_http_lua_ffi_priv_key_pem_to_der(
        pem: *const c_uchar,
        len: usize,
        password: *const c_char,
        der: *mut c_uchar,
        error: *mut *const u8,
    ) -> c_int {
        let pem = bytes(pem, len);
        if password.is_null() {
            return to_der(reading::KEY_PEM_TO_DER, &[pem], der, error);
        }
        let password = CStr::from_ptr(password).to_bytes();
        to_der(reading::KEY_PEM_TO_DER, &[pem, password], der, error)
    }

    /// Certificates of PEM, or null with words.
    fn ngx_http_lua_ffi_parse_pem_cert(
        pem: *const c_uchar,
        len: usize,
        error: *mut *const u8,
    ) -> *mut c_void {
        read(reading::OF_PEM, bytes(pem, len), error)
    }

    /// Certificates of DER, or null with words.
    fn ngx_http_lua_ffi_parse_der_cert(
        der: *const c_uchar,
        len: usize,
        error: *mut *const u8,
    ) -> *mut c_void {
        read(reading::OF_DER, bytes(der, len), error)
    }

    /// A key of PEM, or null with words.
    fn ngx_http_lua_ffi_parse_pem_priv_key(
        pem: *const c_uchar,
        len: usize,
        error: *mut *const u8,
    ) -> *mut c_void {
        read(reading::KEY_OF_PEM, bytes(pem, len), error)
    }

    /// A key of DER, or null with words.
    fn ngx_http_lua_ffi_parse_der_priv_key(
        der: *const c_uchar,
        len: usize,
        error: *mut *const u8,
    ) -> *mut c_void {
        read(reading::KEY_OF_DER, bytes(der, len), error)
    }

    /// Lua needs certificates no longer.
    fn ngx_http_lua_ffi_free_cert(held: *mut c_void) {
        free(held);
    }

    /// Lua needs a key no longer.
    fn ngx_http_lua_ffi_free_priv_key(held: *mut c_void) {
        free(held);
    }

    /// Lua needs a server's certificate no longer.
    fn ngx_http_lua_ffi_proxy_ssl_free_verify_cert(held: *mut c_void) {
        free(held);
    }

    /// Where the authority is asked: its URL, or the beginning of it; -5 where there is none.
    fn ngx_http_lua_ffi_ssl_get_ocsp_responder_from_der_chain(
        chain: *const c_uchar,
        len: usize,
        to: *mut c_uchar,
        room: *mut usize,
        error: *mut *const u8,
    ) -> c_int {
        about(ocsp::RESPONDER, bytes(chain, len), (to, room), error).0
    }

    /// The question for the authority, in DER.
    fn ngx_http_lua_ffi_ssl_create_ocsp_request(
        chain: *const c_uchar,
        len: usize,
        to: *mut c_uchar,
        room: *mut usize,
        error: *mut *const u8,
    ) -> c_int {
        let (code, wanted) = about(ocsp::QUESTION, bytes(chain, len), (to, room), error);
        if code == BUSY {
            put(error, c"output buffer too small".as_ptr().cast());
            put(room, wanted);
        }
        code
    }

    /// Whether an answer holds, and until when, seconds since 1970.
    fn ngx_http_lua_ffi_ssl_validate_ocsp_response(
        answer: *const c_uchar,
        answer_len: usize,
        chain: *const c_uchar,
        chain_len: usize,
        error: *mut c_uchar,
        error_len: *mut usize,
        until: *mut c_long,
    ) -> c_int {
        let texts = [bytes(answer, answer_len), bytes(chain, chain_len)];
        ask(|core| core.ocsp, &texts, &[f64::from(ocsp::JUDGE)], |code, reply| {
            match code {
                OK => put(until, reply.number as c_long),
                _ => copy_error(reply, error, error_len),
            }
            code
        })
    }
}
