//! Decodes a URL that a `rewrite` has made for the client, as nginx does. Pure functions, run on loops.

/// Decodes, up to the first `?`, the percent-encoded bytes that need no encoding: all visible ones behind
/// `%`. Controls and the like stay encoded, so that no line can end in a URL. An encoded `?` is decoded
/// too and ends it. A malformed escape loses its `%`, or all of it if its first digit is good.
pub(super) fn unescape(url: Vec<u8>) -> Vec<u8> {
    if memchr::memchr(b'%', &url).is_none() {
        return url;
    }
    let mut out = Vec::with_capacity(url.len());
    let mut rest = &url[..];
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'?' => {
                out.push(byte);
                break;
            }
            b'%' => {
                let Some(decoded) = take_escape(&mut rest, &mut out) else { continue };
                if decoded == b'?' {
                    break;
                }
            }
            _ => out.push(byte),
        }
    }
    out.extend_from_slice(rest);
    out
}

/// Decodes the text behind a `%`. Returns the byte, if it was valid.
fn take_escape(rest: &mut &[u8], out: &mut Vec<u8>) -> Option<u8> {
    let (&first, behind) = rest.split_first()?;
    *rest = behind;
    let Some(high) = hex(first) else {
        out.push(first);
        return None;
    };
    let (&second, behind) = rest.split_first()?;
    *rest = behind;
    let byte = high << 4 | hex(second)?;
    if byte > b'%' && byte < 0x7f {
        out.push(byte);
        return Some(byte);
    }
    out.extend_from_slice(&[b'%', first, second]);
    None
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As nginx 1.31.5 sends them for `rewrite ^ http://a/$arg_x? redirect`.
    #[test]
    fn escapes_as_in_nginx() {
        for (url, expected) in [
            ("/plain?a%41", "/plain?a%41"),
            ("/%41%2f%7e", "/A/~"),
            ("/%0d%0a%20%25%7f%ff", "/%0d%0a%20%25%7f%ff"),
            ("/%26%27%5F", "/&'_"),
            ("/x%3Fy%41", "/x?y%41"),
            ("/x%3fy?z%41", "/x?y?z%41"),
            ("/%zz%4", "/zz"),
            ("/%4gA%", "/A"),
            ("/%%41", "/%41"),
        ] {
            let got = unescape(url.as_bytes().to_vec());
            assert_eq!(String::from_utf8(got).unwrap(), expected, "{url}");
        }
    }
}
