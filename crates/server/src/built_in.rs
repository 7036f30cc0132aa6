//! The configuration that `clearway serve DIR` stands for.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;

/// Where `serve` listens unless told otherwise; the port is the first one tried.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:8080";

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

/// The text of the configuration that serves `directory` at `address`.
#[must_use]
pub fn configuration(directory: &Path, address: SocketAddr) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
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
    text.extend_from_slice(b";\n        root ");
    text.extend_from_slice(&quoted(directory.as_os_str().as_bytes()));
    text.extend_from_slice(b";\n        index index.html;\n        autoindex on;\n    }\n}\n");
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
/// free port from [`LISTEN_DEFAULT`]'s on.
#[must_use]
pub fn free_address(wanted: Option<SocketAddr>) -> SocketAddr {
    let bound = |address: SocketAddr| TcpListener::bind(address).and_then(|l| l.local_addr()).ok();
    if let Some(wanted) = wanted {
        return if wanted.port() == 0 { bound(wanted).unwrap_or(wanted) } else { wanted };
    }
    let default: SocketAddr = LISTEN_DEFAULT.parse().expect("a constant of this file");
    let ports = default.port()..default.port() + PORTS_TRIED;
    ports.map(|port| SocketAddr::new(default.ip(), port)).find_map(bound).unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_conf::parse_bytes;

    #[test]
    fn the_text_is_a_configuration_whatever_the_directory_is_called() {
        let address = "[::1]:8081".parse().unwrap();
        let text = configuration(Path::new("/a \"b\\c;{"), address);
        let tree = parse_bytes(&text).unwrap();
        let http = tree.directives.iter().find(|d| d.name == "http").unwrap();
        let server = http.block().unwrap().directives.iter().find(|d| d.name == "server").unwrap();
        let root = server.block().unwrap().directives.iter().find(|d| d.name == "root").unwrap();
        assert_eq!(&root.args[0][..], b"/a \"b\\c;{");
    }

    #[test]
    fn takes_a_free_port() {
        let any = free_address(Some("127.0.0.1:0".parse().unwrap()));
        assert_ne!(any.port(), 0);
        // Somebody else on this machine may be faster with the first.
        let taken = (0..100).find_map(|_| TcpListener::bind(free_address(None)).ok()).unwrap();
        assert_ne!(free_address(None), taken.local_addr().unwrap());
    }
}
