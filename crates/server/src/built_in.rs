//! The configuration that `clearway serve DIR` stands for.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Where `serve` listens unless told otherwise; the port is the first one tried.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:8080";
/// Where `serve --tls` listens for HTTPS unless told otherwise; the port is the first one tried.
pub const LISTEN_TLS_DEFAULT: &str = "127.0.0.1:8443";

/// Ports tried from the default one on.
const PORTS_TRIED: u16 = 100;

/// File types of the built-in configuration: type, extensions.
const TYPES: &[(&str, &str)] = &[
    ("text/html", "html htm shtml"),
    ("text/css", "css"),
    ("text/plain", "txt md log"),
    ("text/csv", "csv"),
    ("text/xml", "xml"),
    ("text/javascript", "js mjs"),
    ("application/json", "json map"),
    ("application/manifest+json", "webmanifest"),
    ("application/wasm", "wasm"),
    ("application/pdf", "pdf"),
    ("application/zip", "zip"),
    ("application/gzip", "gz"),
    ("image/svg+xml", "svg svgz"),
    ("image/png", "png"),
    ("image/jpeg", "jpg jpeg"),
    ("image/gif", "gif"),
    ("image/webp", "webp"),
    ("image/avif", "avif"),
    ("image/x-icon", "ico"),
    ("font/woff", "woff"),
    ("font/woff2", "woff2"),
    ("font/ttf", "ttf"),
    ("audio/mpeg", "mp3"),
    ("audio/ogg", "ogg"),
    ("video/mp4", "mp4"),
    ("video/webm", "webm"),
];

/// The directory that is served, and its address.
pub struct Site<'a> {
    /// The directory, absolute.
    pub directory: &'a Path,
    /// Its address; with [`tls`](Self::tls) that for HTTPS.
    pub address: SocketAddr,
    /// With TLS.
    pub tls: Option<Tls>,
}

/// How a directory is served with TLS.
pub struct Tls {
    /// Where plain requests are sent on to the address for HTTPS.
    pub plain: SocketAddr,
    /// A certificate in PEM.
    pub certificate: String,
    /// Its key in PEM.
    pub key: String,
}

impl Tls {
    /// With a certificate made for this run: for `localhost`, the addresses of this machine's loopback and
    /// `address`. Plain requests are taken at the first free port from that of [`LISTEN_DEFAULT`] on.
    ///
    /// # Errors
    /// If this is a build without TLS, or the library fails.
    #[cfg(feature = "tls")]
    pub fn for_development(address: SocketAddr) -> Result<Self, String> {
        use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
        let mut addresses = vec![IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
        if !address.ip().is_unspecified() && !addresses.contains(&address.ip()) {
            addresses.push(address.ip());
        }
        let made = clearway_tls::self_signed::self_signed(&addresses).map_err(|error| error.to_string())?;
        let first: SocketAddr = LISTEN_DEFAULT.parse().expect("a constant of this file");
        let plain = free_from(SocketAddr::new(address.ip(), first.port()), Some(address));
        Ok(Self { plain, certificate: made.certificate, key: made.key })
    }

    /// With a certificate made for this run.
    ///
    /// # Errors
    /// Always: this is a build without TLS.
    #[cfg(not(feature = "tls"))]
    pub fn for_development(_: SocketAddr) -> Result<Self, String> {
        Err("this is a build without TLS".to_owned())
    }

    /// Directives of a server for HTTPS, also for plain requests to its address.
    fn directives(&self, address: SocketAddr) -> Vec<u8> {
        let mut text = b"        http2 on;\n        ssl_certificate ".to_vec();
        text.extend_from_slice(&quoted(format!("data:{}", self.certificate).as_bytes()));
        text.extend_from_slice(b";\n        ssl_certificate_key ");
        text.extend_from_slice(&quoted(format!("data:{}", self.key).as_bytes()));
        let port = address.port();
        text.extend_from_slice(
            format!(";\n        error_page 497 =301 https://$host:{port}$request_uri;\n").as_bytes(),
        );
        text
    }

    /// The server that plain requests come to.
    fn plain_server(&self, address: SocketAddr) -> String {
        let (plain, port) = (self.plain, address.port());
        format!(
            "\n    server {{\n        listen {plain};\n        \
             return 301 https://$host:{port}$request_uri;\n    }}\n"
        )
    }
}

/// The text of the configuration that serves a directory.
#[must_use]
pub fn configuration(site: &Site<'_>) -> Vec<u8> {
    let Site { directory, address, tls } = site;
    let pid = std::env::temp_dir().join(format!("clearway-{}.pid", address.port()));
    let mut text = b"daemon off;\nmaster_process off;\nworker_processes auto;\npid ".to_vec();
    text.extend_from_slice(&quoted(pid.as_os_str().as_bytes()));
    text.extend_from_slice(
        b";\nerror_log stderr warn;\n\nevents {\n    worker_connections 1024;\n}\n\nhttp {\n    types {\n",
    );
    for (name, extensions) in TYPES {
        text.extend_from_slice(format!("        {name} {extensions};\n").as_bytes());
    }
    text.extend_from_slice(
        b"    }\n    default_type application/octet-stream;\n    access_log /dev/stderr combined;\n\n    \
          server {\n        listen ",
    );
    text.extend_from_slice(address.to_string().as_bytes());
    text.extend_from_slice(if tls.is_some() { b" ssl;\n" } else { b";\n" });
    if let Some(tls) = tls {
        text.extend_from_slice(&tls.directives(*address));
    }
    text.extend_from_slice(b"        root ");
    text.extend_from_slice(&quoted(directory.as_os_str().as_bytes()));
    text.extend_from_slice(b";\n        index index.html;\n        autoindex on;\n    }\n");
    if let Some(tls) = tls {
        text.extend_from_slice(tls.plain_server(*address).as_bytes());
    }
    text.extend_from_slice(b"}\n");
    text
}

/// A value in quotes. A dollar would begin a variable, and the language has no way to escape one, so
/// it is left to the loader to refuse it.
fn quoted(value: &[u8]) -> Vec<u8> {
    let mut text = vec![b'"'];
    for &byte in value {
        if matches!(byte, b'"' | b'\\') {
            text.push(b'\\');
        }
        text.push(byte);
    }
    text.push(b'"');
    text
}

/// An address at which one can listen now: `wanted` (port 0: any free one), or without one the first
/// free port from that of `default` on, which is [`LISTEN_DEFAULT`] or [`LISTEN_TLS_DEFAULT`].
///
/// # Panics
/// If `default` is not an address.
#[must_use]
pub fn free_address(wanted: Option<SocketAddr>, default: &str) -> SocketAddr {
    match wanted {
        Some(wanted) if wanted.port() == 0 => bound(wanted).unwrap_or(wanted),
        Some(wanted) => wanted,
        None => free_from(default.parse().expect("one of this file's constants"), None),
    }
}

/// The first address from `first` on, by port, that is free and is not `taken`; without any `first`.
fn free_from(first: SocketAddr, taken: Option<SocketAddr>) -> SocketAddr {
    let mut ports = first.port()..first.port() + PORTS_TRIED;
    let free = |port| {
        let address = SocketAddr::new(first.ip(), port);
        (Some(address) != taken).then(|| bound(address)).flatten()
    };
    ports.find_map(free).unwrap_or(first)
}

/// The address that a socket gets which is bound to this one, if that can be done now.
fn bound(address: SocketAddr) -> Option<SocketAddr> {
    TcpListener::bind(address).and_then(|listener| listener.local_addr()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_conf::parse_bytes;

    #[test]
    fn the_text_is_a_configuration_whatever_the_directory_is_called() {
        let address = "[::1]:8081".parse().unwrap();
        let plain = "[::1]:8082".parse().unwrap();
        let pem = || "-----BEGIN\nA+/=\n-----END\n".to_owned();
        for tls in [None, Some(Tls { plain, certificate: pem(), key: pem() })] {
            let servers = 1 + usize::from(tls.is_some());
            let site = Site { directory: Path::new("/a \"b\\c;{"), address, tls };
            let text = configuration(&site);
            let tree = parse_bytes(&text).unwrap();
            let http = tree.directives.iter().find(|d| d.name == "http").unwrap().block().unwrap();
            let mut found = http.directives.iter().filter(|d| d.name == "server");
            let server = found.next().unwrap();
            assert_eq!(found.count() + 1, servers);
            let root = server.block().unwrap().directives.iter().find(|d| d.name == "root").unwrap();
            assert_eq!(&root.args[0][..], b"/a \"b\\c;{");
        }
    }

    #[test]
    fn takes_a_free_port() {
        let any = free_address(Some("127.0.0.1:0".parse().unwrap()), LISTEN_DEFAULT);
        assert_ne!(any.port(), 0);
        // Another process of this machine may be faster with the first.
        let next = || free_address(None, LISTEN_DEFAULT);
        let taken = (0..100).find_map(|_| TcpListener::bind(next()).ok()).unwrap();
        assert_ne!(next(), taken.local_addr().unwrap());
    }

    #[test]
    fn another_port_for_plain_requests() {
        let first: SocketAddr = LISTEN_DEFAULT.parse().unwrap();
        assert_ne!(free_from(first, Some(first)), first);
    }
}
