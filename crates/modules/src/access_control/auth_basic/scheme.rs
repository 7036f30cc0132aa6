//! The forms of passwords in user files: apr1, `{PLAIN}`, `{SHA}`, `{SSHA}`, and what crypt(3) of the system
//! knows. Computation only, of any length: for pool threads.

use std::ffi::CString;
use std::io;

use clearway_base::base64::{self, Alphabet};
use md5::{Digest, Md5};
use sha1::Sha1;

use crate::access_control::secret::is_equal;

const APR1: &[u8] = b"$apr1$";
const APR1_SALT_MAX_BYTES: usize = 8;
const APR1_ROUNDS: usize = 1000;
const SHA1_BYTES: usize = 20;

/// Whether a password is the one that is stored.
///
/// # Errors
/// As crypt_r(3).
pub(super) fn is_right(password: &[u8], stored: &[u8]) -> io::Result<bool> {
    // What is stored is a text of C for nginx, and so is a password.
    let (password, stored) = (until_zero(password), until_zero(stored));
    let hashed = if stored.starts_with(APR1) {
        apr1(password, &stored[APR1.len()..])
    } else if stored.starts_with(b"{PLAIN}") {
        [b"{PLAIN}", password].concat()
    } else if let Some(encoded) = stored.strip_prefix(b"{SSHA}") {
        let decoded = base64::decode(encoded, Alphabet::Standard).unwrap_or_default();
        let salt = decoded.get(SHA1_BYTES..).unwrap_or_default();
        let digest = Sha1::new().chain_update(password).chain_update(salt).finalize();
        [b"{SSHA}", &base64::encode(&[&digest[..], salt].concat())[..]].concat()
    } else if stored.starts_with(b"{SHA}") {
        [b"{SHA}", &base64::encode(&Sha1::digest(password))[..]].concat()
    } else {
        let text = |bytes: &[u8]| CString::new(bytes).expect("it was cut at the first zero byte");
        clearway_os::crypt::crypt(&text(password), &text(stored))?
    };
    Ok(is_equal(&hashed, stored))
}

/// Whether comparing takes no longer than reading did. All others are made to take long, or may be.
pub(super) fn is_cheap(stored: &[u8]) -> bool {
    [&b"{PLAIN}"[..], b"{SHA}", b"{SSHA}"].iter().any(|scheme| stored.starts_with(scheme))
}

fn until_zero(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// MD5 crypt as Apache has it. `salt` is what stands behind the name of the scheme.
fn apr1(password: &[u8], salt: &[u8]) -> Vec<u8> {
    let salt = salt.split(|&byte| byte == b'$').next().unwrap_or_default();
    let salt = &salt[..salt.len().min(APR1_SALT_MAX_BYTES)];
    let mut digest = Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize();
    let mut first = Md5::new().chain_update(password).chain_update(APR1).chain_update(salt);
    for part in password.chunks(digest.len()) {
        first.update(&digest[..part.len()]);
    }
    let mut bits = password.len();
    while bits > 0 {
        first.update(if bits & 1 == 1 { &[0][..] } else { &password[..1] });
        bits >>= 1;
    }
    digest = first.finalize();
    for round in 0..APR1_ROUNDS {
        let (before, after) = if round % 2 == 1 { (password, &digest[..]) } else { (&digest[..], password) };
        let mut next = Md5::new().chain_update(before);
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        digest = next.chain_update(after).finalize();
    }
    let mut out = [APR1, salt, b"$"].concat();
    for [high, middle, low] in [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]] {
        let [high, middle, low] = [digest[high], digest[middle], digest[low]].map(u32::from);
        put_digits(&mut out, high << 16 | middle << 8 | low, 4);
    }
    put_digits(&mut out, u32::from(digest[11]), 2);
    out
}

/// Six bits each, the lowest first, in the digits of crypt(3).
fn put_digits(out: &mut Vec<u8>, mut bits: u32, count: usize) {
    const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    for _ in 0..count {
        out.push(DIGITS[bits as usize & 63]);
        bits >>= 6;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(stored: &str, password: &str) -> bool {
        is_right(password.as_bytes(), stored.as_bytes()).is_ok_and(|is_right| is_right)
    }

    /// Made with openssl passwd, htpasswd and crypt(3).
    #[test]
    fn schemes() {
        for (stored, password) in [
            ("$apr1$salt$Xxd1irWT9ycqoYxGFn4cb.", "password"),
            ("{PLAIN}password", "password"),
            ("{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", "password"),
            ("{SSHA}yI6cZwQadOA1e+/f+T+H3eCQQhRzYWx0", "password"),
            ("$1$saltstri$YMyguxXMBpd2TEZ.vS/3q1", "Hello world!"),
            ("rl.3StKT.4T8M", "rasmuslerdorf"),
        ] {
            assert!(accepts(stored, password), "{stored}");
            assert!(!accepts(stored, "Password"), "{stored}");
            assert!(!accepts(stored, ""), "{stored}");
            assert!(accepts(stored, &format!("{password}\0x")), "{stored}");
        }
        assert!(accepts("{PLAIN}", ""));
        for stored in ["", "x", "*", "{SHA}", "{SSHA}", "{SSHA}x", "{MD5}x", "$apr1$", "$2b$", "*0"] {
            assert!(!accepts(stored, "password") && !accepts(stored, ""), "{stored}");
        }
    }

    #[test]
    fn apr1_of_any_length() {
        // `openssl passwd -apr1 -salt 12345678`
        for (password, hash) in [
            ("", "$apr1$12345678$sHuPAw7VA9xjRbJz7zKV7/"),
            ("0123456789abcdef0", "$apr1$12345678$72xiUl4zhntNYfOYEQe8J."),
        ] {
            for salt in [&b"12345678"[..], b"12345678$x", b"123456789"] {
                assert_eq!(String::from_utf8(apr1(password.as_bytes(), salt)).unwrap(), hash);
            }
        }
    }
}
