//! crypt(3): passwords in the schemes that the system has (DES, MD5, SHA-2, bcrypt, yescrypt). The C
//! library's is the one that knows what is in the user files of this machine, old schemes and new ones; no
//! implementation of our own would. Takes from microseconds to seconds, all of it computation: for pool
//! threads.
#![expect(unsafe_code, reason = "crypt_r is a call of C")]

use std::ffi::{CStr, c_char, c_void};
use std::io;

#[link(name = "crypt")]
unsafe extern "C" {
    fn crypt_r(key: *const c_char, setting: *const c_char, data: *mut c_void) -> *mut c_char;
}

/// More bytes than `struct crypt_data` takes in any C library: libxcrypt's has 32 KiB, glibc's a little over
/// 128 KiB.
const DATA_BYTES: usize = 256 * 1024;

/// The key, hashed as `setting` says, which may be the result of an earlier call: a key is right if that
/// comes out again.
///
/// # Errors
/// As crypt_r(3): a setting of no known scheme. Some libraries give a text in that case that is different
/// from the setting.
pub fn crypt(key: &CStr, setting: &CStr) -> io::Result<Vec<u8>> {
    let mut data = vec![0_u128; DATA_BYTES / size_of::<u128>()];
    // SAFETY: both texts end in a zero byte and live throughout the call. The data is zeroed, as the call
    // wants it, at least as large and as aligned as its type is anywhere, and nobody else's.
    let hashed = unsafe { crypt_r(key.as_ptr(), setting.as_ptr(), data.as_mut_ptr().cast()) };
    let result = if hashed.is_null() {
        Err(io::Error::last_os_error())
    } else {
        // SAFETY: what is not null is a text that ends in a zero byte, in `data` or static, and `data` is
        // still there.
        Ok(unsafe { CStr::from_ptr(hashed) }.to_bytes().to_vec())
    };
    // The memory may contain the key.
    data.fill(0);
    std::hint::black_box(&data);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashed(key: &CStr, setting: &CStr) -> String {
        String::from_utf8(crypt(key, setting).unwrap()).unwrap()
    }

    #[test]
    fn a_right_key_gives_its_hash_again() {
        for hash in [
            c"rl.3StKT.4T8M",
            c"$1$saltstri$YMyguxXMBpd2TEZ.vS/3q1",
            c"$2b$05$abcdefghijklmnopqrstuu8.veTXNDPV2eEsdpKNczMw2otgh5LnK",
        ] {
            let key = match hash.to_bytes()[1] {
                b'l' => c"rasmuslerdorf",
                b'1' => c"Hello world!",
                _ => c"a",
            };
            assert_eq!(hashed(key, hash), hash.to_str().unwrap());
            assert_ne!(hashed(c"another", hash), hash.to_str().unwrap());
        }
    }

    #[test]
    fn no_setting_is_its_own_hash() {
        for setting in [c"", c"x", c"*0", c"*1", c"$99$nothing"] {
            let result = crypt(c"key", setting);
            assert!(result.is_err() || result.is_ok_and(|text| text != setting.to_bytes()));
        }
    }
}
