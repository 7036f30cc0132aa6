//! Browsers of the past that a connection is not kept alive for (`keepalive_disable`). Pure functions
//! of the `User-Agent`, run on loops.

use clearway_message::{Known, Method};
use clearway_site::KeepaliveDisable;

use crate::request::Request;

/// Whether the connection is to be closed after the request for the browser's sake.
pub(crate) fn is_refused_keep_alive(request: &Request<'_>, disabled: KeepaliveDisable) -> bool {
    let is_msie6_asked = disabled.meets(KeepaliveDisable::MSIE6) && request.method() == Method::Post;
    let is_safari_asked = disabled.meets(KeepaliveDisable::SAFARI);
    if !is_msie6_asked && !is_safari_asked {
        return false;
    }
    let Some(agent) = request.header(Known::UserAgent) else { return false };
    (is_msie6_asked && is_msie6(agent)) || (is_safari_asked && is_safari(agent))
}

impl Request<'_> {
    /// Whether the client says that it is Internet Explorer 4 to 6, but for the last service pack of that.
    #[must_use]
    pub fn is_msie6(&self) -> bool {
        self.header(Known::UserAgent).is_some_and(is_msie6)
    }
}

/// Internet Explorer 4 to 6; of the last one the service pack with the label `SV1` is meant to be sound.
fn is_msie6(agent: &[u8]) -> bool {
    let Some(at) = memchr::memmem::find(agent, b"MSIE ") else { return false };
    if contains(agent, b"Opera") {
        return false;
    }
    match agent.get(at + 5..) {
        Some([b'4' | b'5', b'.', _, ..]) => true,
        Some([b'6', b'.', _, rest @ ..]) => !contains(rest, b"SV1"),
        _ => false,
    }
}

fn is_safari(agent: &[u8]) -> bool {
    contains(agent, b"Safari/") && contains(agent, b"Mac OS X") && !is_other_engine(agent)
}

/// Whether a browser says `Safari/` only for compatibility.
fn is_other_engine(agent: &[u8]) -> bool {
    [&b"Opera"[..], b"Gecko/", b"Chrome/"].iter().any(|word| contains(agent, word))
}

fn contains(agent: &[u8], word: &[u8]) -> bool {
    memchr::memmem::find(agent, word).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_the_browsers_apart() {
        assert!(is_msie6(b"Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.0)"));
        assert!(is_msie6(b"Mozilla/4.0 (compatible; MSIE 5.5; Windows 98)"));
        assert!(!is_msie6(b"Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)"));
        assert!(!is_msie6(b"Mozilla/4.0 (compatible; MSIE 7.0; Windows NT 5.1)"));
        assert!(!is_msie6(b"Mozilla/4.0 (compatible; MSIE 6.0; X11) Opera 8.5"));
        assert!(!is_msie6(b"curl/7.88"));
        let mac = b"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_7) AppleWebKit/534 Version/5.1 Safari/534.48";
        assert!(is_safari(mac));
        let chrome =
            b"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15) AppleWebKit/537 Chrome/120 Safari/537.36";
        assert!(!is_safari(chrome));
    }
}
