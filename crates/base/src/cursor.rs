//! Reads what another process has written into memory that both have: numbers of fixed sizes, least
//! significant byte first (as x86 has them), and texts with their length before them.

/// The bytes that are still to be read. Each method takes its part away, or says `None` where so much is not
/// left; what has been taken by then stays taken, so the rest means nothing after a `None`.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    /// Reads from the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of `N` bytes, eight at most.
    pub fn number<const N: usize>(&mut self) -> Option<u64> {
        const { assert!(N <= 8, "it is to fit into 64 bits") };
        let mut eight = [0; 8];
        eight[..N].copy_from_slice(self.take(N)?);
        Some(u64::from_le_bytes(eight))
    }

    /// As many bytes as the number of `N` bytes before them says.
    pub fn counted<const N: usize>(&mut self) -> Option<&'a [u8]> {
        let count = usize::try_from(self.number::<N>()?).ok()?;
        self.take(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_counted_bytes_come_in_order() {
        let mut rest = Cursor::new(&[7, 0x34, 0x12, 2, 0, b'o', b'k', 9]);
        assert_eq!(rest.number::<1>(), Some(7));
        assert_eq!(rest.number::<2>(), Some(0x1234));
        assert_eq!(rest.counted::<2>(), Some(&b"ok"[..]));
        assert_eq!(rest.take(1), Some(&[9][..]));
        assert_eq!(rest.take(1), None);
        assert_eq!(rest.take(0), Some(&[][..]));
    }

    #[test]
    fn what_is_cut_short_is_not_read() {
        assert_eq!(Cursor::new(&[1, 2, 3]).number::<4>(), None);
        assert_eq!(Cursor::new(&[3, b'o', b'k']).counted::<1>(), None);
        assert_eq!(Cursor::new(&[0xff; 8]).counted::<8>(), None);
    }
}
