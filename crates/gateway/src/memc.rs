//! The commands of memcached's text protocol beside `get`: what is sent, and what comes back, which clients
//! are shown as it is.

use crate::memcached::Fault;

/// A command of memcached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "names are those of the protocol")]
pub enum Command {
    Get,
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Delete,
    Incr,
    Decr,
    FlushAll,
    Stats,
    Version,
}

/// The arguments of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum With {
    /// A key and a value.
    Value,
    /// A key.
    Key,
    /// A key, and by how much a number is changed, which is the value.
    Amount,
    /// Nothing.
    Nothing,
}

impl Command {
    const ALL: [(&'static str, Self); 12] = [
        ("get", Self::Get),
        ("set", Self::Set),
        ("add", Self::Add),
        ("replace", Self::Replace),
        ("append", Self::Append),
        ("prepend", Self::Prepend),
        ("delete", Self::Delete),
        ("incr", Self::Incr),
        ("decr", Self::Decr),
        ("flush_all", Self::FlushAll),
        ("stats", Self::Stats),
        ("version", Self::Version),
    ];

    /// The command with this name.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| known.as_bytes() == name).map(|(_, command)| command)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    /// Its arguments.
    #[must_use]
    pub fn with(self) -> With {
        match self {
            Self::Set | Self::Add | Self::Replace | Self::Append | Self::Prepend => With::Value,
            Self::Get | Self::Delete => With::Key,
            Self::Incr | Self::Decr => With::Amount,
            Self::FlushAll | Self::Stats | Self::Version => With::Nothing,
        }
    }
}

/// The parameters behind the key of a value that is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storing {
    /// Flags that the client keeps with the value.
    pub flags: u32,
    /// How long it is kept, seconds; 0: as long as there is room.
    pub expires_s: u64,
    /// How long the value is, bytes.
    pub length: u64,
}

/// Writes the line of a command; the value and a line end follow where it has one.
pub fn push_line(command: Command, key: &[u8], more: &Storing, amount: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(command.name().as_bytes());
    if command.with() != With::Nothing {
        out.push(b' ');
        out.extend_from_slice(key);
    }
    match command.with() {
        With::Value => {
            let Storing { flags, expires_s, length } = more;
            out.extend_from_slice(format!(" {flags} {expires_s} {length}").as_bytes());
        }
        With::Amount => out.extend_from_slice(format!(" {amount}").as_bytes()),
        With::Nothing if command == Command::FlushAll && more.expires_s > 0 => {
            out.extend_from_slice(format!(" {}", more.expires_s).as_bytes());
        }
        With::Key | With::Nothing => {}
    }
    out.extend_from_slice(b"\r\n");
}

/// A reply of memcached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status for the client.
    pub status: u16,
    /// How long it is, bytes.
    pub len: usize,
}

/// Reads what comes back; `None`: more bytes are needed.
///
/// # Errors
/// An answer that says what is wrong, or is none.
pub fn read_reply(input: &[u8], command: Command) -> Result<Option<Reply>, Fault> {
    const STATS_END: &[u8] = b"END\r\n";
    let Some(end) = input.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let (line, len) = (&input[..end], end + 2);
    let reply = |status| Ok(Some(Reply { status, len }));
    let is_number = !line.is_empty() && line.trim_ascii_end().iter().all(u8::is_ascii_digit);
    match line {
        b"STORED" => reply(201),
        b"NOT_FOUND" => reply(404),
        b"NOT_STORED" | b"EXISTS" | b"DELETED" | b"OK" => reply(200),
        _ if line.starts_with(b"VERSION ") => reply(200),
        _ if command.with() == With::Amount && is_number => reply(200),
        _ if command == Command::Stats && (line.starts_with(b"STAT ") || line == b"END") => {
            let is_whole = input == STATS_END || input.ends_with(b"\r\nEND\r\n");
            Ok(is_whole.then_some(Reply { status: 200, len: input.len() }))
        }
        _ => Err(Fault::Response { line: line.to_vec() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_written() {
        let line = |name: &str, amount| {
            let mut out = Vec::new();
            let more = Storing { flags: 3, expires_s: 60, length: 5 };
            push_line(Command::named(name.as_bytes()).unwrap(), b"k", &more, amount, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(line("set", 0), "set k 3 60 5\r\n");
        assert_eq!(line("prepend", 0), "prepend k 3 60 5\r\n");
        assert_eq!(line("delete", 0), "delete k\r\n");
        assert_eq!(line("incr", 7), "incr k 7\r\n");
        assert_eq!(line("flush_all", 0), "flush_all 60\r\n");
        assert_eq!(line("stats", 0), "stats\r\n");
        assert_eq!(Command::named(b"cas"), None);
    }

    #[test]
    fn replies_are_read() {
        let read = |input: &str, name: &str| {
            read_reply(input.as_bytes(), Command::named(name.as_bytes()).unwrap()).map_err(|e| e.to_string())
        };
        let reply = |status, len| Ok(Some(Reply { status, len }));
        assert_eq!(read("STORED\r", "set"), Ok(None));
        assert_eq!(read("STORED\r\n", "set"), reply(201, 8));
        assert_eq!(read("NOT_STORED\r\n", "add"), reply(200, 12));
        assert_eq!(read("NOT_FOUND\r\n", "delete"), reply(404, 11));
        assert_eq!(read("12\r\n", "incr"), reply(200, 4));
        assert_eq!(read("OK\r\n", "flush_all"), reply(200, 4));
        assert_eq!(read("STAT a 1\r\nEN", "stats"), Ok(None));
        assert_eq!(read("STAT a 1\r\nEND\r\n", "stats"), reply(200, 15));
        let refused = read("CLIENT_ERROR bad\r\n", "set").unwrap_err();
        assert_eq!(refused, "memcached sent invalid response: \"CLIENT_ERROR bad\"");
    }
}
