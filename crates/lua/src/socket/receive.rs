//! Finds the part that a function of a socket wants in the bytes that have come. Knows no socket.

use clearway_luajit::Stack;

/// Received bytes that were not taken.
#[derive(Debug, Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    start: usize,
}

impl Input {
    /// The bytes that were not taken.
    pub(crate) fn rest(&self) -> &[u8] {
        debug_assert!(self.start <= self.bytes.len(), "no more is taken than has come");
        &self.bytes[self.start..]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    pub(crate) fn take(&mut self, count: usize) -> Vec<u8> {
        let taken = self.rest()[..count].to_vec();
        self.skip(count);
        taken
    }

    pub(crate) fn take_all(&mut self) -> Vec<u8> {
        self.take(self.rest().len())
    }

    fn skip(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.bytes.len(), "no more is taken than has come");
        if self.is_empty() {
            self.bytes.clear();
            self.start = 0;
        }
    }

    /// Where more comes: there is room for `count` bytes.
    pub(crate) fn room(&mut self, count: usize) -> &mut Vec<u8> {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.reserve_exact(count);
        &mut self.bytes
    }
}

/// The data that are wanted.
#[derive(Debug)]
pub(crate) enum Want {
    /// So many bytes.
    Bytes(usize),
    /// Up to a line feed; so many bytes were looked at.
    Line(usize),
    /// All until the end.
    All,
    /// Any data, so many bytes at most.
    Any(usize),
    /// Up to a pattern.
    Until(Until),
}

/// The parameters of a search for a pattern.
#[derive(Debug)]
pub(crate) struct Until {
    pub(crate) pattern: Vec<u8>,
    pub(crate) ends_with_pattern: bool,
    /// How much at a time.
    pub(crate) most: Option<usize>,
    /// So many bytes were looked at.
    pub(crate) searched: usize,
}

/// The result of a search.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Data(Vec<u8>),
    /// The last piece before a pattern that was read in pieces.
    Last(Vec<u8>),
    /// More bytes have to come.
    More,
}

impl Want {
    /// Takes it, if it is there.
    pub(crate) fn find(&mut self, input: &mut Input) -> Found {
        match self {
            Self::Bytes(count) if input.rest().len() >= *count => Found::Data(input.take(*count)),
            Self::Any(most) if !input.is_empty() => {
                let count = input.rest().len().min(*most);
                Found::Data(input.take(count))
            }
            Self::Line(searched) => match memchr(b'\n', &input.rest()[*searched..]) {
                Some(at) => {
                    let mut line = input.take(*searched + at);
                    input.skip(1);
                    line.retain(|&byte| byte != b'\r');
                    Found::Data(line)
                }
                None => {
                    *searched = input.rest().len();
                    Found::More
                }
            },
            Self::Until(until) => until.find(input),
            Self::Bytes(_) | Self::Any(_) | Self::All => Found::More,
        }
    }

    /// The answer when no more data come; an error with the partial data.
    pub(crate) fn find_at_end(&self, input: &mut Input) -> Result<Vec<u8>, Vec<u8>> {
        let mut rest = input.take_all();
        match self {
            Self::All => Ok(rest),
            Self::Line(_) => {
                rest.retain(|&byte| byte != b'\r');
                Err(rest)
            }
            _ => Err(rest),
        }
    }

    /// How much is still to come at least, as far as that is known.
    pub(crate) fn missing(&self, input: &Input) -> usize {
        match self {
            Self::Bytes(count) => count.saturating_sub(input.rest().len()),
            _ => 0,
        }
    }
}

impl Until {
    fn find(&mut self, input: &mut Input) -> Found {
        let (rest, len) = (input.rest(), self.pattern.len());
        debug_assert!(len > 0, "an empty pattern would be found everywhere");
        let found = find(&rest[self.searched.min(rest.len())..], &self.pattern).map(|at| at + self.searched);
        // What may be the beginning of the pattern stays.
        let is_begun = |&count: &usize| rest.ends_with(&self.pattern[..count]);
        let safe = found.unwrap_or_else(|| {
            let begun = (1..len.min(rest.len() + 1)).rev().find(is_begun);
            rest.len() - begun.unwrap_or_default()
        });
        debug_assert!(safe <= rest.len(), "what is given lies in what has come");
        debug_assert!(found.is_none_or(|at| at + len <= rest.len()), "a pattern lies in what has come");
        match (self.most, found) {
            // As upstream: a pattern right behind the size stays for the next call.
            (Some(most), _) if safe >= most => {
                self.searched = 0;
                Found::Data(input.take(most))
            }
            (most, Some(at)) => {
                self.searched = 0;
                let mut data = input.take(at + len);
                if !self.ends_with_pattern {
                    data.truncate(at);
                }
                if most.is_some() { Found::Last(data) } else { Found::Data(data) }
            }
            (_, None) => {
                self.searched = safe;
                Found::More
            }
        }
    }
}

fn memchr(byte: u8, text: &[u8]) -> Option<usize> {
    text.iter().position(|&other| other == byte)
}

fn find(text: &[u8], pattern: &[u8]) -> Option<usize> {
    text.windows(pattern.len()).position(|part| part == pattern)
}

/// The answer of a receiving function: data, or nothing, an error and partial data.
#[derive(Debug)]
pub(crate) enum Received {
    Data(Vec<u8>),
    Failed(String, Vec<u8>),
}

impl Received {
    pub(crate) fn push(self, stack: &mut Stack<'_>) {
        match self {
            Self::Data(data) => stack.push(&data[..]),
            Self::Failed(text, partial) => {
                stack.push(());
                stack.push(&*text);
                stack.push(&partial[..]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(bytes: &[u8]) -> Input {
        let mut input = Input::default();
        input.room(bytes.len()).extend_from_slice(bytes);
        input
    }

    #[test]
    fn lines_come_without_their_ends() {
        let mut input = input(b"a\rb\r\n\nrest");
        assert_eq!(Want::Line(0).find(&mut input), Found::Data(b"ab".to_vec()));
        assert_eq!(Want::Line(0).find(&mut input), Found::Data(Vec::new()));
        let mut want = Want::Line(0);
        assert_eq!(want.find(&mut input), Found::More);
        input.room(2).extend_from_slice(b"!\n");
        assert_eq!(want.find(&mut input), Found::Data(b"rest!".to_vec()));
        assert!(input.is_empty());
    }

    fn until(pattern: &[u8], most: Option<usize>) -> Want {
        Want::Until(Until { pattern: pattern.to_vec(), ends_with_pattern: false, most, searched: 0 })
    }

    #[test]
    fn a_pattern_is_found_where_it_comes_in_pieces() {
        let mut input = input(b"hello--");
        let mut want = until(b"--end", None);
        assert_eq!(want.find(&mut input), Found::More);
        input.room(5).extend_from_slice(b"endno");
        assert_eq!(want.find(&mut input), Found::Data(b"hello".to_vec()));
        assert_eq!(input.rest(), b"no");
    }

    #[test]
    fn what_is_before_a_pattern_comes_in_sizes() {
        let mut input = input(b"hello, world--x");
        let mut next = || until(b"--", Some(5)).find(&mut input);
        assert_eq!(next(), Found::Data(b"hello".to_vec()));
        assert_eq!(next(), Found::Data(b", wor".to_vec()));
        assert_eq!(next(), Found::Last(b"ld".to_vec()));
    }

    #[test]
    fn a_pattern_right_behind_a_size_is_left_to_the_next_call() {
        let mut input = input(b"ab--abc-");
        let mut next = || until(b"--abc", Some(2)).find(&mut input);
        assert_eq!(next(), Found::Data(b"ab".to_vec()));
        assert_eq!(next(), Found::Last(Vec::new()));
        assert_eq!(input.rest(), b"-");
    }

    #[test]
    fn what_cannot_begin_the_pattern_is_not_waited_for() {
        let next = |bytes: &[u8], most| until(b"--end", Some(most)).find(&mut input(bytes));
        assert_eq!(next(b"$", 1), Found::Data(b"$".to_vec()));
        assert_eq!(next(b"ab-", 2), Found::Data(b"ab".to_vec()));
        assert_eq!(next(b"-", 1), Found::More);
        assert_eq!(next(b"a--en", 2), Found::More);
    }

    #[test]
    fn at_the_end_only_all_is_enough() {
        assert_eq!(Want::All.find_at_end(&mut input(b"ab")), Ok(b"ab".to_vec()));
        assert_eq!(Want::Bytes(3).find_at_end(&mut input(b"ab")), Err(b"ab".to_vec()));
    }
}
