//! Cipher strings in OpenSSL's language (`ssl_ciphers`): which suites up to TLS 1.2, in which order. A
//! library is given the outcome, so strings mean what they mean to nginx. Tests ask `openssl ciphers`.
//!
//! Rules are applied to the list of all suites of OpenSSL ([`table`]), of which the library has some: what is
//! left out does not change the order of the others. `SUITEB…` is not known. Runs when a configuration is
//! loaded.
#![forbid(unsafe_code)]

mod aliases;
mod table;

use std::fmt;

use aliases::Alias;
use table::{
    A_ECDSA, A_NONE, AEAD, AES128, AES128_CCM, AES128_CCM8, AES128_GCM, AES256, AES256_CCM, AES256_CCM8,
    AES256_GCM, CHACHA20, K_DHE, K_ECDHE, K_PSK, K_RSA, MD5, NULL, SUITES,
};

pub use table::Suite;

/// Suites that sessions can use, by number: key exchange and authentication by ECDHE and RSA, with AES and
/// ChaCha20.
const SERVED: [u16; 17] = [
    0x002f, 0x0035, 0x003c, 0x009c, 0x009d, 0xc009, 0xc00a, 0xc013, 0xc014, 0xc027, 0xc028, 0xc02b, 0xc02c,
    0xc02f, 0xc030, 0xcca8, 0xcca9,
];

/// The rules of `DEFAULT`.
const DEFAULT_RULES: &str = "ALL:!COMPLEMENTOFDEFAULT:!eNULL";
const LEVEL_MAX: u8 = 5;

/// Versions that strings distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Ssl3,
    Tls10,
    Tls12,
}

impl Suite {
    /// By its name in OpenSSL.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        SUITES.iter().find(|suite| suite.name == name)
    }

    /// By its number on the wire.
    #[must_use]
    pub fn numbered(number: u16) -> Option<&'static Self> {
        SUITES.binary_search_by_key(&number, |suite| suite.number).ok().map(|at| &SUITES[at])
    }

    /// Whether sessions can use it.
    #[must_use]
    pub fn is_served(&self) -> bool {
        SERVED.contains(&self.number)
    }

    /// Whether it takes parameters for Diffie-Hellman (`ssl_dhparam`).
    #[must_use]
    pub fn wants_dh_parameters(&self) -> bool {
        self.parts[0] & (K_DHE | table::K_DHE_PSK) != 0
    }

    /// Bits of its key, by which levels judge it.
    #[must_use]
    pub fn bits(&self) -> u16 {
        const WITH_128: u16 =
            AES128 | AES128_GCM | AES128_CCM | AES128_CCM8 | table::CAMELLIA128 | table::ARIA128_GCM;
        match self.parts[2] {
            NULL => 0,
            cipher if cipher & WITH_128 != 0 => 128,
            _ => 256,
        }
    }

    /// Whether the server proves its identity.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.parts[1] != A_NONE
    }

    /// Whether a key that becomes known later opens no connection of today.
    #[must_use]
    pub fn has_forward_secrecy(&self) -> bool {
        self.parts[0] & (K_DHE | K_ECDHE | table::K_DHE_PSK | table::K_ECDHE_PSK) != 0
    }

    /// Whether its integrity is that of MD5 or SHA-1, in bits; nothing for others.
    #[must_use]
    pub fn weak_integrity_bits(&self) -> Option<u16> {
        match self.parts[3] {
            MD5 => Some(128),
            table::SHA1 => Some(160),
            _ => None,
        }
    }
}

/// The line of `openssl ciphers -v` about a suite that sessions can use, by its name in OpenSSL, with single
/// spaces.
#[must_use]
pub fn description(name: &str) -> Option<String> {
    let of_13 = match name {
        "TLS_AES_128_GCM_SHA256" => Some("AESGCM(128)"),
        "TLS_AES_256_GCM_SHA384" => Some("AESGCM(256)"),
        "TLS_CHACHA20_POLY1305_SHA256" => Some("CHACHA20/POLY1305(256)"),
        _ => None,
    };
    if let Some(cipher) = of_13 {
        return Some(format!("{name} TLSv1.3 Kx=any Au=any Enc={cipher} Mac=AEAD"));
    }
    let suite = Suite::named(name).filter(|suite| suite.is_served())?;
    let since = match suite.since {
        Version::Ssl3 => "SSLv3",
        Version::Tls10 => "TLSv1",
        Version::Tls12 => "TLSv1.2",
    };
    let exchange = if suite.parts[0] == K_ECDHE { "ECDH" } else { "RSA" };
    let authentication = if suite.parts[1] == A_ECDSA { "ECDSA" } else { "RSA" };
    let cipher = match suite.parts[2] {
        AES128 => "AES(128)",
        AES256 => "AES(256)",
        AES128_GCM => "AESGCM(128)",
        AES256_GCM => "AESGCM(256)",
        _ => "CHACHA20/POLY1305(256)",
    };
    let integrity = match suite.parts[3] {
        table::SHA1 => "SHA1",
        table::SHA256 => "SHA256",
        table::SHA384 => "SHA384",
        _ => "AEAD",
    };
    Some(format!("{name} {since} Kx={exchange} Au={authentication} Enc={cipher} Mac={integrity}"))
}

/// Why a string is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CipherError {
    /// A character or a word behind `@` that means nothing.
    InvalidCommand,
    /// Nothing is left.
    NoMatch,
}

impl fmt::Display for CipherError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidCommand => "invalid command",
            Self::NoMatch => "no cipher match",
        })
    }
}

/// The suites of a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CipherList {
    suites: Vec<&'static Suite>,
    level: Option<u8>,
}

impl CipherList {
    /// Reads a string.
    ///
    /// # Errors
    /// If it has a character that means nothing, or no suite is left.
    pub fn parse(text: &str) -> Result<Self, CipherError> {
        let mut rules = Rules { list: arranged(), level: None };
        let text = match text.strip_prefix("DEFAULT") {
            Some(rest) => {
                rules.apply_all(DEFAULT_RULES)?;
                rest.strip_prefix(':').unwrap_or(rest)
            }
            None => text,
        };
        rules.apply_all(text)?;
        let active = rules.list.into_iter().filter(|entry| entry.is_active);
        let suites: Vec<_> = active.map(|entry| entry.suite).collect();
        if suites.is_empty() { Err(CipherError::NoMatch) } else { Ok(Self { suites, level: rules.level }) }
    }

    /// In the order in which they are preferred; those included that are not served.
    #[must_use]
    pub fn suites(&self) -> &[&'static Suite] {
        &self.suites
    }

    /// `@SECLEVEL=`.
    #[must_use]
    pub fn level(&self) -> Option<u8> {
        self.level
    }
}

#[derive(Clone, Copy)]
struct Entry {
    suite: &'static Suite,
    is_active: bool,
}

/// The action of a rule on the suites that it names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deed {
    /// No sign: those that are not in use go to the end, and are used.
    Add,
    /// `+`: those in use go to the end.
    Order,
    /// `-`: not used any more; they come first if they are added again.
    Delete,
    /// `!`: for good.
    Kill,
    /// Suites that are in use go to the beginning. No string can ask for this.
    Bump,
}

/// Which suites a rule names: those that all of its words name.
#[derive(Clone, Copy, Default)]
struct Filter {
    number: Option<u16>,
    /// As in [`Suite::parts`]; 0 is any.
    parts: [u16; 4],
    since: Option<Version>,
    strength: Option<aliases::Strength>,
    default: Option<aliases::OfDefault>,
    bits: Option<u16>,
}

impl Filter {
    fn parts(parts: [u16; 4]) -> Self {
        Self { parts, ..Self::default() }
    }

    fn names(&self, suite: &Suite) -> bool {
        self.number.is_none_or(|number| number == suite.number)
            && self.parts.iter().zip(suite.parts).all(|(&wanted, part)| wanted == 0 || wanted & part != 0)
            && self.since.is_none_or(|since| since == suite.since)
            && self.strength.is_none_or(|strength| strength.has(suite))
            && self.default.is_none_or(|default| default.has(suite))
            && self.bits.is_none_or(|bits| bits == suite.bits())
    }

    /// Adds another word. Nothing if no suite can be both.
    fn and(mut self, alias: &Alias) -> Option<Self> {
        for (mine, theirs) in self.parts.iter_mut().zip(alias.parts) {
            if theirs != 0 {
                *mine = if *mine == 0 { theirs } else { *mine & theirs };
                if *mine == 0 {
                    return None;
                }
            }
        }
        self.number = alias.number.or(self.number);
        self.since = both(self.since, alias.since)?;
        self.strength = both(self.strength, alias.strength)?;
        self.default = both(self.default, alias.default)?;
        Some(self)
    }
}

/// The combination of two words for the same thing; `None` if they contradict each other.
fn both<T: PartialEq>(one: Option<T>, other: Option<T>) -> Option<Option<T>> {
    match (one, other) {
        (Some(one), Some(other)) => (one == other).then_some(Some(one)),
        (one, other) => Some(one.or(other)),
    }
}

struct Rules {
    list: Vec<Entry>,
    level: Option<u8>,
}

impl Rules {
    fn apply_all(&mut self, text: &str) -> Result<(), CipherError> {
        let mut rest = text;
        while let Some(first) = rest.bytes().next() {
            if is_separator(first) {
                rest = &rest[1..];
                continue;
            }
            rest = match first {
                b'-' => self.apply_rule(Deed::Delete, &rest[1..])?,
                b'+' => self.apply_rule(Deed::Order, &rest[1..])?,
                b'!' => self.apply_rule(Deed::Kill, &rest[1..])?,
                b'@' => self.apply_command(&rest[1..])?,
                _ => self.apply_rule(Deed::Add, rest)?,
            };
        }
        Ok(())
    }

    /// Applies the rule that begins there: words joined by `+`. What follows it.
    fn apply_rule<'a>(&mut self, deed: Deed, mut rest: &'a str) -> Result<&'a str, CipherError> {
        let mut filter = Filter::default();
        loop {
            let (word, behind) = split_word(rest);
            if word.is_empty() {
                return Err(CipherError::InvalidCommand);
            }
            match aliases::find(word).and_then(|alias| filter.and(&alias)) {
                Some(both) => filter = both,
                // A word that is not known is no error: it names no suite, as do all words joined to it.
                None => return Ok(next_rule(behind)),
            }
            match behind.strip_prefix('+') {
                Some(next) => rest = next,
                None => {
                    apply(&mut self.list, deed, &filter);
                    return Ok(behind);
                }
            }
        }
    }

    /// `@STRENGTH`, `@SECLEVEL=n`. What follows it.
    fn apply_command<'a>(&mut self, rest: &'a str) -> Result<&'a str, CipherError> {
        let (word, behind) = split_word(rest);
        match word.strip_prefix("SECLEVEL=").map(str::as_bytes) {
            Some(&[digit @ b'0'..=b'9']) if digit - b'0' <= LEVEL_MAX => self.level = Some(digit - b'0'),
            None if word == "STRENGTH" => sort_by_strength(&mut self.list),
            _ => return Err(CipherError::InvalidCommand),
        }
        Ok(next_rule(behind))
    }
}

/// The text from the next separator on.
fn next_rule(text: &str) -> &str {
    let end = text.bytes().position(is_separator).unwrap_or(text.len());
    &text[end..]
}

fn is_separator(byte: u8) -> bool {
    matches!(byte, b':' | b' ' | b';' | b',')
}

/// The word that begins there, and what is behind it.
fn split_word(text: &str) -> (&str, &str) {
    let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-.=".contains(&byte);
    let end = text.bytes().position(|byte| !is_of_word(byte)).unwrap_or(text.len());
    text.split_at(end)
}

/// Applies a rule; suites that it moves keep their order among each other.
fn apply(list: &mut Vec<Entry>, deed: Deed, filter: &Filter) {
    let is_meant = |entry: &Entry| {
        let is_in_state = match deed {
            Deed::Add => !entry.is_active,
            Deed::Order | Deed::Delete | Deed::Bump => entry.is_active,
            Deed::Kill => true,
        };
        is_in_state && filter.names(entry.suite)
    };
    let (mut meant, mut others): (Vec<Entry>, Vec<Entry>) = list.drain(..).partition(is_meant);
    for entry in &mut meant {
        entry.is_active = deed != Deed::Delete;
    }
    match deed {
        Deed::Add | Deed::Order => others.append(&mut meant),
        Deed::Delete | Deed::Bump => {
            meant.append(&mut others);
            others = meant;
        }
        Deed::Kill => {}
    }
    *list = others;
}

/// Suites in use go to the end, those with the most bits first.
fn sort_by_strength(list: &mut Vec<Entry>) {
    for bits in [256, 128, 0] {
        apply(list, Deed::Order, &Filter { bits: Some(bits), ..Filter::default() });
    }
}

/// The list that strings begin with: none in use, in the order that suites have if nothing else is said.
fn arranged() -> Vec<Entry> {
    const AES: u16 = AES128 | AES256 | AES128_CCM | AES256_CCM | AES128_CCM8 | AES256_CCM8;
    const EPHEMERAL: u16 = K_DHE | K_ECDHE;
    // The highest number comes first where nothing else decides.
    let mut list = SUITES.iter().rev().map(|suite| Entry { suite, is_active: false }).collect();
    let steps = [
        (Deed::Add, [K_ECDHE, A_ECDSA, 0, 0]),
        (Deed::Add, [K_ECDHE, 0, 0, 0]),
        (Deed::Delete, [K_ECDHE, 0, 0, 0]),
        (Deed::Add, [0, 0, AES128_GCM | AES256_GCM, 0]),
        (Deed::Add, [0, 0, CHACHA20, 0]),
        (Deed::Add, [0, 0, AES, 0]),
        (Deed::Add, [0; 4]),
        (Deed::Order, [0, 0, 0, MD5]),
        (Deed::Order, [0, A_NONE, 0, 0]),
        (Deed::Order, [K_RSA, 0, 0, 0]),
        (Deed::Order, [K_PSK, 0, 0, 0]),
    ];
    for (deed, parts) in steps {
        apply(&mut list, deed, &Filter::parts(parts));
    }
    sort_by_strength(&mut list);
    let of_tls12 = Filter { since: Some(Version::Tls12), ..Filter::default() };
    apply(&mut list, Deed::Bump, &of_tls12);
    for parts in [[0, 0, 0, AEAD], [EPHEMERAL, 0, 0, 0], [EPHEMERAL, 0, 0, AEAD]] {
        apply(&mut list, Deed::Bump, &Filter::parts(parts));
    }
    apply(&mut list, Deed::Delete, &Filter::default());
    list
}

#[cfg(test)]
mod tests;
