//! Certificates, keys and lists as directives name them: files, or their text behind `data:`; and what nginx
//! says of those that cannot be loaded. The caller brings what reads a file: at load that may be the master's
//! copy, while requests are served a pool's thread.
#![forbid(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use clearway_offload::{At, Blocking};

use crate::engine::{LoadError, Reasons};
use crate::pair::{Chain, Pair};
use crate::reason::{FileFault, Reason};
use crate::sys::{Certificate, PrivateKey, read_revoked};

/// Before the text of a certificate or key that stands in the configuration itself.
const DATA: &[u8] = b"data:";
/// Before names of keys that are not read here.
const ELSEWHERE: [&str; 2] = ["engine:", "store:"];

/// A function that reads a file.
pub type ReadFile<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<Vec<u8>>;

/// The identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Its number in its file system.
    pub inode: u64,
    /// When it was written last, seconds since 1970.
    pub changed_s: i64,
}

/// Files as a thread that may block finds them.
pub trait Files {
    /// The content of a file.
    ///
    /// # Errors
    /// As open(2) and read(2).
    fn read(&self, name: &[u8]) -> io::Result<Vec<u8>>;

    /// The file's present identity, to tell whether it has changed.
    ///
    /// # Errors
    /// As stat(2).
    fn stamp(&self, name: &[u8]) -> io::Result<Stamp>;
}

/// Files of the system.
pub struct SystemFiles<'a>(PhantomData<&'a Blocking>);

impl<'a> SystemFiles<'a> {
    /// For jobs of pools.
    #[must_use]
    pub fn new(_: &'a Blocking) -> Self {
        Self(PhantomData)
    }
}

#[expect(clippy::disallowed_methods, reason = "the witness says that this is a pool's thread")]
impl Files for SystemFiles<'_> {
    fn read(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        debug_assert!(is_file(name));
        std::fs::read(path_of(name))
    }

    fn stamp(&self, name: &[u8]) -> io::Result<Stamp> {
        let found = std::fs::metadata(path_of(name))?;
        Ok(Stamp { inode: found.ino(), changed_s: found.mtime() })
    }
}

fn path_of(name: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(name))
}

/// Where a job that reads these has to go to.
#[must_use]
pub fn place_of<'a>(names: impl IntoIterator<Item = &'a [u8]>) -> At {
    let mut files = names.into_iter().filter(|name| is_file(name)).peekable();
    if files.peek().is_none() {
        return At::Anywhere;
    }
    At::any_of(files.map(|name| path_of(name).to_path_buf()))
}

/// Where a certificate and its key are.
#[derive(Clone, Copy, Debug)]
pub struct PairNames<'a> {
    /// `…_certificate`
    pub certificate: &'a [u8],
    /// `…_certificate_key`
    pub key: &'a [u8],
}

/// The name of a certificate and its key, as computed for one connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PairName {
    /// `…_certificate`
    pub certificate: Vec<u8>,
    /// `…_certificate_key`
    pub key: Vec<u8>,
}

impl PairName {
    /// Both, borrowed.
    #[must_use]
    pub fn names(&self) -> PairNames<'_> {
        PairNames { certificate: &self.certificate, key: &self.key }
    }
}

/// Whether a name stands for a file, whose place may depend on where the configuration is.
#[must_use]
pub fn is_file(name: &[u8]) -> bool {
    !name.starts_with(DATA) && kind_elsewhere(name).is_none()
}

fn kind_elsewhere(name: &[u8]) -> Option<&'static str> {
    ELSEWHERE.into_iter().find(|kind| name.starts_with(kind.as_bytes()))
}

/// A name as it is looked for: behind where relative ones begin. The text of a certificate stays as it is.
#[must_use]
pub fn full_name(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    if name.starts_with(b"/") || !is_file(name) { name.to_vec() } else { [prefix, name].concat() }
}

impl PairNames<'_> {
    /// Loads both.
    ///
    /// # Errors
    /// nginx's message.
    pub fn load(&self, passwords: &[Vec<u8>], read: ReadFile<'_>) -> Result<Pair, String> {
        // The certificate is complained of first.
        let chain = self.load_chain(read)?;
        Ok(Pair::new(Arc::new(chain), Arc::new(self.load_key(passwords, read)?)))
    }

    /// Loads the certificate and those behind it.
    ///
    /// # Errors
    /// nginx's message.
    pub fn load_chain(&self, read: ReadFile<'_>) -> Result<Chain, String> {
        let text = text_of(self.certificate, read).map_err(|said| self.certificate_fault(&said))?;
        Chain::read(&text).map_err(|error| self.certificate_fault(&error.to_string()))
    }

    /// Loads the key.
    ///
    /// # Errors
    /// nginx's message.
    pub fn load_key(&self, passwords: &[Vec<u8>], read: ReadFile<'_>) -> Result<PrivateKey, String> {
        if let Some(kind) = kind_elsewhere(self.key) {
            return Err(self.key_fault(&format!("loading \"{kind}...\" certificate keys is not supported")));
        }
        let text = text_of(self.key, read).map_err(|said| self.key_fault(&said))?;
        PrivateKey::read(&text, passwords).map_err(|error| self.key_fault(&error.to_string()))
    }

    /// nginx's message for a pair that a context or a session refuses.
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
/// nginx's message.
pub fn load_trusted(name: &[u8], read: ReadFile<'_>) -> Result<Vec<u8>, String> {
    let fault = |said: &str| cannot_load("certificate", name, said);
    let text = text_of(name, read).map_err(|said| fault(&said))?;
    let expected = "TRUSTED CERTIFICATE";
    Certificate::read_all(&text).map_err(|error| fault(&error.expecting(expected).to_string()))?;
    Ok(text)
}

/// Lists of revoked certificates, in PEM.
///
/// # Errors
/// nginx's message.
pub fn load_revoked(name: &[u8], read: ReadFile<'_>) -> Result<Vec<u8>, String> {
    let fault = |said: &str| cannot_load("CRL", name, said);
    let text = text_of(name, read).map_err(|said| fault(&said))?;
    read_revoked(&text).map_err(|error| fault(&error.expecting("X509 CRL").to_string()))?;
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

/// OpenSSL's message for a file that cannot be opened.
fn unread(path: &[u8], error: &io::Error) -> String {
    format!("BIO_new_file() failed ({})", unread_as(path, "r", error))
}

/// OpenSSL's message for a file that is no text and cannot be opened: `SSL: error:…`.
#[must_use]
pub fn unread_binary(path: &[u8], error: &io::Error) -> String {
    unread_as(path, "rb", error)
}

fn unread_as(path: &[u8], mode: &str, error: &io::Error) -> String {
    let number = error.raw_os_error().unwrap_or_default();
    let text = error.to_string();
    let text = text.strip_suffix(&format!(" (os error {number})")).unwrap_or(&text);
    let path = String::from_utf8_lossy(path);
    let system =
        Reason::of_system(number.unsigned_abs(), text).with_detail(format!("calling fopen({path}, {mode})"));
    let fault = match error.kind() {
        io::ErrorKind::NotFound => FileFault::Missing,
        _ => FileFault::Other,
    };
    let reasons = [system, Reason::of_file(fault)];
    format!("SSL:{}", Reasons(&reasons))
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
    fn keys_that_are_elsewhere_are_refused() {
        let certificate = [DATA, include_bytes!("../tests/data/rsa.pem")].concat();
        let names = PairNames { certificate: &certificate, key: &full_name(b"/etc/", b"store:pkcs11:x") };
        let said = names.load(&[], &mut missing).err().unwrap();
        let (name, why) = ("store:pkcs11:x", "loading \"store:...\" certificate keys is not supported");
        assert_eq!(said, format!("cannot load certificate key \"{name}\": {why}"));
        assert_eq!(full_name(b"/etc/", b"a.pem"), b"/etc/a.pem");
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
