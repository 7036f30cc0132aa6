//! A certificate of the server's own making, for development: no client trusts it unless it is told to. Boot
//! only.
#![expect(unsafe_code, reason = "objects of a C library")]

use std::ffi::{CString, c_int, c_long};
use std::net::IpAddr;
use std::ptr;

use aws_lc_sys as ffi;

use crate::context::succeeded;
use crate::engine::LoadError;
use crate::sys::{self, Certificate, Owned};

/// How long it is valid, seconds: browsers accept 398 days at most.
const LIFETIME_S: c_long = 397 * 86_400;
/// It is valid from this long ago, seconds: a client's clock may be slow.
const EARLIER_S: c_long = 86_400;
/// X.509 version 3, as it is written.
const VERSION_3: c_long = 2;

/// A certificate and its key, in PEM.
pub struct SelfSigned {
    /// The certificate.
    pub certificate: String,
    /// Its key, unencrypted.
    pub key: String,
}

/// Makes a certificate for `localhost` and these addresses, signed by itself, with a new key on P-256.
///
/// # Errors
/// If the library fails, which it does only without memory.
pub fn self_signed(addresses: &[IpAddr]) -> Result<SelfSigned, LoadError> {
    sys::clear_reasons();
    let key = new_key()?;
    // SAFETY: what comes back is ours; everything that is set is copied or counted.
    let certificate = unsafe {
        let x509 = Owned::take(ffi::X509_new()).ok_or_else(|| sys::load_error("X509_new()"))?;
        let certificate = x509.as_ptr();
        succeeded(ffi::X509_set_version(certificate, VERSION_3), "X509_set_version()")?;
        // Browsers refuse a second certificate of an issuer that has the number of an earlier one.
        let number = u64::from_le_bytes(sys::random()) >> 1;
        let serial = ffi::X509_get_serialNumber(certificate);
        succeeded(ffi::ASN1_INTEGER_set_uint64(serial, number), "ASN1_INTEGER_set_uint64()")?;
        ffi::X509_gmtime_adj(ffi::X509_getm_notBefore(certificate), -EARLIER_S);
        ffi::X509_gmtime_adj(ffi::X509_getm_notAfter(certificate), LIFETIME_S);
        succeeded(ffi::X509_set_pubkey(certificate, key.as_ptr()), "X509_set_pubkey()")?;
        let name = ffi::X509_get_subject_name(certificate);
        put_common_name(name, b"localhost")?;
        succeeded(ffi::X509_set_issuer_name(certificate, name), "X509_set_issuer_name()")?;
        let addresses = addresses.iter().map(|address| format!(",IP:{address}"));
        let names = format!("DNS:localhost{}", addresses.collect::<String>());
        add_extension(certificate, ffi::NID_subject_alt_name, &names)?;
        add_extension(certificate, ffi::NID_basic_constraints, "critical,CA:FALSE")?;
        // The length of the signature comes back.
        let signed = ffi::X509_sign(certificate, key.as_ptr(), ffi::EVP_sha256());
        succeeded(c_int::from(signed > 0), "X509_sign()")?;
        Certificate::from_owned(x509)
    };
    let text = |bytes: Option<Vec<u8>>| {
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        text.ok_or_else(|| sys::load_error("PEM_write_bio()"))
    };
    // SAFETY: both are alive during the call; without a cipher no password is asked for.
    let key = sys::written(|bio| unsafe {
        let (none, nobody) = (ptr::null(), ptr::null_mut());
        ffi::PEM_write_bio_PKCS8PrivateKey(bio, key.as_ptr(), none, ptr::null(), 0, None, nobody)
    });
    Ok(SelfSigned { certificate: text(certificate.to_pem())?, key: text(key)? })
}

fn new_key() -> Result<Owned<ffi::EVP_PKEY>, LoadError> {
    // SAFETY: both objects are ours; the key counts its part.
    unsafe {
        let curve = Owned::take(ffi::EC_KEY_new_by_curve_name(ffi::NID_X9_62_prime256v1));
        let curve = curve.ok_or_else(|| sys::load_error("EC_KEY_new_by_curve_name()"))?;
        succeeded(ffi::EC_KEY_generate_key(curve.as_ptr()), "EC_KEY_generate_key()")?;
        let key = Owned::take(ffi::EVP_PKEY_new()).ok_or_else(|| sys::load_error("EVP_PKEY_new()"))?;
        succeeded(ffi::EVP_PKEY_set1_EC_KEY(key.as_ptr(), curve.as_ptr()), "EVP_PKEY_set1_EC_KEY()")?;
        Ok(key)
    }
}

/// # Safety
/// The name is alive.
unsafe fn put_common_name(name: *mut ffi::X509_NAME, value: &[u8]) -> Result<(), LoadError> {
    let (kind, length) = (ffi::MBSTRING_ASC, value.len().cast_signed());
    // SAFETY: as the caller says; the value has that length and is copied.
    let added =
        unsafe { ffi::X509_NAME_add_entry_by_txt(name, c"CN".as_ptr(), kind, value.as_ptr(), length, -1, 0) };
    succeeded(added, "X509_NAME_add_entry_by_txt()")
}

/// # Safety
/// The certificate is alive.
unsafe fn add_extension(certificate: *mut ffi::X509, kind: c_int, value: &str) -> Result<(), LoadError> {
    let value = CString::new(value).expect("names and addresses have no NUL");
    // SAFETY: as the caller says; the value ends in a NUL, and the extension is copied.
    unsafe {
        let made = ffi::X509V3_EXT_nconf_nid(ptr::null(), ptr::null(), kind, value.as_ptr());
        let made = Owned::take(made).ok_or_else(|| sys::load_error("X509V3_EXT_nconf_nid()"))?;
        succeeded(ffi::X509_add_ext(certificate, made.as_ptr(), -1), "X509_add_ext()")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair::Pair;

    #[test]
    fn one_is_made_that_can_be_used() {
        let made = self_signed(&["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()]).unwrap();
        let pair = Pair::read(made.certificate.as_bytes(), made.key.as_bytes(), &[]).unwrap();
        assert!(pair.is_matched() && pair.certificate().is_for("localhost"));
        assert!(!pair.certificate().is_for("example.com"));
        let other = self_signed(&[]).unwrap();
        assert_ne!(other.certificate, made.certificate);
    }
}
