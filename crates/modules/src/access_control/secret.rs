//! Operations on secrets that several modules share. Pure functions.

/// Whether two texts are the same; takes the same time wherever two of a length differ.
pub(crate) fn is_equal(one: &[u8], two: &[u8]) -> bool {
    let differing = one.iter().zip(two).fold(0, |bits, (a, b)| std::hint::black_box(bits | a ^ b));
    one.len() == two.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_is_equal() {
        for (one, two, equal) in [("", "", true), ("a", "a", true), ("a", "b", false), ("a", "ab", false)] {
            assert_eq!(is_equal(one.as_bytes(), two.as_bytes()), equal);
        }
    }
}
