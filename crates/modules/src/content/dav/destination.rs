//! The `Destination` of COPY and MOVE: from the header to a path of this server, by nginx's rules. Pure
//! functions; they run on loops.

use std::borrow::Cow;

/// Why a destination is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The header is a URL, and the request has no host to compare it with.
    NoHost,
    /// The URL has another host.
    Elsewhere,
    Invalid,
}

/// The part of `Destination` from its first slash on, if it is of this host.
pub(super) fn local_part<'a>(header: &'a [u8], host: Option<&[u8]>) -> Result<&'a [u8], Fault> {
    if header.first() == Some(&b'/') {
        return Ok(header);
    }
    let host = host.filter(|host| !host.is_empty()).ok_or(Fault::NoHost)?;
    let rest = header.strip_prefix(b"http://").ok_or(Fault::Invalid)?;
    let rest = rest.strip_prefix(host).ok_or(Fault::Elsewhere)?;
    let slash = rest.iter().position(|&byte| byte == b'/').ok_or(Fault::Invalid)?;
    Ok(&rest[slash..])
}

/// Decodes the path of a URI that a client has put into a header; arguments are dropped. The error is what
/// is unsafe: it leads upwards, has a NUL, or is empty.
pub(super) fn decode(uri: &[u8]) -> Result<Vec<u8>, Cow<'_, [u8]>> {
    if matches!(uri.first(), None | Some(b'?')) || leads_upwards(uri) {
        return Err(Cow::Borrowed(uri));
    }
    let path = uri.split(|&byte| byte == b'?').next().unwrap_or_default();
    if is_unsafe(path) {
        return Err(Cow::Borrowed(uri));
    }
    if !path.contains(&b'%') {
        return Ok(path.to_vec());
    }
    let decoded = unescape(path);
    if is_unsafe(&decoded) { Err(Cow::Owned(decoded)) } else { Ok(decoded) }
}

/// Whether a path begins with `..`.
fn leads_upwards(path: &[u8]) -> bool {
    path.strip_prefix(b"..").is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
}

fn is_unsafe(path: &[u8]) -> bool {
    leads_upwards(path)
        || path.contains(&b'\0')
        || path.iter().enumerate().any(|(at, &byte)| byte == b'/' && leads_upwards(&path[at + 1..]))
}

/// Decodes what is percent-encoded. As in nginx a sign that is followed by no digits is dropped, and so is
/// a digit that is followed by none.
fn unescape(text: &[u8]) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|&byte| char::from(byte).to_digit(16));
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let Some(high) = digit(text.get(at)) else {
            out.extend(text.get(at));
            at += 1;
            continue;
        };
        if let Some(low) = digit(text.get(at + 1)) {
            out.push((high << 4 | low) as u8);
        }
        at += 2;
    }
    out
}

/// Makes one slash of several.
pub(super) fn merge_slashes(path: &mut Vec<u8>) {
    path.dedup_by(|one, before| *one == b'/' && *before == b'/');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_of_this_host() {
        let part = |header: &'static str| local_part(header.as_bytes(), Some(b"a.b"));
        assert_eq!(part("/x/y"), Ok(&b"/x/y"[..]));
        assert_eq!(part("http://a.b/x"), Ok(&b"/x"[..]));
        assert_eq!(part("http://a.b:8080/x?y"), Ok(&b"/x?y"[..]));
        // The name is compared as far as it goes.
        assert_eq!(part("http://a.bc/x"), Ok(&b"/x"[..]));
        assert_eq!(part("http://A.b/x"), Err(Fault::Elsewhere));
        assert_eq!(part("http://a.b"), Err(Fault::Invalid));
        assert_eq!(part("https://a.b/x"), Err(Fault::Invalid));
        assert_eq!(part("x"), Err(Fault::Invalid));
        assert_eq!(part(""), Err(Fault::Invalid));
        assert_eq!(local_part(b"http://a/x", None), Err(Fault::NoHost));
        assert_eq!(local_part(b"/x", None), Ok(&b"/x"[..]));
    }

    #[test]
    fn paths_are_decoded_or_unsafe() {
        let decoded = |uri: &'static str| decode(uri.as_bytes()).map_err(Cow::into_owned);
        assert_eq!(decoded("/a%20b/%C3%A9?x=1"), Ok("/a b/é".into()));
        assert_eq!(decoded("/..a/b../..."), Ok(b"/..a/b../...".to_vec()));
        assert_eq!(decoded("/a%zb%4"), Ok(b"/azb".to_vec()));
        assert_eq!(decoded("/a%4zb%"), Ok(b"/ab".to_vec()));
        for uri in ["", "?x", "..", "../a", "/..", "/../a", "/a/..", "/a/../b", "/a\0b", "/..?x"] {
            assert_eq!(decoded(uri), Err(uri.into()), "{uri:?}");
        }
        assert_eq!(decoded("/a/%2e%2e/b?x"), Err(b"/a/../b".to_vec()));
        assert_eq!(decoded("/a%00"), Err(b"/a\0".to_vec()));
        assert_eq!(decoded("/a%2f..%2fb"), Err(b"/a/../b".to_vec()));
    }

    #[test]
    fn slashes() {
        let mut path = b"//a///b/c//".to_vec();
        merge_slashes(&mut path);
        assert_eq!(path, b"/a/b/c/");
    }
}
