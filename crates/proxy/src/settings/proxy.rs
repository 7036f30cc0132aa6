//! Settings of locations for `proxy_pass` beyond those that all families have.

use std::sync::Arc;

use bytes::Bytes;
use clearway_http::regex::Regex;
use clearway_http::{ConfKey, Level, Merge, Own, Setting, Value, settings};
use clearway_message::Known;
use clearway_net::url::{Url, UrlKind};

use crate::settings::cache::FamilyCaches;
use crate::settings::names::NameSet;
use crate::settings::pass::PassConf;
use crate::upstreams::GroupRef;

/// The settings that all families have, of this one.
pub(crate) static PROXY_PASS: ConfKey<PassConf> = ConfKey::new(Level::Location);

/// The rest.
pub(crate) static PROXY: ConfKey<ProxyConf> = ConfKey::new(Level::Location);

/// The caches of `proxy_cache_path`.
pub(crate) static PROXY_CACHES: ConfKey<FamilyCaches> = ConfKey::new(Level::Main);

/// Headers of responses that clients are not shown.
pub(crate) const HIDDEN: &[&str] = &[
    "Date",
    "Server",
    "X-Pad",
    "X-Accel-Expires",
    "X-Accel-Redirect",
    "X-Accel-Limit-Rate",
    "X-Accel-Buffering",
    "X-Accel-Charset",
];

settings! {
    /// The settings of a location for `proxy_pass` alone.
    pub(crate) struct ProxyConf {
        pub(crate) target: Passed<Target>,
        pub(crate) redirects: Redirects,
        pub(crate) cookie_domains: Setting<Rules<Rewrite>>,
        pub(crate) cookie_paths: Setting<Rules<Rewrite>>,
        pub(crate) cookie_flags: Setting<Rules<CookieFlags>>,
        pub(crate) set_headers: Setting<Vec<(Bytes, Value)>>,
        pub(crate) body: Setting<Option<Value>>,
        pub(crate) method: Setting<Option<Value>>,
        pub(crate) version: Setting<HttpVersion> = HttpVersion::Http11,
        pub(crate) headers_hash: [Setting<u64>; 2] = [Setting::new(512), Setting::new(64)],
        /// The head of each request, computed from `set_headers`.
        pub(crate) headers: Own<Arc<Headers>>,
        /// The headers of requests whose response may go to a cache.
        pub(crate) cache_headers: Own<Arc<Headers>>,
    }
    then |conf: &mut ProxyConf| conf.redirects.settle()
}

/// Where requests are passed to, which the blocks of `if` and `limit_except` inherit, and nothing else.
#[derive(Debug)]
pub(crate) struct Passed<T>(Option<Arc<T>>);

impl<T> Passed<T> {
    pub(crate) fn set(&mut self, value: T) {
        self.0 = Some(Arc::new(value));
    }

    pub(crate) fn get(&self) -> Option<&Arc<T>> {
        self.0.as_ref()
    }
}

impl<T> Default for Passed<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Merge for Passed<T> {
    fn merge(&mut self, _: &Self) {}

    fn merge_if(&mut self, parent: &Self) {
        if self.0.is_none() {
            self.0.clone_from(&parent.0);
        }
    }

    fn merge_limited(&mut self, parent: &Self) {
        self.merge_if(parent);
    }
}

/// `proxy_pass`
#[derive(Debug)]
pub(crate) enum Target {
    /// A value without variables.
    Fixed(Fixed),
    /// A value with variables.
    Evaluated(Value),
}

/// See [`Target::Fixed`].
#[derive(Debug)]
pub(crate) struct Fixed {
    /// The server, for requests and variables.
    pub(crate) origin: Origin,
    /// The text in place of the location's name in the path; empty: the path is passed unchanged.
    pub(crate) uri: Bytes,
    /// The location's name; empty where it has none.
    pub(crate) location: Bytes,
    pub(crate) group: GroupRef,
}

/// How servers are talked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    /// The scheme of a URL, without regard to case.
    pub(crate) fn of(url: &[u8]) -> Option<Self> {
        let begins =
            |text: &str| url.get(..text.len()).is_some_and(|url| url.eq_ignore_ascii_case(text.as_bytes()));
        [Self::Http, Self::Https].into_iter().find(|scheme| begins(scheme.text()))
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Http => "http://",
            Self::Https => "https://",
        }
    }

    pub(crate) fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// The server that is asked, for requests and variables.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) scheme: Scheme,
    /// `Host`, and `$proxy_host`.
    pub(crate) host_header: Bytes,
    /// `$proxy_port`; empty for a unix socket.
    pub(crate) port: Bytes,
    /// The server as keys of caches begin with it, where that is not what `Host` says.
    authority: Option<Box<Bytes>>,
}

impl Origin {
    /// The target of an address behind a scheme.
    pub(crate) fn new(scheme: Scheme, address: &Bytes, url: &Url) -> Self {
        let host = address.slice(url.host.clone());
        let port = match (url.kind, &url.port_text) {
            (UrlKind::Unix, _) => {
                let localhost = Bytes::from_static(b"localhost");
                let authority = Some(Box::new(address.slice(..url.path.start)));
                return Self { scheme, host_header: localhost, port: Bytes::new(), authority };
            }
            (_, Some(port)) if url.port != scheme.port() => port.clone(),
            _ => {
                let port = scheme.port().to_string().into();
                return Self { scheme, host_header: host, port, authority: None };
            }
        };
        let host_header = address.slice(url.host.start..port.end);
        Self { scheme, host_header, port: address.slice(port), authority: None }
    }

    /// The server as keys of caches begin with it.
    pub(crate) fn authority(&self) -> &Bytes {
        self.authority.as_deref().unwrap_or(&self.host_header)
    }
}

/// Rules that may be turned off, but not beside others.
#[derive(Debug, Default)]
pub(crate) enum Rules<T> {
    #[default]
    Off,
    Some(Arc<Vec<T>>),
}

impl<T> Clone for Rules<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Off => Self::Off,
            Self::Some(rules) => Self::Some(Arc::clone(rules)),
        }
    }
}

impl<T> Rules<T> {
    pub(crate) fn list(&self) -> &[T] {
        match self {
            Self::Off => &[],
            Self::Some(rules) => rules,
        }
    }
}

/// A rule: the pattern, and its replacement.
#[derive(Debug)]
pub(crate) struct Rewrite {
    pub(crate) pattern: Pattern,
    pub(crate) replacement: Value,
}

/// The pattern of a rule.
#[derive(Debug)]
pub(crate) enum Pattern {
    /// A text that it begins with.
    Prefix(Value),
    /// All of a domain, in any case, with a dot before it or not.
    Domain(Value),
    Regex(Regex),
    /// All of a name, in any case.
    Name(Value),
}

/// One `proxy_cookie_flags`.
#[derive(Debug)]
pub(crate) struct CookieFlags {
    pub(crate) pattern: Pattern,
    pub(crate) flags: Vec<Value>,
}

/// `proxy_redirect`, with what holds without one: that of the `proxy_pass` beside it. As in nginx a level
/// inherits that one, too.
#[derive(Debug, Default)]
pub(crate) struct Redirects {
    pub(crate) switch: Option<Switch>,
    rules: Option<Arc<Vec<Rewrite>>>,
    /// The meaning of `default` at this level.
    implied: Option<Rewrite>,
}

/// Whether redirects are rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    Off,
    On,
}

impl Redirects {
    pub(crate) fn has_rules(&self) -> bool {
        self.rules.is_some()
    }

    pub(crate) fn add(&mut self, rule: Rewrite) {
        let rules = self.rules.get_or_insert_default();
        Arc::get_mut(rules).expect("rules are shared when levels are merged").push(rule);
    }

    /// A `proxy_pass` stands here.
    pub(crate) fn imply(&mut self, rule: Rewrite) {
        self.implied = Some(rule);
    }

    pub(crate) fn list(&self) -> &[Rewrite] {
        match self.switch {
            Some(Switch::Off) => &[],
            _ => self.rules.as_ref().map_or(&[], |rules| rules),
        }
    }

    /// `proxy_redirect default`
    pub(crate) fn add_implied(&mut self) {
        if let Some(rule) = self.implied.take() {
            self.add(rule);
        }
    }

    fn settle(&mut self) {
        if self.rules.is_none()
            && self.switch != Some(Switch::Off)
            && let Some(rule) = self.implied.take()
        {
            self.rules = Some(Arc::new(vec![rule]));
        }
    }
}

impl Merge for Redirects {
    fn merge(&mut self, parent: &Self) {
        self.switch = self.switch.or(parent.switch);
        if self.rules.is_none() && self.switch != Some(Switch::Off) {
            self.rules.clone_from(&parent.rules);
        }
    }
}

/// `proxy_http_version`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    Http10,
    Http11,
}

/// The head of requests.
#[derive(Debug, Default)]
pub(crate) struct Headers {
    /// The value of `Host`.
    pub(crate) host: Option<Value>,
    /// The lines in their order.
    pub(crate) lines: Vec<(Bytes, LineValue)>,
    /// Names of the client's lines that are not passed.
    names: NameSet,
}

/// The value of a line.
#[derive(Clone, Debug)]
pub(crate) enum LineValue {
    /// As it is said; a line without a value is not sent.
    Said(Value),
    BodyLength,
    Chunked,
    /// `Last-Modified` of a response that is to be validated.
    CachedDate,
    /// Its `ETag`.
    CachedTag,
}

/// Lines of the client that are not passed unless they are set, in nginx's order.
const OWN_LINES: [(&str, Option<LineValue>); 9] = [
    ("Host", None),
    ("Connection", None),
    ("Proxy-Connection", None),
    ("Content-Length", Some(LineValue::BodyLength)),
    ("Transfer-Encoding", Some(LineValue::Chunked)),
    ("TE", None),
    ("Keep-Alive", None),
    ("Expect", None),
    ("Upgrade", None),
];

/// Header lines of requests for a cache: the client's conditions are left out or replaced, since the response
/// is for other clients too.
const CACHE_LINES: [(&str, Option<LineValue>); 6] = [
    ("If-Modified-Since", Some(LineValue::CachedDate)),
    ("If-Unmodified-Since", None),
    ("If-None-Match", Some(LineValue::CachedTag)),
    ("If-Match", None),
    ("Range", None),
    ("If-Range", None),
];

/// The reader that a response is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// The client that asks.
    Client,
    /// Any client for as long as it is in a cache.
    Cache,
}

impl Headers {
    pub(crate) fn new(set: &[(Bytes, Value)], audience: Audience) -> Self {
        let mut headers = Self::default();
        for (name, value) in set {
            if name.eq_ignore_ascii_case(b"host") {
                headers.host = Some(value.clone());
                continue;
            }
            headers.names.add(name);
            if value.as_literal() != Some(b"") {
                headers.lines.push((name.clone(), LineValue::Said(value.clone())));
            }
        }
        let of_caches = CACHE_LINES.into_iter().filter(|_| audience == Audience::Cache);
        for (name, value) in OWN_LINES.into_iter().chain(of_caches) {
            if headers.replaces(Known::find(name.as_bytes()), name.as_bytes()) {
                continue;
            }
            let name = Bytes::from_static(name.as_bytes());
            headers.names.add(&name);
            headers.lines.extend(value.map(|value| (name, value)));
        }
        headers
    }

    /// Whether lines of the client with this name are left out; `known` is what it is known as.
    #[inline]
    pub(crate) fn replaces(&self, known: Known, name: &[u8]) -> bool {
        self.names.has(known, name)
    }
}

impl ProxyConf {
    /// The meaning of `proxy_redirect default` beside a `proxy_pass` with this text.
    pub(crate) fn default_redirect(url: &Bytes, target: &Fixed) -> Rewrite {
        let (pattern, replacement) = if target.uri.is_empty() {
            ([url, &b"/"[..]].concat().into(), Bytes::from_static(b"/"))
        } else {
            (url.clone(), target.location.clone())
        };
        Rewrite {
            pattern: Pattern::Prefix(Value::literal(pattern)),
            replacement: Value::literal(replacement),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(text: &'static str) -> Value {
        Value::literal(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn what_is_set_takes_the_place_of_what_is_sent_by_itself() {
        let set = [("connection", "x"), ("HOST", "h"), ("TE", "")];
        let headers = Headers::new(&set.map(|(name, value)| (name.into(), literal(value))), Audience::Client);
        let names: Vec<_> = headers.lines.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, [&b"connection"[..], b"Content-Length", b"Transfer-Encoding"]);
        assert!(headers.host.is_some());
        let replaced = ["Connection", "te", "upgrade", "Host", "Accept"];
        let replaced = replaced.map(|name| headers.replaces(Known::find(name.as_bytes()), name.as_bytes()));
        assert_eq!(replaced, [true, true, true, true, false]);
    }

    #[test]
    fn redirects_are_inherited_with_those_that_are_implied() {
        let rule = |text| Rewrite { pattern: Pattern::Prefix(literal(text)), replacement: literal("/") };
        let text = |redirects: &Redirects| {
            let patterns = redirects.list().iter().map(|rule| match &rule.pattern {
                Pattern::Prefix(value) => String::from_utf8_lossy(value.as_literal().unwrap()).into_owned(),
                _ => String::new(),
            });
            patterns.collect::<Vec<_>>().join(" ")
        };
        let mut outer = Redirects::default();
        outer.imply(rule("outer"));
        outer.settle();
        let mut inner = Redirects::default();
        inner.imply(rule("inner"));
        inner.merge(&outer);
        inner.settle();
        assert_eq!(text(&inner), "outer");
        let mut off = Redirects { switch: Some(Switch::Off), ..Redirects::default() };
        off.merge(&outer);
        off.settle();
        let mut below = Redirects::default();
        below.merge(&off);
        assert_eq!((text(&off), text(&below)), (String::new(), String::new()));
    }
}
