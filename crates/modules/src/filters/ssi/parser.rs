//! Takes a document apart into text and SSI commands. It is given the document in pieces of any size, and
//! makes of them what it would make of the whole. Sees no request; mistakes are returned to the caller.

/// Longest name of a command, bytes.
const COMMAND_BYTES_MAX: usize = 32;
/// Longest name of a parameter, bytes.
const PARAM_BYTES_MAX: usize = 32;
/// Parameters kept of one command; the code that executes it says how many are too many.
const PARAMS_MAX: usize = 64;

/// The beginning of a command.
const OPENING: &[u8] = b"<!--#";

/// A command as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) name: Vec<u8>,
    /// Names and values; in values backslashes still stand.
    pub(super) params: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The end of some text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Command(Command),
    /// A command that is written wrongly; why was told.
    Failed,
}

/// Where in a document it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParserState {
    /// In text, whose last bytes may be the first ones of a command: so many of them.
    Text(usize),
    BeforeCommand,
    InCommand,
    BeforeParam,
    InParam,
    BeforeEqual,
    BeforeValue,
    InValue(u8),
    Escaped(u8),
    BehindValue,
    /// Behind `-`.
    Ending0,
    /// Behind `--`.
    Ending1,
    InError,
    ErrorEnding0,
    ErrorEnding1,
}

/// A parser in the middle of a document.
#[derive(Debug)]
pub(super) struct Parser {
    state: ParserState,
    command: Command,
    /// Longest value, bytes (`ssi_value_length`).
    value_bytes_max: usize,
}

/// Is told what is wrong with a command.
pub(super) type Complain<'a> = &'a mut dyn FnMut(&[&[u8]]);

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\r' | b'\n' | b'\t')
}

impl Parser {
    pub(super) fn new(value_bytes_max: usize) -> Self {
        Self { state: ParserState::Text(0), command: Command::default(), value_bytes_max }
    }

    /// Takes what is there up to the end of the next command, and adds what is text to `text`; `None` when
    /// there is no more.
    pub(super) fn parse(
        &mut self,
        input: &mut &[u8],
        text: &mut Vec<u8>,
        complain: Complain<'_>,
    ) -> Option<Parsed> {
        loop {
            if let ParserState::Text(seen) = self.state {
                self.state = take_text(input, text, seen);
            }
            // If no input is left, the state stays as it is for the next call.
            let (&byte, rest) = input.split_first()?;
            *input = rest;
            match self.step(byte, complain) {
                ParserState::Text(_) if self.is_error() => {
                    self.state = ParserState::Text(0);
                    return Some(Parsed::Failed);
                }
                ParserState::Text(_) => {
                    self.state = ParserState::Text(0);
                    return Some(Parsed::Command(std::mem::take(&mut self.command)));
                }
                state => self.state = state,
            }
        }
    }

    fn is_error(&self) -> bool {
        self.state == ParserState::ErrorEnding1
    }

    /// Takes a byte of a command; the result is `Text` at its end.
    fn step(&mut self, byte: u8, complain: Complain<'_>) -> ParserState {
        match self.state {
            ParserState::Text(_) => unreachable!("text is taken at once"),
            ParserState::BeforeCommand if is_space(byte) => ParserState::BeforeCommand,
            ParserState::BeforeCommand => {
                self.command = Command { name: vec![byte], params: Vec::new() };
                ParserState::InCommand
            }
            ParserState::InCommand => self.step_command(byte, complain),
            ParserState::BeforeParam | ParserState::InParam | ParserState::BeforeEqual => {
                self.step_param(byte, complain)
            }
            ParserState::BeforeValue
            | ParserState::InValue(_)
            | ParserState::Escaped(_)
            | ParserState::BehindValue => self.step_value(byte, complain),
            ParserState::Ending0 if byte == b'-' => ParserState::Ending1,
            ParserState::Ending1 if byte == b'>' => ParserState::Text(0),
            ParserState::Ending0 | ParserState::Ending1 => {
                complain(&[b"unexpected \"", &[byte], b"\" symbol in \"", &self.command.name, IN_COMMAND]);
                ParserState::InError
            }
            ParserState::InError if byte == b'-' => ParserState::ErrorEnding0,
            ParserState::ErrorEnding0 if byte == b'-' => ParserState::ErrorEnding1,
            ParserState::ErrorEnding1 if byte == b'>' => ParserState::Text(0),
            ParserState::InError | ParserState::ErrorEnding0 | ParserState::ErrorEnding1 => {
                ParserState::InError
            }
        }
    }

    fn step_command(&mut self, byte: u8, complain: Complain<'_>) -> ParserState {
        let name = &mut self.command.name;
        match byte {
            byte if is_space(byte) => ParserState::BeforeParam,
            b'-' => ParserState::Ending0,
            _ if name.len() == COMMAND_BYTES_MAX => {
                complain(&[b"the \"", name, &[byte], b"...\" SSI command is too long"]);
                ParserState::InError
            }
            _ => {
                name.push(byte);
                ParserState::InCommand
            }
        }
    }

    fn step_param(&mut self, byte: u8, complain: Complain<'_>) -> ParserState {
        let Command { name, params } = &mut self.command;
        let is_before_equal = self.state == ParserState::BeforeEqual;
        if self.state == ParserState::BeforeParam {
            return match byte {
                byte if is_space(byte) => ParserState::BeforeParam,
                b'-' => ParserState::Ending0,
                _ if params.len() == PARAMS_MAX => {
                    complain(&[b"too many SSI command parameters: \"", name, b"\""]);
                    ParserState::InError
                }
                _ => {
                    params.push((vec![byte], Vec::new()));
                    ParserState::InParam
                }
            };
        }
        let (key, _) = params.last_mut().expect("one has begun");
        match byte {
            byte if is_space(byte) => ParserState::BeforeEqual,
            b'=' => ParserState::BeforeValue,
            b'-' => {
                let before: &[u8] = b"unexpected \"-\" symbol after \"";
                complain(&[before, key, b"\" parameter in \"", name, IN_COMMAND]);
                ParserState::ErrorEnding0
            }
            _ if is_before_equal => {
                let unexpected: [&[u8]; 3] = [b"unexpected \"", &[byte], b"\" symbol after \""];
                let [before, byte, after] = unexpected;
                complain(&[before, byte, after, key, b"\" parameter in \"", name, IN_COMMAND]);
                ParserState::InError
            }
            _ if key.len() == PARAM_BYTES_MAX => {
                complain(&[b"too long \"", key, &[byte], b"...\" parameter in \"", name, IN_COMMAND]);
                ParserState::InError
            }
            _ => {
                key.push(byte);
                ParserState::InParam
            }
        }
    }

    fn step_value(&mut self, byte: u8, complain: Complain<'_>) -> ParserState {
        let Command { name, params } = &mut self.command;
        let (key, value) = params.last_mut().expect("one has begun");
        match (self.state, byte) {
            (ParserState::BeforeValue, byte) if is_space(byte) => return ParserState::BeforeValue,
            (ParserState::BehindValue, byte) if is_space(byte) => return ParserState::BeforeParam,
            (ParserState::BeforeValue, b'"' | b'\'') => return ParserState::InValue(byte),
            (ParserState::BehindValue, b'-') => return ParserState::Ending0,
            (ParserState::BeforeValue, _) => {
                let (at, after): (&[u8], &[u8]) = (b"\" symbol before value of \"", b"\" parameter in \"");
                complain(&[b"unexpected \"", &[byte], at, key, after, name, IN_COMMAND]);
                return if byte == b'-' { ParserState::ErrorEnding0 } else { ParserState::InError };
            }
            (ParserState::BehindValue, _) => {
                let (at, of): (&[u8], &[u8]) = (b"\" symbol after \"", b"\" value of \"");
                let after: &[u8] = b"\" parameter in \"";
                complain(&[b"unexpected \"", &[byte], at, value, of, key, after, name, IN_COMMAND]);
                return ParserState::InError;
            }
            (ParserState::InValue(quote), byte) if byte == quote => return ParserState::BehindValue,
            _ => {}
        }
        if value.len() == self.value_bytes_max {
            let (of, after): (&[u8], &[u8]) = (b"...\" value of \"", b"\" parameter in \"");
            complain(&[b"too long \"", value, &[byte], of, key, after, name, IN_COMMAND]);
            return ParserState::InError;
        }
        value.push(byte);
        match self.state {
            ParserState::InValue(quote) if byte == b'\\' => ParserState::Escaped(quote),
            ParserState::Escaped(quote) | ParserState::InValue(quote) => ParserState::InValue(quote),
            state => state,
        }
    }
}

/// How messages about a command end.
const IN_COMMAND: &[u8] = b"\" SSI command";

/// Takes text up to the beginning of a command, of which `seen` bytes were there before.
fn take_text(input: &mut &[u8], text: &mut Vec<u8>, mut seen: usize) -> ParserState {
    loop {
        if seen == 0 {
            let Some(at) = memchr::memchr(b'<', input) else {
                text.extend_from_slice(input);
                *input = &[];
                return ParserState::Text(0);
            };
            text.extend_from_slice(&input[..at]);
            *input = &input[at + 1..];
            seen = 1;
        }
        if seen == OPENING.len() {
            return ParserState::BeforeCommand;
        }
        let Some((&byte, rest)) = input.split_first() else { return ParserState::Text(seen) };
        if byte == OPENING[seen] {
            *input = rest;
            seen += 1;
        } else {
            // The beginning turned out to be text; a `<` may begin a command again.
            text.extend_from_slice(&OPENING[..seen]);
            seen = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text, commands and messages, one a line, of a document that comes in these pieces.
    fn parse(pieces: &[&[u8]]) -> String {
        let (mut parser, mut lines, mut text) = (Parser::new(12), String::new(), Vec::new());
        for piece in pieces {
            let mut input = *piece;
            loop {
                let mut messages = String::new();
                let mut complain = |parts: &[&[u8]]| {
                    messages.push_str(&String::from_utf8_lossy(&parts.concat()));
                    messages.push('\n');
                };
                let parsed = parser.parse(&mut input, &mut text, &mut complain);
                lines.push_str(&messages);
                let Some(parsed) = parsed else { break };
                lines.push_str(&format!("[{}]\n", String::from_utf8_lossy(&std::mem::take(&mut text))));
                match parsed {
                    Parsed::Failed => lines.push_str("failed\n"),
                    Parsed::Command(Command { name, params }) => {
                        lines.push_str(&String::from_utf8_lossy(&name));
                        for (key, value) in params {
                            let (key, value) =
                                (String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
                            lines.push_str(&format!(" {key}={value};"));
                        }
                        lines.push('\n');
                    }
                }
            }
        }
        lines + "[" + &String::from_utf8_lossy(&text) + "]"
    }

    #[test]
    fn commands_and_their_parameters() {
        for (document, expected) in [
            ("a<!--#echo var=\"x\" -->b", "[a]\necho var=x;\n[b]"),
            ("<!--# \n echo\tvar = 'x\"y' default=\"\"--> ", "[]\necho var=x\"y; default=;\n[ ]"),
            ("<!--#else-->", "[]\nelse\n[]"),
            ("<!--#set value=\"a\\\"b\\\\\" -->", "[]\nset value=a\\\"b\\\\;\n[]"),
            ("<<!-<!--<!--- <!-- #x --><", "[<<!-<!--<!--- <!-- #x -->]"),
            ("x<!--#echo", "[x]"),
            (
                "<!--#echo a -->-",
                "unexpected \"-\" symbol after \"a\" parameter in \"echo\" SSI command\n[]\nfailed\n[-]",
            ),
            (
                "<!--#echo a b=\"\" -->-",
                "unexpected \"b\" symbol after \"a\" parameter in \"echo\" SSI command\n[]\nfailed\n[-]",
            ),
            (
                "<!--#e v=x -->",
                "unexpected \"x\" symbol before value of \"v\" parameter in \"e\" SSI command\n[]\n\
                 failed\n[]",
            ),
            (
                "<!--#e v=\"x\"y -->",
                "unexpected \"y\" symbol after \"x\" value of \"v\" parameter in \"e\" SSI command\n[]\n\
                 failed\n[]",
            ),
            ("<!--#e -x -->.", "unexpected \"x\" symbol in \"e\" SSI command\n[]\nfailed\n[.]"),
            (
                "<!--#e v=\"0123456789abc\" -->",
                "too long \"0123456789abc...\" value of \"v\" parameter in \"e\" SSI command\n[]\nfailed\n[]",
            ),
        ] {
            assert_eq!(parse(&[document.as_bytes()]), expected, "{document}");
        }
    }

    #[test]
    fn a_document_is_the_same_in_whatever_pieces_it_comes() {
        let document =
            b"a<!--#if expr=\"$x = 'y\\\"'\" -->b<!-- <!--#include virtual='/x' wait = \"yes\"-->\n\
            <!--#bad x --> --- --> <!--#0123456789abcdef0123456789abcdef0 --><<!--#set a='1' b=\"2\" -->\
            <!--#x y=\"0123456789abcdef\" --> end <!--#endif --><!--#e- --><!--#e --";
        let whole = parse(&[document]);
        assert!(
            whole.contains("if expr=") && whole.contains("too long") && whole.contains("failed"),
            "{whole}"
        );
        for first in 0..=document.len() {
            let (head, tail) = document.split_at(first);
            assert_eq!(parse(&[head, tail]), whole, "split at {first}");
            for second in 0..tail.len().min(8) {
                let (middle, end) = tail.split_at(second);
                assert_eq!(parse(&[head, middle, end]), whole, "split at {first} and {second} bytes later");
            }
        }
        let bytes: Vec<&[u8]> = document.chunks(1).collect();
        assert_eq!(parse(&bytes), whole, "byte by byte");
    }
}
