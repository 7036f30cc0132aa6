//! Where a file lies below the cache's directory: `levels=1:2` makes `c/29/b7f5…029c`, with the last
//! characters of the name as the folders' names (nginx's `proxy_cache_path`).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::key::{DIGEST_BYTES, Digest};

/// Folders above a file at most.
const LEVELS_MAX: usize = 3;

/// Characters of a file's name.
const NAME_CHARACTERS: usize = 2 * DIGEST_BYTES;

/// The folders between a cache's directory and a file: none to three, each of one or two characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Levels {
    characters: [u8; LEVELS_MAX],
}

/// The value of `levels=` is not one to three numbers, each 1 or 2, with colons between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLevels;

impl Levels {
    /// Parses the value of `levels=`.
    ///
    /// # Errors
    /// See [`BadLevels`].
    pub fn parse(text: &[u8]) -> Result<Self, BadLevels> {
        let mut levels = Self::default();
        let mut parts = text.split(|&byte| byte == b':');
        for characters in &mut levels.characters {
            *characters = match parts.next() {
                Some(b"1") => 1,
                Some(b"2") => 2,
                Some(_) => return Err(BadLevels),
                None => break,
            };
        }
        if parts.next().is_some() { Err(BadLevels) } else { Ok(levels) }
    }

    /// The length of each level's name, from the cache's directory down, characters.
    pub fn characters(self) -> impl Iterator<Item = usize> {
        self.characters.into_iter().take_while(|&n| n > 0).map(usize::from)
    }

    /// The file's path below the cache's directory.
    #[must_use]
    pub fn relative(self, digest: Digest) -> PathBuf {
        let name = digest.to_string().into_bytes();
        let mut path = Vec::with_capacity(NAME_CHARACTERS + 3 * LEVELS_MAX);
        let mut end = name.len();
        for characters in self.characters() {
            path.extend_from_slice(&name[end - characters..end]);
            path.push(b'/');
            end -= characters;
        }
        path.extend_from_slice(&name);
        PathBuf::from(OsString::from_vec(path))
    }

    /// The digest of the file with this path below the cache's directory, if these levels put it there: other
    /// files in the directory are not the cache's.
    #[must_use]
    pub fn digest_of(self, relative: &Path) -> Option<Digest> {
        let name = relative.file_name()?.to_str()?;
        if name.len() != NAME_CHARACTERS
            || !name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        {
            return None;
        }
        let mut digest = Digest([0; DIGEST_BYTES]);
        for (byte, pair) in digest.0.iter_mut().zip(name.as_bytes().chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        (self.relative(digest) == relative).then_some(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_what_nginx_takes() {
        let lengths = |text: &[u8]| Levels::parse(text).map(|levels| levels.characters().collect::<Vec<_>>());
        assert_eq!(lengths(b"1"), Ok(vec![1]));
        assert_eq!(lengths(b"1:2"), Ok(vec![1, 2]));
        assert_eq!(lengths(b"2:2:2"), Ok(vec![2, 2, 2]));
        for bad in [&b""[..], b"0", b"3", b"1:", b":1", b"1:3", b"1:2:2:1", b"1 2", b"12"] {
            assert_eq!(lengths(bad), Err(BadLevels), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn a_file_lies_where_nginx_puts_it() {
        let digest = crate::Key::new(b"/some/page?x=1".to_vec()).digest();
        let path = |levels: &[u8]| Levels::parse(levels).expect("levels").relative(digest);
        assert_eq!(path(b"1:2"), Path::new("9/53/cac227e1732aaa07f469915fd6f86539"));
        assert_eq!(path(b"2:1:1"), Path::new("39/5/6/cac227e1732aaa07f469915fd6f86539"));
        assert_eq!(Levels::default().relative(digest), Path::new("cac227e1732aaa07f469915fd6f86539"));
    }

    #[test]
    fn only_files_in_their_place_are_known_again() {
        let levels = Levels::parse(b"1:2").expect("levels");
        let digest = crate::Key::new(b"/some/page?x=1".to_vec()).digest();
        assert_eq!(levels.digest_of(&levels.relative(digest)), Some(digest));
        for foreign in [
            "9/54/cac227e1732aaa07f469915fd6f86539",
            "cac227e1732aaa07f469915fd6f86539",
            "9/53/cac227e1732aaa07f469915fd6f86539.0000000001",
            "9/53/CAC227e1732aaa07f469915fd6f86539",
            "9/53",
            "",
        ] {
            assert_eq!(levels.digest_of(Path::new(foreign)), None, "{foreign}");
        }
    }
}
