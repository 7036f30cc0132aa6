//! Expressions of one VM: those that it is to remember, the last one, and what a match needs.

use std::collections::HashMap;
use std::sync::Arc;

use clearway_pcre::{Code, CompileError, How, Jit, Matcher, Options};

/// Settings for expressions.
#[derive(Clone, Copy, Debug)]
pub struct RegexConf {
    /// How many are remembered (`lua_regex_cache_max_entries`).
    pub cache_max_entries: usize,
    /// Steps that one match may take (`lua_regex_match_limit`); 0: PCRE2's own limit.
    pub match_limit: u32,
}

impl Default for RegexConf {
    fn default() -> Self {
        Self { cache_max_entries: 1024, match_limit: 0 }
    }
}

/// The letters of an options argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) options: Options,
    pub(crate) how: How,
    pub(crate) jit: Jit,
    pub(crate) memory: Remember,
}

/// Whether an expression is compiled once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remember {
    Not,
    Once,
}

impl Flags {
    /// Reads the letters.
    ///
    /// # Errors
    /// The first letter that there is not.
    pub(crate) fn parse(letters: &[u8]) -> Result<Self, u8> {
        // The matcher without groups knows no machine code, and nothing that is not UTF-8.
        let is_dfa = letters.contains(&b'd');
        let mut flags =
            Self { options: Options::default(), how: How::Perl, jit: Jit::Off, memory: Remember::Not };
        for &letter in letters {
            flags.options = flags.options
                | match letter {
                    b'a' => Options::ANCHORED,
                    b'D' => Options::DUPNAMES,
                    b'i' => Options::CASELESS,
                    b'J' => Options::JAVASCRIPT,
                    b'm' => Options::MULTILINE,
                    b's' => Options::DOTALL,
                    b'u' => Options::UTF,
                    b'U' if is_dfa => Options::UTF,
                    b'U' => Options::UTF_UNCHECKED,
                    b'x' => Options::EXTENDED,
                    b'd' | b'j' | b'o' => Options::default(),
                    _ => return Err(letter),
                };
            match letter {
                b'd' => flags.how = How::Dfa,
                b'j' => flags.jit = Jit::On,
                b'o' => flags.memory = Remember::Once,
                _ => {}
            }
        }
        if flags.how == How::Dfa {
            flags.jit = Jit::Off;
        }
        debug_assert!(flags.how == How::Perl || flags.jit == Jit::Off, "one matcher has machine code");
        Ok(flags)
    }

    pub(crate) fn has(self, options: Options) -> bool {
        self.options | options == self.options
    }
}

/// The regular expressions of one VM.
#[derive(Default)]
pub(crate) struct Regexes {
    pub(crate) conf: RegexConf,
    pub(crate) matcher: Matcher,
    known: HashMap<Box<[u8]>, Vec<Known>>,
    /// How many are in `known`.
    count: usize,
    last: Option<(Box<[u8]>, Flags, Arc<Code>)>,
    /// The expressions of `known` that compiled code looks for.
    pub(crate) numbered: Vec<Known>,
}

/// An expression that has a number.
pub(crate) struct Numbered {
    pub(crate) number: usize,
    pub(crate) groups: usize,
    /// Groups that have names.
    pub(crate) names: Vec<(usize, Box<[u8]>)>,
}

/// An expression with its flags, among those of the same text.
pub(crate) type Known = (Flags, Arc<Code>);

/// How an expression was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegexSource {
    Known,
    Compiled,
    /// Compiled, and not remembered, as there are too many.
    TooMany,
}

impl Regexes {
    pub(crate) fn new(conf: RegexConf) -> Self {
        let mut regexes = Self { conf, ..Self::default() };
        if conf.match_limit != 0 {
            regexes.matcher.limit_steps(conf.match_limit);
        }
        regexes
    }

    /// Whether none is remembered.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether an expression that is not known is remembered.
    pub(crate) fn has_room(&self) -> bool {
        self.count < self.conf.cache_max_entries && self.numbered.len() < self.conf.cache_max_entries
    }

    /// The expression of this text.
    pub(crate) fn code(
        &mut self,
        pattern: &[u8],
        flags: Flags,
    ) -> Result<(Arc<Code>, RegexSource), CompileError> {
        if let Some((last, of, code)) = &self.last
            && **last == *pattern
            && *of == flags
        {
            return Ok((Arc::clone(code), RegexSource::Known));
        }
        let known = self.known.get(pattern).and_then(|all| all.iter().find(|(of, _)| *of == flags));
        if let Some((_, code)) = known {
            return Ok((Arc::clone(code), RegexSource::Known));
        }
        let code = Arc::new(Code::compile(pattern, flags.options, flags.jit)?);
        if flags.memory == Remember::Not {
            self.last = Some((pattern.into(), flags, Arc::clone(&code)));
            return Ok((code, RegexSource::Compiled));
        }
        if self.count >= self.conf.cache_max_entries {
            return Ok((code, RegexSource::TooMany));
        }
        self.known.entry(pattern.into()).or_default().push((flags, Arc::clone(&code)));
        self.count += 1;
        debug_assert!(self.count <= self.conf.cache_max_entries, "no more are remembered than may be");
        debug_assert_eq!(
            self.count,
            self.known.values().map(Vec::len).sum::<usize>(),
            "those that are remembered are counted"
        );
        Ok((code, RegexSource::Compiled))
    }
}
