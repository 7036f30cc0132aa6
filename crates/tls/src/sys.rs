//! Objects of AWS-LC that have nothing to do with a connection: what the library said went wrong,
//! certificates, keys, names, tickets' encryption. Everything that is unsafe here is a call of the library
//! with memory that the caller owns for the length of the call; pointers that come back are owned by an
//! [`Owned`] at once.
//!
//! Runs wherever it is called: objects are only read after they are made, so threads share them.
#![expect(unsafe_code, reason = "objects of a C library")]

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::ptr::{self, NonNull};

use aws_lc_sys as ffi;

use crate::engine::LoadError;
use crate::level::{Digest, Key};
use crate::reason::{ALERTS_FROM, Library, Reason};
use crate::tickets::{NAME_LENGTH, TicketKey};

/// Reasons that one failure can have; the library's own queue is not longer.
const REASONS_MAX: usize = 16;

/// A type of the library with one owner.
///
/// # Safety
/// `release` takes what the library's functions return, once; the object may be used by any thread, one at a
/// time.
pub(crate) unsafe trait Foreign {
    /// Gives the object back.
    ///
    /// # Safety
    /// It is not used again.
    unsafe fn release(object: *mut Self);
}

/// An object of the library, or a reference that is counted.
pub(crate) struct Owned<T: Foreign>(NonNull<T>);

// SAFETY: `Foreign` asks that any thread may use it, one at a time.
unsafe impl<T: Foreign> Send for Owned<T> {}

impl<T: Foreign> Owned<T> {
    /// Takes what a function of the library returned; nothing if that is null.
    ///
    /// # Safety
    /// The pointer is null, or nobody else releases it.
    pub(crate) unsafe fn take(pointer: *mut T) -> Option<Self> {
        NonNull::new(pointer).map(Self)
    }

    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T: Foreign> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: its maker said that nobody else releases it.
        unsafe { T::release(self.0.as_ptr()) }
    }
}

macro_rules! foreign {
    ($($kind:ident by $release:ident;)*) => { $(
        // SAFETY: the library's documentation says that this function ends what was made or counted, and its
        // objects have no thread of their own.
        unsafe impl Foreign for ffi::$kind {
            unsafe fn release(object: *mut Self) {
                // SAFETY: the caller does not use it again.
                let _ = unsafe { ffi::$release(object) };
            }
        }
    )* };
}

foreign! {
    SSL_CTX by SSL_CTX_free;
    SSL by SSL_free;
    SSL_SESSION by SSL_SESSION_free;
    X509 by X509_free;
    X509_CRL by X509_CRL_free;
    X509_EXTENSION by X509_EXTENSION_free;
    EC_KEY by EC_KEY_free;
    EVP_PKEY by EVP_PKEY_free;
    EVP_AEAD_CTX by EVP_AEAD_CTX_free;
    BIO by BIO_free;
    BIO_METHOD by BIO_meth_free;
    OCSP_BASICRESP by OCSP_BASICRESP_free;
    OCSP_CERTID by OCSP_CERTID_free;
    OCSP_REQUEST by OCSP_REQUEST_free;
    OCSP_RESPONSE by OCSP_RESPONSE_free;
    OPENSSL_STACK by OPENSSL_sk_free;
    X509_STORE by X509_STORE_free;
    X509_STORE_CTX by X509_STORE_CTX_free;
    stack_st_OPENSSL_STRING by X509_email_free;
}

/// Forgets what calls before said: the library keeps it for each thread.
pub(crate) fn clear_reasons() {
    // SAFETY: no arguments; the queue is the thread's own.
    unsafe { ffi::ERR_clear_error() }
}

/// The errors of the library since [`clear_reasons`], on this thread.
pub(crate) fn take_reasons() -> Vec<Reason> {
    let mut reasons = Vec::new();
    while reasons.len() < REASONS_MAX {
        // SAFETY: no arguments; the queue is the thread's own.
        let error = unsafe { ffi::ERR_get_error() };
        if error == 0 {
            break;
        }
        reasons.push(reason(error));
    }
    clear_reasons();
    reasons
}

/// Library and reason of an error; the header of the library packs them so, in macros.
fn unpacked(error: u32) -> (i32, i32) {
    let [library, _, _, _] = error.to_be_bytes();
    (i32::from(library), (error & 0xfff).cast_signed())
}

fn reason(error: u32) -> Reason {
    let (library, number) = unpacked(error);
    let alert = number.checked_sub(ALERTS_FROM.cast_signed()).and_then(|alert| u8::try_from(alert).ok());
    if let (ffi::ERR_LIB_SSL, Some(alert)) = (library, alert) {
        return Reason::of_alert(alert);
    }
    let library = match library {
        ffi::ERR_LIB_SYS => Library::System,
        ffi::ERR_LIB_RSA => Library::Rsa,
        ffi::ERR_LIB_EVP | ffi::ERR_LIB_CIPHER => Library::Evp,
        ffi::ERR_LIB_PEM => Library::Pem,
        ffi::ERR_LIB_X509 => Library::X509,
        ffi::ERR_LIB_ASN1 => Library::Asn1,
        ffi::ERR_LIB_SSL => Library::Ssl,
        ffi::ERR_LIB_OCSP => Library::Ocsp,
        _ => Library::Other,
    };
    // SAFETY: it takes any number, and what it returns is null or a text that is never freed.
    let name = unsafe { text(ffi::ERR_reason_error_string(error)) };
    Reason::named(library, name.unwrap_or("UNKNOWN"))
}

/// A text of the library's own.
///
/// # Safety
/// The pointer is null, or a text with a NUL at its end that is never changed or freed.
pub(crate) unsafe fn text(pointer: *const c_char) -> Option<&'static str> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: not null, and the caller says the rest.
    unsafe { CStr::from_ptr(pointer) }.to_str().ok()
}

/// The error of a call that failed.
pub(crate) fn load_error(call: &'static str) -> LoadError {
    LoadError { call, reasons: take_reasons() }
}

/// A number of bytes for the library.
pub(crate) fn length(bytes: &[u8]) -> c_int {
    c_int::try_from(bytes.len()).unwrap_or(c_int::MAX)
}

/// Reads `pem` through the library's own reader.
fn reader(pem: &[u8]) -> Result<Owned<ffi::BIO>, LoadError> {
    let length = isize::try_from(pem.len()).unwrap_or(isize::MAX);
    // SAFETY: the reader looks at as many bytes as `pem` has, and does not outlive it: callers drop it.
    unsafe { Owned::take(ffi::BIO_new_mem_buf(pem.as_ptr().cast(), length)) }
        .ok_or_else(|| load_error("BIO_new_mem_buf()"))
}

/// The bytes that `write` writes into a buffer of the library's.
pub(crate) fn written(write: impl FnOnce(*mut ffi::BIO) -> c_int) -> Option<Vec<u8>> {
    // SAFETY: no memory of ours is involved.
    let bio = unsafe { Owned::take(ffi::BIO_new(ffi::BIO_s_mem())) }?;
    if write(bio.as_ptr()) < 0 {
        clear_reasons();
        return None;
    }
    let (mut content, mut length) = (ptr::null(), 0);
    // SAFETY: `bio` is a buffer in memory, and both results are ours.
    let is_there = unsafe { ffi::BIO_mem_contents(bio.as_ptr(), &raw mut content, &raw mut length) };
    if is_there == 0 || content.is_null() || length == 0 {
        return Some(Vec::new());
    }
    // SAFETY: the buffer holds that many bytes until `bio` is dropped, behind this.
    Some(unsafe { std::slice::from_raw_parts(content, length) }.to_vec())
}

const SHA1_LENGTH: usize = 20;

/// A certificate.
pub struct Certificate(Owned<ffi::X509>);

// SAFETY: the library locks what it caches in a certificate, and nothing here changes one.
unsafe impl Sync for Certificate {}

/// Which name of a certificate is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "names say it")]
pub enum NameOf {
    Subject,
    Issuer,
}

impl Certificate {
    /// All certificates of a text, the first of which may be one with trust (`TRUSTED CERTIFICATE`).
    ///
    /// # Errors
    /// If there is none, or one is broken.
    pub fn read_all(pem: &[u8]) -> Result<Vec<Self>, LoadError> {
        clear_reasons();
        let bio = reader(pem)?;
        // SAFETY: the reader is alive, and without a callback for passwords none is asked for.
        let first = unsafe {
            Owned::take(ffi::PEM_read_bio_X509_AUX(bio.as_ptr(), ptr::null_mut(), None, ptr::null_mut()))
        };
        let mut all = vec![Self(first.ok_or_else(|| load_error("PEM_read_bio_X509_AUX()"))?)];
        loop {
            // SAFETY: as above.
            let next = unsafe {
                Owned::take(ffi::PEM_read_bio_X509(bio.as_ptr(), ptr::null_mut(), None, ptr::null_mut()))
            };
            match next {
                Some(next) => all.push(Self(next)),
                None if ended() => return Ok(all),
                None => return Err(load_error("PEM_read_bio_X509()")),
            }
        }
    }

    /// A certificate in DER.
    #[must_use]
    pub fn from_der(der: &[u8]) -> Option<Self> {
        clear_reasons();
        let mut start = der.as_ptr();
        let length = c_long::try_from(der.len()).ok()?;
        // SAFETY: `der` has that many bytes; what comes back is ours.
        let x509 = unsafe { Owned::take(ffi::d2i_X509(ptr::null_mut(), &raw mut start, length)) };
        debug_assert!((der.as_ptr()..=der.as_ptr_range().end).contains(&start), "it reads what it is lent");
        clear_reasons();
        x509.map(Self)
    }

    /// From a pointer that the library counts for us.
    pub(crate) fn from_owned(x509: Owned<ffi::X509>) -> Self {
        Self(x509)
    }

    pub(crate) fn as_ptr(&self) -> *mut ffi::X509 {
        self.0.as_ptr()
    }

    /// Its public key, as levels judge it.
    #[must_use]
    pub fn key(&self) -> Key {
        // SAFETY: the certificate is alive; the key belongs to it and is looked at here alone.
        let (kind, bits) = unsafe {
            let key = ffi::X509_get0_pubkey(self.as_ptr());
            if key.is_null() {
                clear_reasons();
                return Key::Other;
            }
            (ffi::EVP_PKEY_id(key), ffi::EVP_PKEY_bits(key))
        };
        let bits = u32::try_from(bits).unwrap_or_default();
        match kind {
            ffi::EVP_PKEY_RSA | ffi::EVP_PKEY_RSA_PSS => Key::Rsa(bits),
            ffi::EVP_PKEY_EC => Key::Curve(bits),
            ffi::EVP_PKEY_ED25519 => Key::Edwards25519,
            _ => Key::Other,
        }
    }

    /// The digest that it is signed with; nothing if it has signed itself.
    #[must_use]
    pub fn signature(&self) -> Option<Digest> {
        let mut digest = ffi::NID_undef;
        // SAFETY: the certificate is alive; the number of the digest is ours.
        unsafe {
            if ffi::X509_check_issued(self.as_ptr(), self.as_ptr()) == ffi::X509_V_OK {
                return None;
            }
            let signature = ffi::X509_get_signature_nid(self.as_ptr());
            ffi::OBJ_find_sigid_algs(signature, &raw mut digest, ptr::null_mut());
        }
        clear_reasons();
        Some(match digest {
            ffi::NID_md5 => Digest::Md5,
            ffi::NID_sha1 => Digest::Sha1,
            ffi::NID_sha224 => Digest::Sha224,
            ffi::NID_sha256 => Digest::Sha256,
            ffi::NID_sha384 => Digest::Sha384,
            ffi::NID_sha512 => Digest::Sha512,
            _ => Digest::Other,
        })
    }

    fn name(&self, of: NameOf) -> *mut ffi::X509_NAME {
        // SAFETY: the certificate is alive, and the name belongs to it.
        unsafe {
            match of {
                NameOf::Subject => ffi::X509_get_subject_name(self.as_ptr()),
                NameOf::Issuer => ffi::X509_get_issuer_name(self.as_ptr()),
            }
        }
    }

    /// A name as RFC 2253 writes it (`$ssl_client_s_dn`).
    #[must_use]
    pub fn distinguished_name(&self, of: NameOf) -> Option<Vec<u8>> {
        const FORM: std::ffi::c_ulong = ffi::XN_FLAG_RFC2253 as std::ffi::c_ulong;
        let name = self.name(of);
        // SAFETY: both are alive during the call.
        written(|bio| unsafe { ffi::X509_NAME_print_ex(bio, name, 0, FORM) })
    }

    /// A name as `/C=…/CN=…` (`$ssl_client_s_dn_legacy`).
    #[must_use]
    pub fn legacy_name(&self, of: NameOf) -> Option<Vec<u8>> {
        // SAFETY: the name is alive; without a buffer of ours the library makes one, which is freed below.
        let line = NonNull::new(unsafe { ffi::X509_NAME_oneline(self.name(of), ptr::null_mut(), 0) })?;
        // SAFETY: it has a NUL at its end, is copied, and is freed once.
        unsafe {
            let copy = CStr::from_ptr(line.as_ptr()).to_bytes().to_vec();
            ffi::OPENSSL_free(line.as_ptr().cast());
            Some(copy)
        }
    }

    /// Its number in hexadecimal (`$ssl_client_serial`).
    #[must_use]
    pub fn serial(&self) -> Option<Vec<u8>> {
        // SAFETY: both are alive during the call; the number belongs to the certificate.
        written(|bio| unsafe { ffi::i2a_ASN1_INTEGER(bio, ffi::X509_get_serialNumber(self.as_ptr())) })
    }

    /// Its SHA-1 (`$ssl_client_fingerprint`).
    #[must_use]
    pub fn fingerprint(&self) -> Option<[u8; SHA1_LENGTH]> {
        let (mut digest, mut length) = ([0; SHA1_LENGTH], 0);
        // SAFETY: the certificate is alive, and the digest has as many bytes as SHA-1.
        let is_made =
            unsafe { ffi::X509_digest(self.as_ptr(), ffi::EVP_sha1(), digest.as_mut_ptr(), &raw mut length) };
        debug_assert!(is_made != 1 || length as usize == SHA1_LENGTH, "the library fills the digest");
        (is_made == 1).then_some(digest)
    }

    /// From when on it is good, as `Jan  1 00:00:00 2020 GMT` (`$ssl_client_v_start`).
    #[must_use]
    pub fn begins(&self) -> Option<Vec<u8>> {
        // SAFETY: both are alive during the call; the time belongs to the certificate.
        written(|bio| unsafe { ffi::ASN1_TIME_print(bio, ffi::X509_get0_notBefore(self.as_ptr())) })
    }

    /// Until when it is good (`$ssl_client_v_end`).
    #[must_use]
    pub fn ends(&self) -> Option<Vec<u8>> {
        // SAFETY: both are alive during the call; the time belongs to the certificate.
        written(|bio| unsafe { ffi::ASN1_TIME_print(bio, ffi::X509_get0_notAfter(self.as_ptr())) })
    }

    /// Until when it is good, in seconds since 1970.
    #[must_use]
    pub fn ends_at_s(&self) -> Option<i64> {
        let mut seconds = 0;
        // SAFETY: the certificate is alive; the time belongs to it.
        let is_time =
            unsafe { ffi::ASN1_TIME_to_posix(ffi::X509_get0_notAfter(self.as_ptr()), &raw mut seconds) };
        (is_time == 1).then_some(seconds)
    }

    /// Whether it is for this host, by its alternative names or, where it has none, by its common name.
    #[must_use]
    pub fn is_for(&self, host: &str) -> bool {
        // The library takes a length of 0 for that of a text with a NUL at its end.
        if host.is_empty() {
            return false;
        }
        // SAFETY: both are alive during the call, and the name is as long as is said, which is not 0.
        let found = unsafe {
            ffi::X509_check_host(self.as_ptr(), host.as_ptr().cast(), host.len(), 0, ptr::null_mut())
        };
        clear_reasons();
        found == 1
    }

    /// Whether this is its key.
    #[must_use]
    pub fn has_key(&self, key: &PrivateKey) -> bool {
        // SAFETY: both are alive during the call, which changes neither.
        let is_matched = unsafe { ffi::X509_check_private_key(self.as_ptr(), key.as_ptr()) };
        clear_reasons();
        is_matched == 1
    }

    /// In PEM (`$ssl_client_raw_cert`).
    #[must_use]
    pub fn to_pem(&self) -> Option<Vec<u8>> {
        // SAFETY: both are alive during the call.
        written(|bio| unsafe { ffi::PEM_write_bio_X509(bio, self.as_ptr()) })
    }

    /// In DER.
    #[must_use]
    pub fn to_der(&self) -> Option<Vec<u8>> {
        // SAFETY: both are alive during the call.
        written(|bio| unsafe { ffi::i2d_X509_bio(bio, self.as_ptr()) })
    }
}

/// Whether the last reading of PEM failed since there was nothing more.
fn ended() -> bool {
    // SAFETY: no memory is involved.
    let error = unsafe { ffi::ERR_peek_last_error() };
    let is_end = unpacked(error) == (ffi::ERR_LIB_PEM, ffi::PEM_R_NO_START_LINE);
    if is_end {
        clear_reasons();
    }
    is_end
}

/// A private key.
pub struct PrivateKey {
    key: Owned<ffi::EVP_PKEY>,
    protection: Protection,
}

/// Whether a key stands in its file as it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protection {
    None,
    Password,
}

// SAFETY: the library locks what it caches in a key, and nothing here changes one.
unsafe impl Sync for PrivateKey {}

impl PrivateKey {
    /// The first key of a text. One that is encrypted is tried with each of `passwords`.
    ///
    /// # Errors
    /// If there is none, it is broken, or no password opens it.
    pub fn read(pem: &[u8], passwords: &[Vec<u8>]) -> Result<Self, LoadError> {
        let none = [Vec::new()];
        let passwords = if passwords.is_empty() { &none } else { passwords };
        let mut error = None;
        for password in passwords {
            match Self::read_with(pem, password) {
                Ok(key) => return Ok(key),
                Err(refused) => error = Some(refused),
            }
        }
        Err(error.unwrap_or_else(|| load_error("PEM_read_bio_PrivateKey()")))
    }

    fn read_with(pem: &[u8], password: &[u8]) -> Result<Self, LoadError> {
        clear_reasons();
        let bio = reader(pem)?;
        let mut asked = Password { text: password, use_of: Protection::None };
        // SAFETY: `say_password` gets a pointer to `asked`, which outlives the call.
        let key = unsafe {
            let argument: *mut c_void = (&raw mut asked).cast();
            Owned::take(ffi::PEM_read_bio_PrivateKey(
                bio.as_ptr(),
                ptr::null_mut(),
                Some(say_password),
                argument,
            ))
        };
        let key = key.ok_or_else(|| load_error("PEM_read_bio_PrivateKey()"))?;
        Ok(Self { key, protection: asked.use_of })
    }

    /// A key in DER, of any form.
    #[must_use]
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let mut at = der.as_ptr();
        let length = c_long::try_from(der.len()).ok()?;
        // SAFETY: so many bytes are there.
        let key = unsafe { Owned::take(ffi::d2i_AutoPrivateKey(ptr::null_mut(), &raw mut at, length)) };
        debug_assert!((der.as_ptr()..=der.as_ptr_range().end).contains(&at), "it reads what it is lent");
        clear_reasons();
        Some(Self { key: key?, protection: Protection::None })
    }

    /// In DER, in the form of its kind.
    #[must_use]
    pub fn to_der(&self) -> Option<Vec<u8>> {
        // SAFETY: both are alive during the call.
        written(|bio| unsafe { ffi::i2d_PrivateKey_bio(bio, self.as_ptr()) })
    }

    /// In PEM, without a password.
    #[must_use]
    pub fn to_pem(&self) -> Option<Vec<u8>> {
        let (key, none) = (self.as_ptr(), ptr::null_mut());
        // SAFETY: both are alive during the call; nothing is encrypted, so no password is asked for.
        written(|bio| unsafe {
            ffi::PEM_write_bio_PKCS8PrivateKey(bio, key, ptr::null(), ptr::null(), 0, None, none)
        })
    }

    /// Whether a password was asked for.
    #[must_use]
    pub fn was_encrypted(&self) -> bool {
        self.protection == Protection::Password
    }

    pub(crate) fn as_ptr(&self) -> *mut ffi::EVP_PKEY {
        self.key.as_ptr()
    }
}

/// The password for a key that the library reads, and whether it has asked.
struct Password<'a> {
    text: &'a [u8],
    use_of: Protection,
}

/// Tells the library the password of a key: one that does not fit is none.
unsafe extern "C" fn say_password(to: *mut c_char, size: c_int, _: c_int, password: *mut c_void) -> c_int {
    // SAFETY: `read_with` passes a pointer to what it holds, which nothing else refers to meanwhile.
    let password = unsafe { &mut *password.cast::<Password<'_>>() };
    password.use_of = Protection::Password;
    let password = password.text;
    let count = length(password);
    if count == 0 || count > size {
        return -1;
    }
    assert_eq!(usize::try_from(count), Ok(password.len()), "as many bytes are copied as there is room for");
    // SAFETY: the library's buffer has `size` bytes, and is none of ours.
    unsafe { ptr::copy_nonoverlapping(password.as_ptr().cast(), to, password.len()) };
    count
}

/// All lists of revoked certificates of a text.
pub(crate) fn read_revoked(pem: &[u8]) -> Result<Vec<Owned<ffi::X509_CRL>>, LoadError> {
    clear_reasons();
    let bio = reader(pem)?;
    let mut all = Vec::new();
    loop {
        // SAFETY: the reader is alive; lists are not encrypted.
        let next = unsafe {
            Owned::take(ffi::PEM_read_bio_X509_CRL(bio.as_ptr(), ptr::null_mut(), None, ptr::null_mut()))
        };
        match next {
            Some(list) => all.push(list),
            None if !all.is_empty() && ended() => return Ok(all),
            None => return Err(load_error("PEM_read_bio_X509_CRL()")),
        }
    }
}

/// The text of a number of X509_V_ERR.
pub(crate) fn verification_text(number: c_long) -> &'static str {
    // SAFETY: it takes any number, and returns a text that is never freed.
    unsafe { text(ffi::X509_verify_cert_error_string(number)) }.unwrap_or("unknown error")
}

/// Bytes that nobody can guess.
///
/// # Panics
/// If the system has none, which ends the process: nothing could be encrypted.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // SAFETY: the buffer is as long as is said.
    let is_filled = unsafe { ffi::RAND_bytes(bytes.as_mut_ptr(), N) };
    assert_eq!(is_filled, 1, "the system gives random bytes");
    bytes
}

const NONCE_LENGTH: usize = 12;
const TAG_LENGTH: usize = 16;
const AEAD_KEY_LENGTH: usize = 32;

/// Bytes that a ticket is longer than what it holds.
pub(crate) const TICKET_OVERHEAD: usize = NAME_LENGTH + NONCE_LENGTH + TAG_LENGTH;

/// Encrypts tickets with one key. The cipher does not break when a nonce is drawn twice, as a key that comes
/// from a file may be used by many servers for years (AES-256-GCM-SIV, RFC 8452).
pub(crate) struct TicketCipher {
    name: [u8; NAME_LENGTH],
    aead: Owned<ffi::EVP_AEAD_CTX>,
}

// SAFETY: sealing and opening leave the state as it is, as the library says of its AEAD.
unsafe impl Sync for TicketCipher {}

impl TicketCipher {
    pub(crate) fn new(key: &TicketKey) -> Option<Self> {
        const PURPOSE: &[u8] = b"clearway tickets";
        let (secret, name) = (key.secret(), key.name());
        let mut derived = [0; AEAD_KEY_LENGTH];
        // SAFETY: every buffer is as long as is said.
        let aead = unsafe {
            let is_derived = ffi::HKDF(
                derived.as_mut_ptr(),
                derived.len(),
                ffi::EVP_sha256(),
                secret.as_ptr(),
                secret.len(),
                name.as_ptr(),
                name.len(),
                PURPOSE.as_ptr(),
                PURPOSE.len(),
            );
            if is_derived != 1 {
                return None;
            }
            let kind = ffi::EVP_aead_aes_256_gcm_siv();
            Owned::take(ffi::EVP_AEAD_CTX_new(kind, derived.as_ptr(), derived.len(), TAG_LENGTH))
        };
        Some(Self { name: *name, aead: aead? })
    }

    pub(crate) fn name(&self) -> &[u8; NAME_LENGTH] {
        &self.name
    }

    /// Writes a ticket that holds `content`. Its length, or nothing if it does not fit.
    pub(crate) fn seal(&self, content: &[u8], ticket: &mut [u8]) -> Option<usize> {
        let nonce: [u8; NONCE_LENGTH] = random();
        let (head, rest) = ticket.split_at_mut_checked(NAME_LENGTH + NONCE_LENGTH)?;
        head[..NAME_LENGTH].copy_from_slice(&self.name);
        head[NAME_LENGTH..].copy_from_slice(&nonce);
        let mut length = 0;
        // SAFETY: every buffer is as long as is said; `content` and `rest` are different memory.
        let is_sealed = unsafe {
            ffi::EVP_AEAD_CTX_seal(
                self.aead.as_ptr(),
                rest.as_mut_ptr(),
                &raw mut length,
                rest.len(),
                nonce.as_ptr(),
                nonce.len(),
                content.as_ptr(),
                content.len(),
                self.name.as_ptr(),
                NAME_LENGTH,
            )
        };
        if is_sealed != 1 {
            return None;
        }
        assert!(length <= rest.len(), "the library writes into the room that there is");
        debug_assert_eq!(
            length,
            content.len() + TAG_LENGTH,
            "a ticket is longer than it holds by its overhead"
        );
        Some(NAME_LENGTH + NONCE_LENGTH + length)
    }

    /// Writes what a ticket of this key holds. Its length, or nothing if it is none.
    pub(crate) fn open(&self, ticket: &[u8], content: &mut [u8]) -> Option<usize> {
        let (name, rest) = ticket.split_at_checked(NAME_LENGTH)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LENGTH)?;
        let mut length = 0;
        // SAFETY: every buffer is as long as is said; `ticket` and `content` are different memory.
        let is_opened = unsafe {
            ffi::EVP_AEAD_CTX_open(
                self.aead.as_ptr(),
                content.as_mut_ptr(),
                &raw mut length,
                content.len(),
                nonce.as_ptr(),
                nonce.len(),
                sealed.as_ptr(),
                sealed.len(),
                name.as_ptr(),
                name.len(),
            )
        };
        clear_reasons();
        if is_opened != 1 {
            return None;
        }
        assert!(length <= content.len(), "the library writes into the room that there is");
        debug_assert_eq!(
            length + TICKET_OVERHEAD,
            ticket.len(),
            "a ticket is longer than it holds by its overhead"
        );
        Some(length)
    }
}
