//! Lines that wait to be written, and the messages about the writing.

use std::borrow::Cow;
use std::io::Write;

use clearway_base::log::Level;
use flate2::write::GzEncoder;

/// Lines in their order, each with its end.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    /// Where each line ends.
    ends: Vec<usize>,
    /// Compressed before it is written, with this level: what a buffer held.
    gzip: Option<u32>,
}

impl Chunk {
    pub(crate) fn push(&mut self, line: &[u8]) {
        self.bytes.extend_from_slice(line);
        self.ends.push(self.bytes.len());
    }

    /// Bytes of all lines, before compression.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn count(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Whether more lines may be added.
    pub(crate) fn is_open(&self) -> bool {
        self.gzip.is_none()
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }

    /// To be compressed from here on.
    pub(crate) fn close(mut self, gzip: Option<u32>) -> Self {
        self.gzip = gzip;
        self
    }

    /// Takes the first so many bytes off.
    pub(crate) fn advance(&mut self, written: usize) {
        self.bytes.drain(..written);
        self.ends.retain(|&end| end > written);
        self.ends.iter_mut().for_each(|end| *end -= written);
    }

    /// The bytes to write.
    pub(crate) fn payload(&self) -> Cow<'_, [u8]> {
        match self.gzip {
            None => Cow::Borrowed(&self.bytes),
            Some(level) => Cow::Owned(compressed(&self.bytes, level)),
        }
    }

    /// The loss of a write that ended behind the first `written` bytes of the payload.
    pub(crate) fn cut(&self, written: usize) -> Cut {
        if self.gzip.is_some() {
            return Cut { missing: self.count(), torn: Torn::No };
        }
        let whole = self.ends.partition_point(|&end| end <= written);
        let at_end = written == 0 || (whole > 0 && self.ends[whole - 1] == written);
        let torn = if at_end { Torn::No } else { Torn::Yes };
        Cut { missing: (self.ends.len() - whole) as u64, torn }
    }
}

/// The loss of a chunk that was not written to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Lines that are not there completely.
    pub(crate) missing: u64,
    pub(crate) torn: Torn,
}

/// Whether what was written last ends in the middle of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Torn {
    #[default]
    No,
    Yes,
}

/// Something that the writer has to say about its own work.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) level: Level,
    pub(crate) text: String,
}

/// A member of a gzip file; nothing that needs memory beyond what is given can fail.
fn compressed(bytes: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), flate2::Compression::new(level));
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("writing to memory succeeds")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk() -> Chunk {
        let mut chunk = Chunk::default();
        [&b"one\n"[..], b"a\nb\n", b"three\n"].into_iter().for_each(|line| chunk.push(line));
        chunk
    }

    #[test]
    fn lines_are_told_apart_by_their_ends() {
        let chunk = chunk();
        assert_eq!((chunk.len(), chunk.count()), (14, 3));
        let lines: Vec<_> = chunk.lines().collect();
        assert_eq!(lines, [&b"one\n"[..], b"a\nb\n", b"three\n"]);
        let cut = |written, missing, torn| assert_eq!(chunk.cut(written), Cut { missing, torn });
        cut(0, 3, Torn::No);
        cut(3, 3, Torn::Yes);
        cut(4, 2, Torn::No);
        cut(6, 2, Torn::Yes);
        cut(8, 1, Torn::No);
        cut(14, 0, Torn::No);
    }

    #[test]
    fn a_closed_chunk_is_a_member_of_a_gzip_file() {
        let chunk = chunk().close(Some(1));
        assert!(!chunk.is_open());
        let payload = chunk.payload();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&payload[..]), &mut text).unwrap();
        assert_eq!(text, "one\na\nb\nthree\n");
        assert_eq!(chunk.cut(5), Cut { missing: 3, torn: Torn::No });
    }
}
