//! Looks for many texts at once in bytes that come in pieces, in any case of ASCII letters. Where several
//! begin at the same place, the one that stands first in the configuration counts, as in nginx. Pure
//! functions, on loops.
//!
//! The search looks at the last byte of a window as long as the shortest text: how far the next window can
//! be is in a table (Horspool).

/// Texts to look for, in lower case, and the tables for that.
#[derive(Clone, Debug)]
pub(super) struct Searcher {
    texts: Vec<Box<[u8]>>,
    /// Length of the shortest, bytes.
    window: usize,
    /// How far the window can be moved when its last byte is this one; 0: there may be a text.
    shifts: Box<[usize; 256]>,
    /// The texts that have this byte at the end of the window, by index.
    ending: Box<[Vec<u8>; 256]>,
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A text.
    Text {
        /// The offset at which the text begins.
        start: usize,
        /// The number of the text.
        index: usize,
    },
    /// From this offset to the end there may be the beginning of a text.
    Beginning(usize),
    Nothing,
}

/// Whether bytes are a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    /// As far as they go.
    Begun,
    Different,
}

impl Searcher {
    /// A searcher for these texts, none of which is empty, 255 at most.
    pub(super) fn new(texts: Vec<Box<[u8]>>) -> Self {
        debug_assert!(texts.len() <= super::PATTERNS_MAX && texts.iter().all(|text| !text.is_empty()));
        let window = texts.iter().map(|text| text.len()).min().unwrap_or(1);
        let mut shifts = Box::new([window; 256]);
        let mut ending = Box::new([const { Vec::new() }; 256]);
        for (index, text) in (0_u8..).zip(&texts) {
            for (at, &byte) in text[..window].iter().enumerate() {
                for byte in [byte.to_ascii_lowercase(), byte.to_ascii_uppercase()] {
                    let shift = &mut shifts[usize::from(byte)];
                    *shift = (*shift).min(window - 1 - at);
                }
            }
            ending[usize::from(text[window - 1].to_ascii_lowercase())].push(index);
        }
        Self { texts, window, shifts, ending }
    }

    /// Number of texts.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Length of a text, bytes.
    pub(super) fn text_len(&self, index: usize) -> usize {
        self.texts[index].len()
    }

    /// The first of the texts that are `wanted`.
    pub(super) fn find(&self, bytes: &[u8], wanted: impl Fn(usize) -> bool) -> Found {
        let mut last = self.window - 1;
        while let Some(&byte) = bytes.get(last) {
            let shift = self.shifts[usize::from(byte)];
            if shift > 0 {
                last += shift;
                continue;
            }
            let start = last + 1 - self.window;
            for &index in &self.ending[usize::from(byte.to_ascii_lowercase())] {
                let index = usize::from(index);
                match self.compare(&bytes[start..], index) {
                    Comparison::Equal if wanted(index) => return Found::Text { start, index },
                    Comparison::Begun if wanted(index) => return Found::Beginning(start),
                    _ => {}
                }
            }
            last += 1;
        }
        let begins = |start: &usize| {
            let is_begun = |index| self.compare(&bytes[*start..], index) == Comparison::Begun;
            (0..self.len()).any(|index| wanted(index) && is_begun(index))
        };
        let beginning = (last + 1 - self.window..bytes.len()).find(begins);
        beginning.map_or(Found::Nothing, Found::Beginning)
    }

    fn compare(&self, bytes: &[u8], index: usize) -> Comparison {
        let text = &self.texts[index];
        let len = text.len().min(bytes.len());
        if !text[..len].eq_ignore_ascii_case(&bytes[..len]) {
            Comparison::Different
        } else if len < text.len() {
            Comparison::Begun
        } else {
            Comparison::Equal
        }
    }
}

/// The same search without tables.
#[cfg(any(test, fuzzing))]
pub(super) fn naive(texts: &[Box<[u8]>], bytes: &[u8]) -> Found {
    for start in 0..bytes.len() {
        for (index, text) in texts.iter().enumerate() {
            let there = &bytes[start..][..text.len().min(bytes.len() - start)];
            if there.eq_ignore_ascii_case(text) {
                return Found::Text { start, index };
            }
            if text[..there.len()].eq_ignore_ascii_case(there) {
                return Found::Beginning(start);
            }
        }
    }
    Found::Nothing
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn searcher(texts: &[&str]) -> Searcher {
        Searcher::new(texts.iter().map(|text| text.as_bytes().into()).collect())
    }

    fn find(texts: &[&str], bytes: &str) -> Found {
        searcher(texts).find(bytes.as_bytes(), |_| true)
    }

    #[test]
    fn the_first_place_and_there_the_first_text() {
        let text = |start, index| Found::Text { start, index };
        assert_eq!(find(&["abc", "ab"], "xxABCxx"), text(2, 0));
        assert_eq!(find(&["ab", "abc"], "xxABCxx"), text(2, 0));
        assert_eq!(find(&["bc", "xab"], "xxABCxx"), text(1, 1));
        assert_eq!(find(&["abcd", "b"], "xxABCxx"), text(3, 1));
        assert_eq!(find(&["abcd", "b"], "xxABC"), Found::Beginning(2));
    }

    #[test]
    fn beginnings_at_the_end() {
        assert_eq!(find(&["abc"], "xxA"), Found::Beginning(2));
        assert_eq!(find(&["aab"], "xaa"), Found::Beginning(1));
        assert_eq!(find(&["aab"], "xxx"), Found::Nothing);
        assert_eq!(find(&["aab"], ""), Found::Nothing);
    }

    proptest! {
        #[test]
        fn finds_what_a_naive_search_finds(
            texts in prop::collection::vec("[abx]{1,5}", 1..6),
            bytes in "[abxAB]{0,30}",
        ) {
            let texts: Vec<Box<[u8]>> = texts.into_iter().map(|text| text.into_bytes().into()).collect();
            let found = Searcher::new(texts.clone()).find(bytes.as_bytes(), |_| true);
            prop_assert_eq!(found, naive(&texts, bytes.as_bytes()));
        }
    }
}
