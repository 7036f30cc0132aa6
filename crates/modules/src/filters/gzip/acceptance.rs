//! Whether a client is to get a compressed response: `gzip_vary`, `gzip_http_version`, `gzip_proxied` and
//! `gzip_disable`, which hold for all that compress, keep compressed files, or decompress. Pure functions of
//! request and head, on loops; microseconds.

#[cfg(fuzzing)]
pub mod fuzzing;

use std::sync::Arc;

use clearway_base::date;
use clearway_conf::error::message;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::regex::{Case, Regex};
use clearway_http::{
    ConfKey, Level, Load, Module, Request, ResponseHead, Setting, Varies, context, set, settings,
};
use clearway_message::{HeaderName, Known, Version};

/// The module: directives only.
pub static GZIP_ACCEPTANCE: Module =
    Module { name: "gzip_acceptance", directives: DIRECTIVES, confs: &[&ACCEPTANCE_CONF], ..Module::EMPTY };

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "gzip_vary",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "gzip_vary on | off",
        default: "gzip_vary off;",
        doc: "Whether `Vary: Accept-Encoding` is sent with what `gzip`, `gzip_static` and `gunzip` may send \
              in another form.",
        example: "
            gzip on;
            gzip_types text/css application/javascript application/json image/svg+xml;
            gzip_comp_level 5;
            gzip_min_length 1000;
            gzip_vary on;",
        see: &[
            "gzip",
            "gzip_types",
            "gzip_comp_level",
            "gzip_min_length",
            "gzip_proxied",
            "gzip_static",
            "gunzip",
        ],
        handler: |scope, d| set(d, &mut conf(scope).vary, |d| d.flag(0)),
    },
    Spec {
        name: "gzip_http_version",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "gzip_http_version 1.0 | 1.1",
        default: "gzip_http_version 1.1;",
        doc: "The lowest version of a request that is answered with a compressed response.",
        example: EXAMPLE_OF_ACCEPTANCE,
        see: &["gzip_proxied", "gzip_disable", "gzip", "gzip_vary"],
        handler: |scope, d| {
            const WORDS: [(&str, Version); 2] = [("1.0", Version::HTTP_10), ("1.1", Version::HTTP_11)];
            set(d, &mut conf(scope).version, |d| d.choice(0, &WORDS))
        },
    },
    Spec {
        name: "gzip_proxied",
        contexts: context::ALL,
        args: Args::ONE_MORE,
        syntax: "gzip_proxied off | expired | no-cache | no-store | private | no_last_modified | no_etag | \
                 auth | any …",
        default: "gzip_proxied off;",
        doc: "Compresses responses to requests with `Via`, which come from proxies: none of them, those \
              that a cache must not keep for one of these reasons, or all.",
        example: EXAMPLE_OF_ACCEPTANCE,
        see: &["gzip_http_version", "gzip_disable", "gzip", "gzip_vary"],
        handler: read_proxied,
    },
    Spec {
        name: "gzip_disable",
        contexts: context::ALL,
        args: Args::ONE_MORE,
        syntax: "gzip_disable REGEX | msie6 …",
        default: "",
        doc: "Browsers, by an expression for `User-Agent`, that get nothing compressed. `msie6` stands for \
              Internet Explorer 4 to 6, but for the service pack with SV1 in its name.",
        example: EXAMPLE_OF_ACCEPTANCE,
        see: &["gzip_proxied", "gzip_http_version", "gzip", "gzip_vary"],
        handler: read_disable,
    },
];

/// The example of `gzip_http_version`, `gzip_proxied` and `gzip_disable`.
const EXAMPLE_OF_ACCEPTANCE: &str = r#"
    gzip on;
    gzip_http_version 1.0;
    gzip_proxied no-cache no-store private expired auth;
    gzip_disable "MSIE [4-6]\.";"#;

pub(super) static ACCEPTANCE_CONF: ConfKey<AcceptanceConf> = ConfKey::new(Level::Location);

settings! {
    /// The settings of the directives in this file.
    pub(super) struct AcceptanceConf {
        vary: Setting<bool> = false,
        version: Setting<Version> = Version::HTTP_11,
        proxied: Setting<Proxied> = Proxied::OFF,
        disable: Setting<Arc<Vec<Regex>>>,
        disable_msie6: Setting<bool> = false,
    }
}

/// Words of `gzip_proxied`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Proxied(u16);

impl Proxied {
    const OFF: Self = Self(1);
    const EXPIRED: Self = Self(2);
    const NO_CACHE: Self = Self(4);
    const NO_STORE: Self = Self(8);
    const PRIVATE: Self = Self(16);
    const NO_LAST_MODIFIED: Self = Self(32);
    const NO_ETAG: Self = Self(64);
    const AUTH: Self = Self(128);
    const ANY: Self = Self(256);

    const WORDS: [(&'static str, Self); 9] = [
        ("off", Self::OFF),
        ("expired", Self::EXPIRED),
        ("no-cache", Self::NO_CACHE),
        ("no-store", Self::NO_STORE),
        ("private", Self::PRIVATE),
        ("no_last_modified", Self::NO_LAST_MODIFIED),
        ("no_etag", Self::NO_ETAG),
        ("auth", Self::AUTH),
        ("any", Self::ANY),
    ];

    fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

fn conf<'a>(scope: &'a mut Scope<'_, Load>) -> &'a mut AcceptanceConf {
    scope.conf.location(&ACCEPTANCE_CONF)
}

fn read_proxied(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    for (at, word) in directive.args.iter().enumerate() {
        let flag = directive.choice(at, &Proxied::WORDS)?;
        let proxied = conf(scope).proxied.here();
        let is_duplicate = proxied.has(flag);
        proxied.0 |= flag.0;
        if is_duplicate {
            scope.warn(directive.error(message(&[&"duplicate value \"", word, &"\""])));
        }
    }
    Ok(())
}

fn read_disable(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let mut regexes = Vec::new();
    for argument in &directive.args {
        if argument == "msie6" {
            conf(scope).disable_msie6.set(true);
            continue;
        }
        let regex = Regex::compile(argument, Case::Insensitive)
            .map_err(|error| directive.error(error.to_string()))?;
        regexes.push(regex);
    }
    let disable = Arc::get_mut(conf(scope).disable.here()).expect("nobody shares what is being read");
    disable.append(&mut regexes);
    Ok(())
}

/// Has caches told that the response depends on `Accept-Encoding`, where `gzip_vary` wants that.
pub(crate) fn mark_varying(request: &Request<'_>, head: &mut ResponseHead<'_>) {
    if varies(request) {
        head.varies = Varies::ByEncoding;
    }
}

/// Whether `gzip_vary` is on.
pub(crate) fn varies(request: &Request<'_>) -> bool {
    *request.conf(&ACCEPTANCE_CONF).vary
}

/// Whether the client is to get this response compressed.
pub(crate) fn is_accepted(request: &Request<'_>, head: &ResponseHead<'_>) -> bool {
    let conf = request.conf(&ACCEPTANCE_CONF);
    request.is_main()
        && request.header(Known::AcceptEncoding).is_some_and(accepts_gzip)
        && !(*conf.disable_msie6 && request.is_msie6())
        && request.version() >= *conf.version
        && (request.header(Known::Via).is_none() || is_for_proxies(*conf.proxied, request, head))
        && !is_disabled(&conf.disable, request)
}

fn is_disabled(disabled: &[Regex], request: &Request<'_>) -> bool {
    let Some(agent) = request.header(Known::UserAgent).filter(|_| !disabled.is_empty()) else { return false };
    // A client for which the expression fails gets none either.
    disabled.iter().any(|regex| request.matches(regex, agent).unwrap_or(true))
}

const EXPIRES: HeaderName<'_> = HeaderName::new(b"Expires");
const CACHE_CONTROL: HeaderName<'_> = HeaderName::new(b"Cache-Control");
const LAST_MODIFIED: HeaderName<'_> = HeaderName::new(b"Last-Modified");

fn is_for_proxies(proxied: Proxied, request: &Request<'_>, head: &ResponseHead<'_>) -> bool {
    if proxied.has(Proxied::OFF) {
        return false;
    }
    if proxied.has(Proxied::ANY)
        || (proxied.has(Proxied::AUTH) && request.header(Known::Authorization).is_some())
    {
        return true;
    }
    let first_expires = head.headers.named(EXPIRES).next();
    if let Some(expires) = first_expires {
        let expires = date::parse_http_date(expires).filter(|_| proxied.has(Proxied::EXPIRED));
        return expires.is_some_and(|expires| expires < request.now_unix_s());
    }
    let controls: Vec<&[u8]> = head.headers.named(CACHE_CONTROL).collect();
    if !controls.is_empty() {
        let says = |flag: Proxied, word: &[u8]| {
            proxied.has(flag) && controls.iter().any(|value| has_word(value, word))
        };
        return says(Proxied::NO_CACHE, b"no-cache")
            || says(Proxied::NO_STORE, b"no-store")
            || says(Proxied::PRIVATE, b"private");
    }
    let has_date = head.headers.has(LAST_MODIFIED);
    let spoils = |flag, has: bool| proxied.has(flag) && has;
    !spoils(Proxied::NO_LAST_MODIFIED, has_date) && !spoils(Proxied::NO_ETAG, head.etag.is_some())
}

/// Whether a list has this word by itself.
fn has_word(list: &[u8], word: &[u8]) -> bool {
    list.split(|&byte| byte == b',').any(|item| {
        let found = item.skip_spaces().split_at_checked(word.len());
        found.is_some_and(|(found, behind)| {
            found.eq_ignore_ascii_case(word) && behind.skip_spaces().is_empty()
        })
    })
}

/// Whether `Accept-Encoding` has `gzip` in it, with a quality that is a number above 0 if it has one. As
/// nginx reads it.
fn accepts_gzip(value: &[u8]) -> bool {
    const GZIP: &[u8] = b"gzip";
    if value.starts_with(b"gzip,") {
        return true;
    }
    let mut start = 0;
    let after = loop {
        let found = value[start..].windows(GZIP.len()).position(|word| word.eq_ignore_ascii_case(GZIP));
        let Some(at) = found.map(|at| start + at) else { return false };
        if at == start || matches!(value[at - 1], b',' | b' ') {
            break &value[at + GZIP.len()..];
        }
        start = at + GZIP.len();
    };
    match after.skip_spaces() {
        [] | [b',', ..] => true,
        [b';', parameter @ ..] => match parameter.skip_spaces() {
            [] => true,
            [b'q' | b'Q', b'=', quality @ ..] => is_above_zero(quality),
            _ => false,
        },
        _ => false,
    }
}

/// Leading spaces, and nothing else that is white.
trait LeadingSpaces {
    fn skip_spaces(&self) -> &Self;
}

impl LeadingSpaces for [u8] {
    fn skip_spaces(&self) -> &Self {
        let spaces = self.iter().take_while(|&&byte| byte == b' ').count();
        &self[spaces..]
    }
}

/// Whether a quality begins with a number in (0, 1] of three decimals at most.
fn is_above_zero(text: &[u8]) -> bool {
    let (whole, rest) = match text {
        [digit @ (b'0' | b'1'), rest @ ..] => (u32::from(digit - b'0'), rest),
        _ => return false,
    };
    let decimals = match rest {
        [] | [b',' | b' ', ..] => return whole > 0,
        [b'.', decimals @ ..] => decimals,
        _ => return false,
    };
    let end = decimals.iter().position(|byte| matches!(byte, b',' | b' ')).unwrap_or(decimals.len());
    let decimals = &decimals[..end];
    let sum: u32 = decimals.iter().map(|&digit| u32::from(digit.wrapping_sub(b'0'))).sum();
    let is_number = decimals.len() <= 3 && decimals.iter().all(u8::is_ascii_digit);
    is_number && if whole == 1 { sum == 0 } else { sum > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_encodings() {
        for value in [
            "gzip",
            "GZip",
            "gzip,x",
            "deflate, gzip",
            "deflate,gzip;q=1",
            "gzip;q=0.001",
            "gzip ;q=1.000",
            "gzip; q=0.5, x",
            "gzip;",
            "gzip; ",
            "a xgzip gzip",
            "gzip;Q=1",
            "gzip;q=1,",
            "gzip , x",
            "gzip,;q=0",
        ] {
            assert!(accepts_gzip(value.as_bytes()), "{value:?}");
        }
        for value in [
            "",
            "gzi",
            "xgzip",
            "gzipx",
            "gzip;q=0",
            "gzip;q=0.000",
            "gzip;q=2",
            "gzip;q=1.001",
            "gzip;q=0.0001",
            "gzip;q",
            "gzip;q=",
            "gzip;x=1",
            "gzip;q=0.x",
            "gzip;q=0,x",
            "gzip\t",
            "identity",
            "gzip;q =1",
            "gzip x",
            "x-gzip",
        ] {
            assert!(!accepts_gzip(value.as_bytes()), "{value:?}");
        }
    }

    #[test]
    fn words_of_a_list() {
        assert!(has_word(b"max-age=5, No-Cache ,x", b"no-cache"));
        assert!(has_word(b"private", b"private"));
        assert!(!has_word(b"private=x, xprivate, private-ish", b"private"));
        assert!(!has_word(b"private;x, x;private, private\t", b"private"));
    }
}
