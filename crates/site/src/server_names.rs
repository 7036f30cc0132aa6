//! Which of the servers that listen on one address answers for a host: exact names, `*.example.com`,
//! `.example.com`, `www.example.*` and `~regex`, with nginx's precedence and messages.
//!
//! Built once at load and immutable after, so that all loops search it at once; a search allocates
//! nothing. Invariant: names are stored in lower case and hosts come in lower case, without port and
//! trailing dot. Generic over what a name stands for, such as the index of a server.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use clearway_base::log::Verbatim;

use crate::regex::{Case, CompileError, Regex};

/// One argument of `server_name`.
#[derive(Debug)]
pub enum ServerName {
    /// Exact or wildcard, in lower case.
    Text(Box<[u8]>),
    /// After `~`.
    Regex(Box<Regex>),
}

/// A `server_name` argument that nginx loads, but not without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameWarning {
    /// The name contains a `/`.
    SuspiciousSymbols,
}

impl NameWarning {
    /// nginx's text, for the level warn.
    #[must_use]
    pub fn message(self, name: &[u8]) -> String {
        match self {
            Self::SuspiciousSymbols => {
                format!("server name \"{}\" has suspicious symbols", Verbatim(name))
            }
        }
    }
}

/// A `server_name` argument that is refused. Displays nginx's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameError {
    /// Neither a name nor a wildcard.
    Invalid(Box<[u8]>),
    /// `~` alone.
    EmptyRegex(Box<[u8]>),
    /// No expression.
    Regex(CompileError),
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(name) => write!(f, "server name \"{}\" is invalid", Verbatim(name)),
            Self::EmptyRegex(name) => {
                write!(f, "empty regex in server name \"{}\"", Verbatim(name))
            }
            Self::Regex(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NameError {}

impl ServerName {
    /// Reads one argument of `server_name`; `hostname` stands for `$hostname`. A warning goes to the log
    /// and changes nothing.
    ///
    /// # Errors
    /// When the configuration is to be refused.
    pub fn parse(argument: &[u8], hostname: &[u8]) -> Result<(Self, Option<NameWarning>), NameError> {
        let invalid = match argument {
            [b'*', rest @ ..] => rest.len() < 2 || rest[0] != b'.',
            [b'.'] => true,
            _ => false,
        };
        if invalid {
            return Err(NameError::Invalid(argument.into()));
        }
        let warning = argument.contains(&b'/').then_some(NameWarning::SuspiciousSymbols);
        let name = match argument {
            [b'~'] => return Err(NameError::EmptyRegex(argument.into())),
            [b'~', pattern @ ..] => {
                let capitals = pattern.iter().any(u8::is_ascii_uppercase);
                let case = if capitals { Case::Insensitive } else { Case::Sensitive };
                Self::Regex(Box::new(Regex::compile(pattern, case).map_err(NameError::Regex)?))
            }
            _ if argument.eq_ignore_ascii_case(b"$hostname") => {
                Self::Text(hostname.to_ascii_lowercase().into())
            }
            _ => Self::Text(argument.to_ascii_lowercase().into()),
        };
        Ok((name, warning))
    }

    /// The text that `$server_name` has when this is the first name of a server.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        match self {
            Self::Text(name) => name,
            Self::Regex(regex) => regex.pattern(),
        }
    }
}

/// The result of adding a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The name was added to the table.
    New,
    /// Another server has the name; [`conflict_message`] is to be logged at level warn.
    Conflicting,
}

/// A wildcard that cannot be searched for; to be told with [`invalid_message`] at level emerg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidWildcard;

/// nginx's warning about a name that two servers of an address have.
#[must_use]
pub fn conflict_message(name: &[u8], address: &dyn fmt::Display) -> String {
    format!("conflicting server name \"{}\" on {address}, ignored", Verbatim(name))
}

/// nginx's error about a name that is neither a name nor a wildcard.
#[must_use]
pub fn invalid_message(name: &[u8], address: &dyn fmt::Display) -> String {
    format!("invalid server name or wildcard \"{}\" on {address}", Verbatim(name))
}

/// FNV-1a. Only names of the configuration are keys, so nobody can choose colliding ones.
#[derive(Clone)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn write_usize(&mut self, length: usize) {
        self.0 ^= length as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type NameMap<T> = HashMap<Box<[u8]>, T, BuildHasherDefault<Fnv>>;

/// Which hosts a wildcard in front covers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bare {
    /// `.example.com` is for `example.com` too.
    Included,
    /// `*.example.com` is not.
    Excluded,
}

/// Collects the names of all servers of one address, in the order of the configuration. (nginx looks
/// at names only where several servers share an address, or where the names of the only one capture.)
pub struct Builder<T> {
    names: ServerNames<T>,
    /// Exact names that count as taken: `.example.com` takes `example.com`.
    exact_taken: HashSet<Box<[u8]>>,
}

impl<T: Copy> Default for Builder<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> Builder<T> {
    /// No names yet.
    #[must_use]
    pub fn new() -> Self {
        let names = ServerNames {
            exact: NameMap::default(),
            heads: NameMap::default(),
            tails: NameMap::default(),
            regexes: Vec::new(),
        };
        Self { names, exact_taken: HashSet::new() }
    }

    /// Adds an exact name or wildcard in lower case.
    ///
    /// # Errors
    /// When the name has two dots in a row, a NUL, or a star that is not a whole first or last label.
    pub fn add(&mut self, name: &[u8], value: T) -> Result<Added, InvalidWildcard> {
        let stars = name.iter().filter(|&&byte| byte == b'*').count();
        if stars > 1 || name.contains(&0) || name.windows(2).any(|pair| pair == b"..") {
            return Err(InvalidWildcard);
        }
        let added = match name {
            [b'.', bare @ ..] if !bare.is_empty() => {
                self.exact_taken.insert(bare.into()) && self.add_head(bare, Bare::Included, value)
            }
            [b'*', b'.', bare @ ..] if !bare.is_empty() => self.add_head(bare, Bare::Excluded, value),
            [bare @ .., b'.', b'*'] if !bare.is_empty() => insert_new(&mut self.names.tails, bare, value),
            _ if stars > 0 => return Err(InvalidWildcard),
            _ => return Ok(self.add_exact(name, value)),
        };
        Ok(if added { Added::New } else { Added::Conflicting })
    }

    /// Adds a name in lower case in which a star is a star.
    pub fn add_exact(&mut self, name: &[u8], value: T) -> Added {
        let added = self.exact_taken.insert(name.into()) && insert_new(&mut self.names.exact, name, value);
        if added { Added::New } else { Added::Conflicting }
    }

    /// Adds an expression; they are tried in this order.
    pub fn add_regex(&mut self, regex: Box<Regex>, value: T) {
        self.names.regexes.push((regex, value));
    }

    /// The table to search.
    #[must_use]
    pub fn build(self) -> ServerNames<T> {
        self.names
    }

    fn add_head(&mut self, bare: &[u8], included: Bare, value: T) -> bool {
        insert_new(&mut self.names.heads, bare, (included, value))
    }
}

fn insert_new<V>(map: &mut NameMap<V>, name: &[u8], value: V) -> bool {
    if map.contains_key(name) {
        return false;
    }
    map.insert(name.into(), value);
    true
}

/// The names of all servers of one address.
pub struct ServerNames<T> {
    exact: NameMap<T>,
    /// The names with a star in front, by the part behind the star and its dot.
    heads: NameMap<(Bare, T)>,
    /// The names with a star at the end, by the part in front of the dot and its star.
    tails: NameMap<T>,
    regexes: Vec<(Box<Regex>, T)>,
}

impl<T: Copy> ServerNames<T> {
    /// Whether no host can be found, so that the default server answers for all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.heads.is_empty() && self.tails.is_empty() && self.regexes.is_empty()
    }

    /// The server for `host`: the exact name, else the longest wildcard in front, else the longest wildcard
    /// behind, else the first expression for which `exec` returns true. `None` is the default server. A
    /// request without a host has the empty one.
    ///
    /// # Errors
    /// What `exec` returns (a match that was given up).
    pub fn find<E>(&self, host: &[u8], exec: impl FnMut(&Regex) -> Result<bool, E>) -> Result<Option<T>, E> {
        if let Some(&value) = self.exact.get(host) {
            return Ok(Some(value));
        }
        if host.is_empty() {
            return Ok(None);
        }
        match self.find_head(host).or_else(|| self.find_tail(host)) {
            Some(value) => Ok(Some(value)),
            None => self.find_regex(exec),
        }
    }

    fn find_head(&self, host: &[u8]) -> Option<T> {
        if self.heads.is_empty() {
            return None;
        }
        if let Some(&(Bare::Included, value)) = self.heads.get(host) {
            return Some(value);
        }
        let dots = memchr::memchr_iter(b'.', host);
        dots.filter_map(|dot| self.heads.get(&host[dot + 1..])).map(|&(_, value)| value).next()
    }

    fn find_tail(&self, host: &[u8]) -> Option<T> {
        if self.tails.is_empty() {
            return None;
        }
        memchr::memrchr_iter(b'.', host).find_map(|dot| self.tails.get(&host[..dot])).copied()
    }

    fn find_regex<E>(&self, mut exec: impl FnMut(&Regex) -> Result<bool, E>) -> Result<Option<T>, E> {
        for (regex, value) in &self.regexes {
            if exec(regex)? {
                return Ok(Some(*value));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regex::Captures;

    fn parse(argument: &str) -> Result<(ServerName, Option<NameWarning>), NameError> {
        ServerName::parse(argument.as_bytes(), b"Host.Name")
    }

    /// Adds the names of several servers; what was told on the way, by message.
    fn table(servers: &[&str]) -> (ServerNames<usize>, Vec<String>) {
        let mut builder = Builder::new();
        let mut told = Vec::new();
        for (index, server) in servers.iter().enumerate() {
            for argument in server.split(' ') {
                match parse(argument).unwrap().0 {
                    ServerName::Regex(regex) => builder.add_regex(regex, index),
                    ServerName::Text(name) => match builder.add(&name, index) {
                        Ok(Added::New) => {}
                        Ok(Added::Conflicting) => told.push(conflict_message(&name, &"127.0.0.1:80")),
                        Err(InvalidWildcard) => told.push(invalid_message(&name, &"127.0.0.1:80")),
                    },
                }
            }
        }
        (builder.build(), told)
    }

    fn lookup(names: &ServerNames<usize>, host: &str) -> Option<usize> {
        let mut captures = Captures::default();
        names.find(host.as_bytes(), |regex| regex.exec(host.as_bytes(), &mut captures)).unwrap()
    }

    const SERVERS: [&str; 17] = [
        "default",
        "example.com www.a.org",
        "*.example.com",
        ".example.org",
        "www.example.*",
        "mail.*",
        "*.sub.example.com",
        r"~^(?<u>u\d+)\.re\.test$",
        r"~^Mixed\.re\.TEST$",
        r"~\.re\.test$",
        "",
        "a.example.com",
        "*.deep.example.org",
        "www.example.co.*",
        "*.com",
        "one-label",
        ".w*ld.example",
    ];

    /// Which of [`SERVERS`] answers in nginx 1.31.5; server 0 is the default.
    #[rustfmt::skip]
    const ANSWERS: &[(&str, usize)] = &[
        ("example.com", 1), ("www.example.com", 2), ("a.example.com", 11), ("b.example.com", 2),
        ("b.c.example.com", 2), ("sub.example.com", 2), ("x.sub.example.com", 6),
        ("x.y.sub.example.com", 6), ("example.org", 3), ("x.example.org", 3), ("deep.example.org", 3),
        ("x.deep.example.org", 12), ("www.example.net", 4), ("www.example.co.uk", 13),
        ("www.example.co", 4), ("www.example.de.at", 4), ("www.example", 0), ("mail.foo", 5),
        ("mail.example.com", 2), ("mail", 0), ("mail.x.y.z", 5), ("foo.com", 14), ("com", 0),
        ("u12.re.test", 7), ("mixed.re.test", 8), ("mixed.re.test", 8), ("x.re.test", 9),
        ("u1x.re.test", 9), ("re.test", 0), ("one-label", 15), ("other", 0), (".example.com", 2),
        (".example.org", 3), ("w*ld.example", 16), ("x.w*ld.example", 16), ("example.com", 1),
        ("www.a.org", 1), ("example.com", 1), ("x.org", 0), ("", 10),
    ];

    #[test]
    fn hosts_find_their_server_as_in_nginx() {
        let (names, told) = table(&SERVERS);
        assert_eq!(told, Vec::<String>::new());
        for &(host, server) in ANSWERS {
            assert_eq!(lookup(&names, host).unwrap_or(0), server, "{host}");
        }
        assert!(!names.is_empty() && table(&[]).0.is_empty());
    }

    /// Which of several names nginx 1.31.5 warns about.
    #[test]
    fn conflicts_are_told_as_in_nginx() {
        let cases: [(&[&str], &[&str]); 13] = [
            (&["a.com", "a.com"], &["a.com"]),
            (&["a.com a.com", "b"], &["a.com"]),
            (&[".a.com", "a.com"], &["a.com"]),
            (&["a.com", ".a.com"], &[".a.com"]),
            (&["*.a.com", ".a.com"], &[".a.com"]),
            (&["*.a.com", ".a.com", "a.com"], &[".a.com", "a.com"]),
            (&[".a.com", "*.a.com"], &["*.a.com"]),
            (&["*.a.com", "*.a.com"], &["*.a.com"]),
            (&["www.a.*", "www.a.*"], &["www.a.*"]),
            (&["A.com", "a.COM"], &["a.com"]),
            (&["", ""], &[""]),
            (&["*.a.com", "a.com", "a.com.*", "~a", "~a"], &[]),
            (&["a.*", "a"], &[]),
        ];
        for (servers, conflicting) in cases {
            let expected: Vec<_> = conflicting
                .iter()
                .map(|name| format!("conflicting server name \"{name}\" on 127.0.0.1:80, ignored"))
                .collect();
            assert_eq!(table(servers).1, expected, "{servers:?}");
        }
        let (names, _) = table(&["x", "a.com", "a.com"]);
        assert_eq!(lookup(&names, "a.com"), Some(1), "the first one stays");
    }

    #[test]
    fn wildcards_are_whole_labels() {
        for name in [
            "a..b", "a*.com", "*.a.*", "a.*.com", "..a", "*.x.*y", "www.*.*", "*.*", "x*", ".a..b", "*..a",
            "a..*",
        ] {
            let expected = format!("invalid server name or wildcard \"{name}\" on 127.0.0.1:80");
            assert_eq!(table(&[name]).1, [expected]);
        }
        for name in ["a.b.", ".*", ".a*b.c", "a.com.*", "*.a", "a.*", ".a", "*.a."] {
            assert_eq!(table(&[name]).1, Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn arguments_are_refused_in_the_words_of_nginx() {
        for (argument, message) in [
            ("*a.com", "server name \"*a.com\" is invalid"),
            ("*", "server name \"*\" is invalid"),
            ("*.", "server name \"*.\" is invalid"),
            (".", "server name \".\" is invalid"),
            ("~", "empty regex in server name \"~\""),
            ("~(", "pcre2_compile() failed: missing closing parenthesis in \"(\""),
        ] {
            assert_eq!(parse(argument).unwrap_err().to_string(), message);
        }
        let (name, warning) = parse("a/B").unwrap();
        assert_eq!(name.text(), b"a/b");
        assert_eq!(warning.unwrap().message(b"a/B"), "server name \"a/B\" has suspicious symbols");
        assert_eq!(parse("$HostName").unwrap().0.text(), b"host.name");
        assert_eq!(parse("~a.B").unwrap().0.text(), b"a.B");
    }

    #[test]
    fn a_failed_match_ends_the_search() {
        let (names, _) = table(&["~a", "~b"]);
        assert_eq!(names.find(b"x", |_| Err::<bool, _>(-47)), Err(-47));
        assert_eq!(names.find(b"", |_| Err::<bool, _>(-47)), Ok(None), "no host, no expressions");
    }
}
