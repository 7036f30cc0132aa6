//! The directory of one server below the system's temporary directory, with everything it reads and
//! writes, and the texts in which `%%KEY%%` stands for what differs from run to run: `%%PORT%%`,
//! `%%PORT2%%` … a free port each, `%%PREFIX%%` the directory, `%%TEMP%%` what only nginx needs (its
//! temporary directories), so that it works without the rights of a system service.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use crate::binary::Product;
use crate::client::Address;
use crate::ports::free_port;

/// Modification time of every file that a test makes (2024-01-02 03:04:05 UTC), so that two servers
/// send the same validators.
const FILE_TIME_SECONDS: u64 = 1_704_164_645;

const TEMP: &str = "client_body_temp_path temp/body; proxy_temp_path temp/proxy; \
    fastcgi_temp_path temp/fastcgi; uwsgi_temp_path temp/uwsgi; scgi_temp_path temp/scgi;";

/// See the head of this file.
pub(crate) struct Prefix {
    pub(crate) dir: PathBuf,
    ports: Vec<(String, u16)>,
    product: Product,
}

impl Prefix {
    /// A new directory that everybody may use: some servers run as another user.
    pub(crate) fn new(product: Product) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Each name is as long as any other: lengths of bodies and where lines of logs are cut depend on it.
        let name = format!("clearway-test-{:07}-{number:05}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        drop(fs::remove_dir_all(&dir));
        for dir in [dir.clone(), dir.join("logs"), dir.join("temp")] {
            make_dir(&dir);
        }
        Self { dir, ports: Vec::new(), product }
    }

    /// Gives every `%%PORT…%%` of the text that has none yet a port.
    pub(crate) fn assign_ports(&mut self, text: &str) {
        for key in keys(text).into_iter().filter(|key| key.starts_with("PORT")) {
            if !self.ports.iter().any(|(known, _)| *known == key) {
                self.ports.push((key, free_port()));
            }
        }
    }

    /// All ports that were given out, on 127.0.0.1.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.ports.iter().map(|(_, port)| localhost(*port)).collect()
    }

    /// # Panics
    /// If no text has had the key.
    pub(crate) fn port(&self, key: &str) -> u16 {
        let found = self.ports.iter().find(|(name, _)| name == key);
        found.unwrap_or_else(|| panic!("the configuration has no %%{key}%%")).1
    }

    /// An address in nginx's words, with keys.
    pub(crate) fn address(&self, listen: &str) -> Address {
        let text = self.fill(listen);
        match text.strip_prefix("unix:") {
            Some(path) => Address::Unix(path.into()),
            None => Address::Tcp(text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))),
        }
    }

    /// The text with everything in place of its keys.
    pub(crate) fn fill(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for (key, port) in &self.ports {
            out = out.replace(&format!("%%{key}%%"), &port.to_string());
        }
        let temp = if self.product == Product::Nginx { TEMP } else { "" };
        out.replace("%%PREFIX%%", &self.dir.to_string_lossy()).replace("%%TEMP%%", temp)
    }

    /// The text with keys in place of ports and directory.
    pub(crate) fn with_keys(&self, text: &str) -> String {
        let mut out = text.replace(&*self.dir.to_string_lossy(), "%%PREFIX%%");
        for (key, port) in &self.ports {
            out = replace_number(&out, &port.to_string(), &format!("%%{key}%%"));
        }
        out
    }

    /// Writes a file; keys in it are filled in.
    pub(crate) fn write(&self, path: &str, content: &[u8]) {
        let path = self.dir.join(path);
        match std::str::from_utf8(content) {
            Ok(text) if text.contains("%%") => write_file(&path, self.fill(text).as_bytes()),
            _ => write_file(&path, content),
        }
    }

    /// A file as text; empty if it is not there.
    pub(crate) fn read(&self, path: &str) -> String {
        let bytes = fs::read(self.dir.join(path)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Every file and socket below the directory, relative to it, in order.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut out = Vec::new();
        let mut dirs = vec![self.dir.clone()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => dirs.push(entry.path()),
                    _ => out.extend(entry.path().strip_prefix(&self.dir).map(|p| p.display().to_string())),
                }
            }
        }
        out.sort();
        out
    }

    /// Removes it with everything in it.
    pub(crate) fn remove(&self) {
        drop(fs::remove_dir_all(&self.dir));
    }
}

fn localhost(port: u16) -> Address {
    Address::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
}

fn make_dir(dir: &Path) {
    fs::create_dir_all(dir).expect("the temporary directory is writable");
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).expect("the directory is ours");
}

fn write_file(path: &Path, content: &[u8]) {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).expect("the prefix is writable");
    }
    fs::write(path, content).expect("the prefix is writable");
    let file = fs::File::options().write(true).open(path).expect("it was just written");
    file.set_modified(UNIX_EPOCH + Duration::from_secs(FILE_TIME_SECONDS)).expect("the file is ours");
}

/// The names between `%%`, each once, in order.
fn keys(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for name in text.split("%%").skip(1).step_by(2) {
        if !out.iter().any(|known| known == name) {
            out.push(name.to_owned());
        }
    }
    out
}

/// Replaces a number where it stands alone.
fn replace_number(text: &str, number: &str, by: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(number) {
        let (before, after) = (&rest[..at], &rest[at + number.len()..]);
        let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        let alone = !digit(before.chars().next_back()) && !digit(after.chars().next());
        out.push_str(before);
        out.push_str(if alone { by } else { number });
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_filled() {
        let config = "listen %%PORT%%; listen %%PORT2%%; listen [::1]:%%PORT%%; root %%PREFIX%%/x; %%TEMP%%";
        assert_eq!(keys(config), ["PORT", "PORT2", "PREFIX", "TEMP"]);
        let prefix = Prefix {
            dir: "/p".into(),
            ports: vec![("PORT".to_owned(), 1), ("PORT2".to_owned(), 2)],
            product: Product::Clearway,
        };
        let filled = prefix.fill(config);
        assert_eq!(filled, "listen 1; listen 2; listen [::1]:1; root /p/x; ");
        assert_eq!(prefix.with_keys("/p/x:1 21"), "%%PREFIX%%/x:%%PORT%% 21");
    }

    #[test]
    fn ports_are_replaced_where_they_stand_alone() {
        assert_eq!(replace_number("a:123 1234 0123 123", "123", "P"), "a:P 1234 0123 P");
    }

    #[test]
    fn what_lies_in_it_is_listed() {
        let prefix = Prefix::new(Product::Clearway);
        prefix.write("site/x", b"");
        prefix.write("a.conf", b"");
        assert_eq!(prefix.files(), ["a.conf", "site/x"]);
        prefix.remove();
        assert!(!prefix.dir.exists());
    }
}
