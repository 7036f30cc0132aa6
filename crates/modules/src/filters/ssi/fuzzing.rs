//! Invariants for any document and its dates, checked by the fuzz target `ssi`.

use super::date::{self, Clock};
use super::parser::{Command, Parsed, Parser};

/// The result of a document.
#[derive(Debug, Default, PartialEq, Eq)]
struct DocumentOutcome {
    /// Text before each command, what it was, and what was wrong.
    commands: Vec<(Vec<u8>, Option<Command>)>,
    messages: Vec<Vec<u8>>,
    rest: Vec<u8>,
}

/// The first byte is the size of the pieces in which the others, a document, come; the second the longest
/// value.
///
/// # Panics
/// If the pieces make a difference, or more comes out than was there.
pub fn check(input: &[u8]) {
    let Some((&[piece, value_bytes_max], document)) = input.split_first_chunk::<2>() else { return };
    let value_bytes_max = usize::from(value_bytes_max);
    let whole = parse(&[document], value_bytes_max);
    let pieces: Vec<&[u8]> = document.chunks(usize::from(piece).max(1)).collect();
    assert_eq!(parse(&pieces, value_bytes_max), whole);
    let text = whole.commands.iter().map(|(text, _)| text.len()).sum::<usize>() + whole.rest.len();
    assert!(text <= document.len());
    for (_, command) in &whole.commands {
        let values = command.iter().flat_map(|command| &command.params).map(|(_, value)| value);
        values.clone().for_each(|value| assert!(value.len() <= value_bytes_max));
        for (value, minutes) in values.zip([0, -90, 840]) {
            check_date(value, minutes);
        }
    }
}

fn check_date(pattern: &[u8], minutes: i32) {
    for unix_s in [0, 1_700_000_000, -1] {
        for clock in [Clock::Gmt, Clock::Local(minutes)] {
            let date = date::format(pattern, unix_s, clock);
            assert!(date.is_none_or(|date| !date.is_empty()));
        }
    }
}

fn parse(pieces: &[&[u8]], value_bytes_max: usize) -> DocumentOutcome {
    let (mut parser, mut outcome) = (Parser::new(value_bytes_max), DocumentOutcome::default());
    for piece in pieces {
        let mut input = *piece;
        loop {
            let messages = &mut outcome.messages;
            let mut complain = |parts: &[&[u8]]| messages.push(parts.concat());
            let parsed = parser.parse(&mut input, &mut outcome.rest, &mut complain);
            let command = match parsed {
                None => break,
                Some(Parsed::Failed) => None,
                Some(Parsed::Command(command)) => Some(command),
            };
            outcome.commands.push((std::mem::take(&mut outcome.rest), command));
        }
        assert!(input.is_empty());
    }
    outcome
}
