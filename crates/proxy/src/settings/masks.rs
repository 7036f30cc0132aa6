//! Sets of words that directives take: when another server is tried, and what of a response is ignored.

use clearway_conf::{Directive, Error, Scope};
use clearway_http::{Load, Setting};

/// Kinds of failures, or of headers: each one bit.
pub(crate) trait Mask: Copy + Default + 'static {
    /// The words with what they stand for.
    const WORDS: &'static [(&'static str, Self)];

    fn bits(self) -> u16;

    fn of_bits(bits: u16) -> Self;

    /// Whether it has all of the other.
    fn has(self, other: Self) -> bool {
        self.bits() & other.bits() == other.bits()
    }

    fn with(self, other: Self) -> Self {
        Self::of_bits(self.bits() | other.bits())
    }
}

/// Why another server may be tried (`…_next_upstream`), or a stale answer be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failures(u16);

impl Failures {
    /// As nginx's debug lines number it.
    pub(crate) fn number(self) -> u32 {
        u32::from(self.0) << 1
    }

    /// The words of `fastcgi_next_upstream`, `scgi_next_upstream`, `uwsgi_next_upstream`.
    pub(crate) const OF_APPLICATIONS: &[(&str, Self)] = &[
        ("error", Self::ERROR),
        ("timeout", Self::TIMEOUT),
        ("invalid_header", Self::INVALID_HEADER),
        ("non_idempotent", Self::NON_IDEMPOTENT),
        ("http_500", Self::HTTP_500),
        ("http_503", Self::HTTP_503),
        ("http_403", Self::HTTP_403),
        ("http_404", Self::HTTP_404),
        ("http_429", Self::HTTP_429),
        ("updating", Self::UPDATING),
        ("off", Self::OFF),
    ];
    /// The words of `memcached_next_upstream`.
    pub(crate) const OF_MEMCACHED: &[(&str, Self)] = &[
        ("error", Self::ERROR),
        ("timeout", Self::TIMEOUT),
        ("invalid_response", Self::INVALID_HEADER),
        ("not_found", Self::HTTP_404),
        ("off", Self::OFF),
    ];
    /// The words of `tunnel_next_upstream`.
    pub(crate) const OF_TUNNELS: &[(&str, Self)] =
        &[("error", Self::ERROR), ("timeout", Self::TIMEOUT), ("off", Self::OFF)];
    /// The default of `…_next_upstream`.
    pub(crate) const ERROR_OR_TIMEOUT: Self = Self(1 | 1 << 1);
    pub(crate) const ERROR: Self = Self(1);
    pub(crate) const TIMEOUT: Self = Self(1 << 1);
    pub(crate) const INVALID_HEADER: Self = Self(1 << 2);
    pub(crate) const NON_IDEMPOTENT: Self = Self(1 << 3);
    pub(crate) const HTTP_403: Self = Self(1 << 8);
    pub(crate) const HTTP_404: Self = Self(1 << 9);
    const HTTP_500: Self = Self(1 << 4);
    const HTTP_502: Self = Self(1 << 5);
    const HTTP_503: Self = Self(1 << 6);
    const HTTP_504: Self = Self(1 << 7);
    const HTTP_429: Self = Self(1 << 10);
    pub(crate) const UPDATING: Self = Self(1 << 11);
    const OFF: Self = Self(1 << 12);

    /// The words that a family's directives take.
    pub(crate) fn words_of(prefix: &str) -> &'static [(&'static str, Self)] {
        if prefix == "proxy" { Self::WORDS } else { Self::OF_APPLICATIONS }
    }

    /// The word for a status, if it may count as a failure.
    pub(crate) fn of_status(status: u16) -> Option<Self> {
        Some(match status {
            500 => Self::HTTP_500,
            502 => Self::HTTP_502,
            503 => Self::HTTP_503,
            504 => Self::HTTP_504,
            403 => Self::HTTP_403,
            404 => Self::HTTP_404,
            429 => Self::HTTP_429,
            _ => return None,
        })
    }

    /// The status for the client if no other server is tried.
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::TIMEOUT | Self::HTTP_504 => 504,
            Self::HTTP_500 => 500,
            Self::HTTP_503 => 503,
            Self::HTTP_403 => 403,
            Self::HTTP_404 => 404,
            Self::HTTP_429 => 429,
            _ => 502,
        }
    }

    /// The words that count: with `off` none does.
    pub(crate) fn effective(self) -> Self {
        if self.has(Self::OFF) { Self::OFF } else { self }
    }
}

impl Mask for Failures {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("error", Self::ERROR),
        ("timeout", Self::TIMEOUT),
        ("invalid_header", Self::INVALID_HEADER),
        ("non_idempotent", Self::NON_IDEMPOTENT),
        ("http_500", Self::HTTP_500),
        ("http_502", Self::HTTP_502),
        ("http_503", Self::HTTP_503),
        ("http_504", Self::HTTP_504),
        ("http_403", Self::HTTP_403),
        ("http_404", Self::HTTP_404),
        ("http_429", Self::HTTP_429),
        ("updating", Self::UPDATING),
        ("off", Self::OFF),
    ];

    fn bits(self) -> u16 {
        self.0
    }

    fn of_bits(bits: u16) -> Self {
        Self(bits)
    }
}

/// Headers of a response that are not acted on (`…_ignore_headers`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ignored(u16);

impl Ignored {
    pub(crate) const REDIRECT: Self = Self(1);
    pub(crate) const LIMIT_RATE: Self = Self(1 << 2);
    pub(crate) const BUFFERING: Self = Self(1 << 3);
    pub(crate) const CHARSET: Self = Self(1 << 4);
    pub(crate) const ACCEL_EXPIRES: Self = Self(1 << 1);
    pub(crate) const EXPIRES: Self = Self(1 << 5);
    pub(crate) const CACHE_CONTROL: Self = Self(1 << 6);
    pub(crate) const SET_COOKIE: Self = Self(1 << 7);
    pub(crate) const VARY: Self = Self(1 << 8);
}

impl Mask for Ignored {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("X-Accel-Redirect", Self::REDIRECT),
        ("X-Accel-Expires", Self::ACCEL_EXPIRES),
        ("X-Accel-Limit-Rate", Self::LIMIT_RATE),
        ("X-Accel-Buffering", Self::BUFFERING),
        ("X-Accel-Charset", Self::CHARSET),
        ("Expires", Self::EXPIRES),
        ("Cache-Control", Self::CACHE_CONTROL),
        ("Set-Cookie", Self::SET_COOKIE),
        ("Vary", Self::VARY),
    ];

    fn bits(self) -> u16 {
        self.0
    }

    fn of_bits(bits: u16) -> Self {
        Self(bits)
    }
}

/// Methods whose answers may be cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Methods(u16);

impl Mask for Methods {
    const WORDS: &'static [(&'static str, Self)] =
        &[("GET", Self(1)), ("HEAD", Self(1 << 1)), ("POST", Self::POST)];

    fn bits(self) -> u16 {
        self.0
    }

    fn of_bits(bits: u16) -> Self {
        Self(bits)
    }
}

impl Methods {
    pub(crate) const POST: Self = Self(1 << 2);
}

/// Adds the words of a directive to what those before it at this level have said.
pub(crate) fn read_mask<M: Mask>(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    place: fn(&mut Load) -> &mut Setting<M>,
) -> Result<(), Error> {
    read_words(scope, directive, M::WORDS, place)
}

/// Reads a mask of some of the words.
pub(crate) fn read_words<M: Mask>(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    words: &[(&str, M)],
    place: fn(&mut Load) -> &mut Setting<M>,
) -> Result<(), Error> {
    for (at, word) in directive.args.iter().enumerate() {
        let meaning = directive.choice(at, words)?;
        let setting = place(scope.conf);
        let said = if setting.is_here() { **setting } else { M::default() };
        if said.has(meaning) {
            let text = clearway_conf::error::message(&[&"duplicate value \"", word, &"\""]);
            scope.warn(directive.error(text));
        } else {
            setting.set(said.with(meaning));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_a_bit_of_its_own() {
        fn check<M: Mask>() {
            let all = M::WORDS.iter().fold(0, |all, (_, mask)| {
                assert_eq!((mask.bits().count_ones(), all & mask.bits()), (1, 0));
                all | mask.bits()
            });
            assert_eq!(all.count_ones() as usize, M::WORDS.len());
        }
        check::<Failures>();
        check::<Ignored>();
        check::<Methods>();
    }

    #[test]
    fn a_failure_has_a_status_and_a_status_may_be_a_failure() {
        for status in [500, 503, 504, 403, 404, 429, 502] {
            assert_eq!(Failures::of_status(status).map(Failures::status), Some(status));
        }
        assert_eq!(Failures::of_status(501), None);
        assert_eq!(Failures::TIMEOUT.status(), 504);
        assert_eq!((Failures::ERROR.status(), Failures::INVALID_HEADER.status()), (502, 502));
        assert!(!Failures::ERROR.with(Failures::OFF).effective().has(Failures::ERROR));
    }
}
