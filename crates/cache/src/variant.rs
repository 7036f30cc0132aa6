//! Responses with `Vary`: the digest of the stored response that answers a request. It is computed as in
//! nginx, from the key and the request headers that `Vary` names. Pure functions.

use md5::{Digest as _, Md5};

use crate::key::Digest;

/// Headers with lists: spaces and the split into lines make no difference to the digest.
const LISTS: [&[u8]; 3] = [b"accept-charset", b"accept-encoding", b"accept-language"];

/// The digest of a response with this `Vary` for a request with these header lines (names in any case, in
/// the order of their arrival). `main` is the digest of the key.
#[must_use]
pub fn variant<'l>(
    main: Digest,
    vary: &[u8],
    lines: impl Iterator<Item = (&'l [u8], &'l [u8])> + Clone,
) -> Digest {
    let mut md5 = Md5::new_with_prefix(main.0);
    for name in items(vary) {
        let name = name.to_ascii_lowercase();
        md5.update(&name);
        md5.update(b":");
        let is_list = LISTS.contains(&name.as_slice());
        let mut separator: &[u8] = b"";
        for (_, value) in lines.clone().filter(|(line, _)| line.eq_ignore_ascii_case(&name)) {
            let whole = (!is_list).then_some(value);
            let parts = is_list.then(|| items(value)).into_iter().flatten();
            for part in whole.into_iter().chain(parts) {
                md5.update(separator);
                md5.update(part);
                separator = b",";
            }
        }
        md5.update(b"\r\n");
    }
    Digest(md5.finalize().into())
}

/// The items of a list, separated by commas and spaces.
fn items(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| matches!(byte, b' ' | b',')).filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    const VARY: &[u8] = b"Accept-Encoding, X-Kind";

    fn of(lines: &[(&str, &str)]) -> String {
        let lines = lines.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        variant(Key::new(b"/some/page?x=1".to_vec()).digest(), VARY, lines).to_string()
    }

    #[test]
    fn variants_have_the_digests_that_nginx_computes() {
        // Both were read from files that nginx 1.31.5 wrote.
        let asked = [("Accept-Encoding", "gzip ,br"), ("X-Kind", "a"), ("X-Kind", "b, c")];
        assert_eq!(of(&asked), "051a2dec38c53e1f7636259f0321ccce");
        assert_eq!(of(&[("Host", "localhost")]), "f3218c99d1926526da82877e44d1bbc3");
    }

    #[test]
    fn lists_of_codings_are_the_same_however_they_are_spaced() {
        let one = of(&[("accept-encoding", "gzip, br")]);
        assert_eq!(one, of(&[("Accept-Encoding", " ,gzip,,br ,")]));
        assert_eq!(one, of(&[("Accept-Encoding", "gzip"), ("ACCEPT-ENCODING", "br")]));
        assert_ne!(one, of(&[("Accept-Encoding", "br, gzip")]));
        assert_ne!(of(&[("X-Kind", "a,b")]), of(&[("X-Kind", "a, b")]));
    }
}
