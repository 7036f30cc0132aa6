//! Certificates, keys and lists as directives name them: files, or their text behind `data:`; and what nginx
//! says of those that cannot be loaded. The caller brings what reads a file: at load that may be the master's
//! copy, while requests are served a pool's thread.
#![forbid(unsafe_code)]

use std::io;

use crate::context::Pair;
use crate::engine::{LoadError, Reasons};
use crate::reason::{FileFault, Reason};
use crate::sys::{Certificate, read_revoked};

/// Before the text of a certificate or key that stands in the configuration itself.
const DATA: &[u8] = b"data:";

/// What reads a file.
pub type ReadFile<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<Vec<u8>>;

/// Where a certificate and its key are.
#[derive(Clone, Copy, Debug)]
pub struct PairNames<'a> {
    /// `…_certificate`
    pub certificate: &'a [u8],
    /// `…_certificate_key`
    pub key: &'a [u8],
}

/// Whether a name stands for a file, whose place may depend on where the configuration is.
#[must_use]
pub fn is_file(name: &[u8]) -> bool {
    !name.starts_with(DATA)
}

impl PairNames<'_> {
    /// Loads both.
    ///
    /// # Errors
    /// What nginx says.
    pub fn load(&self, passwords: &[Vec<u8>], read: ReadFile<'_>) -> Result<Pair, String> {
        let certificates = text_of(self.certificate, read).map_err(|said| self.certificate_fault(&said))?;
        // The certificate is complained of first.
        Certificate::read_all(&certificates).map_err(|error| self.certificate_fault(&error.to_string()))?;
        let key = text_of(self.key, read).map_err(|said| self.key_fault(&said))?;
        Pair::read(&certificates, &key, passwords).map_err(|error| self.key_fault(&error.to_string()))
    }

    /// What nginx says of a pair that a context or a session refuses.
    #[must_use]
    pub fn refusal(&self, error: &LoadError) -> String {
        let is_of_key = error.call.ends_with("_PrivateKey()");
        let name = if is_of_key { self.key } else { self.certificate };
        let call = error.call.trim_end_matches("()");
        let name = String::from_utf8_lossy(name);
        let reasons = Reasons(&error.reasons);
        format!("{call}(\"{name}\") failed (SSL:{reasons})")
    }

    fn certificate_fault(&self, said: &str) -> String {
        cannot_load("certificate", self.certificate, said)
    }

    fn key_fault(&self, said: &str) -> String {
        cannot_load("certificate key", self.key, said)
    }
}

/// Certificates that are trusted, in PEM.
///
/// # Errors
/// What nginx says.
pub fn load_trusted(name: &[u8], read: ReadFile<'_>) -> Result<Vec<u8>, String> {
    let fault = |said: &str| cannot_load("certificate", name, said);
    let text = text_of(name, read).map_err(|said| fault(&said))?;
    Certificate::read_all(&text).map_err(|error| fault(&error.to_string()))?;
    Ok(text)
}

/// Lists of revoked certificates, in PEM.
///
/// # Errors
/// What nginx says.
pub fn load_revoked(name: &[u8], read: ReadFile<'_>) -> Result<Vec<u8>, String> {
    let fault = |said: &str| cannot_load("CRL", name, said);
    let text = text_of(name, read).map_err(|said| fault(&said))?;
    read_revoked(&text).map_err(|error| fault(&error.to_string()))?;
    Ok(text)
}

/// The lines of a file with passwords (`…_ssl_password_file`), each tried in its turn; a file without any has
/// the empty one.
///
/// # Errors
/// If a line is longer than nginx takes.
pub fn passwords(content: &[u8]) -> Result<Vec<Vec<u8>>, LineTooLong> {
    const LINE_MAX_BYTES: usize = 512;
    let lines = content.split(|&byte| byte == b'\n');
    let lines: Vec<&[u8]> = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
    if lines.iter().any(|line| line.len() >= LINE_MAX_BYTES) {
        return Err(LineTooLong);
    }
    let mut all: Vec<Vec<u8>> =
        lines.into_iter().filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect();
    if all.is_empty() {
        all.push(Vec::new());
    }
    Ok(all)
}

/// A line of a file with passwords has no end (`too long line in "FILE"`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineTooLong;

fn cannot_load(what: &str, name: &[u8], said: &str) -> String {
    format!("cannot load {what} \"{}\": {said}", String::from_utf8_lossy(name))
}

fn text_of(name: &[u8], read: ReadFile<'_>) -> Result<Vec<u8>, String> {
    match name.strip_prefix(DATA) {
        Some(text) => Ok(text.to_vec()),
        None => read(name).map_err(|error| unread(name, &error)),
    }
}

/// What OpenSSL says of a file that cannot be opened.
fn unread(path: &[u8], error: &io::Error) -> String {
    let number = error.raw_os_error().unwrap_or_default();
    let text = error.to_string();
    let text = text.strip_suffix(&format!(" (os error {number})")).unwrap_or(&text);
    let path = String::from_utf8_lossy(path);
    let system =
        Reason::of_system(number.unsigned_abs(), text).with_detail(format!("calling fopen({path}, r)"));
    let fault = match error.kind() {
        io::ErrorKind::NotFound => FileFault::Missing,
        _ => FileFault::Other,
    };
    let reasons = [system, Reason::of_file(fault)];
    format!("BIO_new_file() failed (SSL:{})", Reasons(&reasons))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(_: &[u8]) -> io::Result<Vec<u8>> {
        Err(io::Error::from_raw_os_error(2))
    }

    #[test]
    fn a_missing_file_is_said_as_nginx_does() {
        let names = PairNames { certificate: b"/no/cert", key: b"/no/key" };
        let said = names.load(&[], &mut missing).err().unwrap();
        assert_eq!(
            said,
            "cannot load certificate \"/no/cert\": BIO_new_file() failed (SSL: \
             error:80000002:system library::No such file or directory:calling fopen(/no/cert, r) \
             error:10000080:BIO routines::no such file)"
        );
        let certificate = [DATA, include_bytes!("../tests/data/rsa.pem")].concat();
        let names = PairNames { certificate: &certificate, key: b"/no/key" };
        let said = names.load(&[], &mut missing).err().unwrap();
        assert!(said.starts_with("cannot load certificate key \"/no/key\": BIO_new_file() failed"), "{said}");
        let mut refused = |_: &[u8]| Err(io::Error::from_raw_os_error(13));
        let said = load_trusted(b"/no/cert", &mut refused).unwrap_err();
        assert!(said.ends_with("fopen(/no/cert, r) error:10080002:BIO routines::system lib)"), "{said}");
    }

    #[test]
    fn a_broken_text_is_said_as_nginx_does() {
        let names = PairNames { certificate: b"data:none", key: b"data:" };
        let said = names.load(&[], &mut missing).err().unwrap();
        assert_eq!(
            said,
            "cannot load certificate \"data:none\": PEM_read_bio_X509_AUX() failed (SSL: \
             error:0480006C:PEM routines::no start line)"
        );
        let said = load_revoked(b"data:x", &mut missing).unwrap_err();
        assert!(said.starts_with("cannot load CRL \"data:x\": PEM_read_bio_X509_CRL() failed"), "{said}");
    }

    #[test]
    fn passwords_are_lines() {
        assert_eq!(passwords(b"one\r\n\ntwo").unwrap(), [b"one", b"two"]);
        assert_eq!(passwords(b"\n").unwrap(), [b""]);
        assert_eq!(passwords(&[b'x'; 600]), Err(LineTooLong));
    }
}
