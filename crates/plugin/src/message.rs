//! A question to a plugin, and its answer: one flat message each, a list of fields with names.
//!
//! Eight bytes of head (version, kind, two zeros, how many fields there are), then for each field the length
//! of its name and of its value, and both. All numbers have four bytes, lowest first. What is no header of
//! HTTP has a name that begins with a colon, and comes first; `:body` comes last.

/// The version of this format.
pub(crate) const VERSION: u8 = 1;

/// Length of the beginning of a message, bytes.
const HEAD_BYTES: usize = 8;

/// Length of the part in front of a field's name, bytes.
const LENGTHS_BYTES: usize = 8;

/// The most fields that an answer may have.
pub(crate) const FIELDS_MAX: usize = 1000;

/// The kind of a question to a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Whether a request may go on.
    Access = 1,
    /// The response.
    Pass = 2,
    /// Nothing: it is told of a request that is over.
    Log = 3,
    /// An answer of the plugin.
    Answer = 4,
}

/// A message that is being written.
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    /// A message without fields.
    pub(crate) fn new(kind: Kind) -> Self {
        Self(vec![VERSION, kind as u8, 0, 0, 0, 0, 0, 0])
    }

    /// Adds a field. What is longer than lengths can say is cut.
    pub(crate) fn put(&mut self, name: &[u8], value: &[u8]) {
        let (name, value) = (cut(name), cut(value));
        for text in [name, value] {
            self.0.extend(length(text).to_le_bytes());
        }
        self.0.extend_from_slice(name);
        self.0.extend_from_slice(value);
        let count = number(&self.0[4..HEAD_BYTES]).wrapping_add(1);
        self.0[4..HEAD_BYTES].copy_from_slice(&count.to_le_bytes());
    }

    /// The whole of it.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

fn cut(text: &[u8]) -> &[u8] {
    &text[..text.len().min(u32::MAX as usize)]
}

fn length(text: &[u8]) -> u32 {
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}

fn number(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}

/// Name and value.
pub(crate) type Field<'a> = (&'a [u8], &'a [u8]);

/// The fields of an answer. `None`: it is none.
pub(crate) fn parse_answer(bytes: &[u8]) -> Option<Vec<Field<'_>>> {
    let (head, mut rest) = bytes.split_at_checked(HEAD_BYTES)?;
    let count = number(&head[4..]) as usize;
    if head[..4] != [VERSION, Kind::Answer as u8, 0, 0] || count > FIELDS_MAX {
        return None;
    }
    let mut fields = Vec::with_capacity(count);
    for _ in 0..count {
        let (lengths, behind) = rest.split_at_checked(LENGTHS_BYTES)?;
        let (name, behind) = behind.split_at_checked(number(&lengths[..4]) as usize)?;
        let (value, behind) = behind.split_at_checked(number(&lengths[4..]) as usize)?;
        fields.push((name, value));
        rest = behind;
    }
    rest.is_empty().then_some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::new(Kind::Answer);
        let fields: [Field<'_>; 3] = [(b":status", b"200"), (b"X-Empty", b""), (b":body", b"a\0b")];
        fields.iter().for_each(|(name, value)| writer.put(name, value));
        let bytes = writer.into_bytes();
        assert_eq!(parse_answer(&bytes).unwrap(), fields);
        for end in 0..bytes.len() {
            assert_eq!(parse_answer(&bytes[..end]), None, "cut at {end}");
        }
        assert_eq!(parse_answer(&[&bytes[..], b"x"].concat()), None, "something is behind it");
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        assert_eq!(parse_answer(&Writer::new(Kind::Pass).into_bytes()), None);
        assert_eq!(parse_answer(&[2, 4, 0, 0, 0, 0, 0, 0]), None, "another version");
        assert_eq!(parse_answer(&[1, 4, 0, 0, 255, 255, 255, 255]), None, "more fields than may be");
        let huge = [&[1, 4, 0, 0, 1, 0, 0, 0][..], &[255; 8]].concat();
        assert_eq!(parse_answer(&huge), None, "longer than there is");
        assert_eq!(parse_answer(&[1, 4, 0, 0, 0, 0, 0, 0]), Some(Vec::new()));
    }
}
