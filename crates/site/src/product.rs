//! The name of the server in `Server` and below its own pages (`server_product`, `server_tokens`). Put
//! together at load; responses copy it.

use clearway_message::status::Pages;

/// The name where the configuration gives no other.
pub(crate) const NAME: &str = "clearway";

/// The release of nginx whose behaviour this is (`$nginx_version`).
pub const NGINX_VERSION: &str = "1.31.5";

/// How much is told (`server_tokens`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerTokens {
    /// Name and version; with `build` as well, for a build has no name of its own.
    On,
    /// The name.
    Off,
}

/// The signatures of one name.
pub struct Product {
    on: Signature,
    off: Signature,
}

/// The texts that are made of the name.
pub struct Signature {
    /// How a response of status 200 begins: its status line and `Server`.
    start: Box<[u8]>,
    /// The built-in pages, with this name at the bottom.
    pub pages: Pages,
}

const OK_LINE: &str = "HTTP/1.1 200 OK\r\n";

impl Product {
    /// A name is text that [`is_name`] takes.
    pub fn new(name: &str) -> Self {
        let version = match name {
            NAME => Some(env!("CARGO_PKG_VERSION")),
            "nginx" => Some(NGINX_VERSION),
            // It says itself what it wants to say.
            _ => None,
        };
        let full = version.map(|version| format!("{name}/{version}"));
        Self { on: Signature::new(full.as_deref().unwrap_or(name)), off: Signature::new(name) }
    }

    /// The signature that tells so much.
    pub fn signature(&self, tokens: ServerTokens) -> &Signature {
        match tokens {
            ServerTokens::On => &self.on,
            ServerTokens::Off => &self.off,
        }
    }
}

impl Signature {
    fn new(text: &str) -> Self {
        let start = format!("{OK_LINE}Server: {text}\r\n").into_bytes().into();
        Self { start, pages: Pages::new(text) }
    }

    /// Status line of a 200, and `Server`.
    #[inline]
    pub fn ok_lines(&self) -> &[u8] {
        &self.start
    }

    /// `Server` alone.
    #[inline]
    pub fn server_line(&self) -> &[u8] {
        &self.start[OK_LINE.len()..]
    }
}

/// Whether a text may stand in a header and in HTML as it is.
pub fn is_name(text: &[u8]) -> bool {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'<' | b'>' | b'&');
    !text.is_empty() && text.iter().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_message::status::Padding;

    #[test]
    fn versions_are_told_of_two_names_only() {
        let line = |name, tokens| {
            let product = Product::new(name);
            let signature = product.signature(tokens);
            let page = signature.pages.find(404, Padding::Off).expect("404 has a page");
            let server = String::from_utf8(signature.server_line().to_vec()).unwrap();
            let shown = server.trim_start_matches("Server: ").trim_end().to_owned();
            let text = String::from_utf8_lossy(page);
            assert!(text.contains(&format!("<center>{shown}</center>")), "{text}");
            assert!(signature.ok_lines().starts_with(b"HTTP/1.1 200 OK\r\nServer: "));
            shown
        };
        assert_eq!(line("nginx", ServerTokens::On), "nginx/1.31.5");
        assert_eq!(line("nginx", ServerTokens::Off), "nginx");
        assert_eq!(line("Apache/2.4", ServerTokens::On), "Apache/2.4");
        assert!(line(NAME, ServerTokens::On).starts_with("clearway/"));
        assert_eq!(line(NAME, ServerTokens::Off), "clearway");
    }

    #[test]
    fn names_are_plain_text() {
        assert!(is_name(b"nginx") && is_name(b"My Server (1.0)"));
        assert!(!is_name(b"") && !is_name(b"a\r\nb") && !is_name(b"a<b") && !is_name(b"\xe9"));
    }
}
