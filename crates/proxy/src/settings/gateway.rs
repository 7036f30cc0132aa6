//! Settings of locations for `fastcgi_pass`, `scgi_pass`, `uwsgi_pass`, `memcached_pass` and `tunnel_pass`
//! beyond those that all families have.

use std::sync::Arc;

use bytes::Bytes;
use clearway_gateway::memc::Command;
use clearway_http::regex::{Captures, Regex};
use clearway_http::{ConfKey, Level, Own, Setting, Value, View, settings};

use crate::settings::cache::FamilyCaches;
use crate::settings::pass::PassConf;
use crate::settings::proxy::Passed;
use crate::upstreams::GroupRef;

/// The settings that all families have, of `fastcgi_…`.
pub(crate) static FASTCGI_PASS: ConfKey<PassConf> = ConfKey::new(Level::Location);

/// The caches of `fastcgi_cache_path`.
pub(crate) static FASTCGI_CACHES: ConfKey<FamilyCaches> = ConfKey::new(Level::Main);

/// The rest of `fastcgi_…`.
pub(crate) static FASTCGI: ConfKey<FastCgiConf> = ConfKey::new(Level::Location);

/// The settings that all families have, of `scgi_…`.
pub(crate) static SCGI_PASS: ConfKey<PassConf> = ConfKey::new(Level::Location);

/// The caches of `scgi_cache_path`.
pub(crate) static SCGI_CACHES: ConfKey<FamilyCaches> = ConfKey::new(Level::Main);

/// The rest of `scgi_…`.
pub(crate) static SCGI: ConfKey<ScgiConf> = ConfKey::new(Level::Location);

/// The settings that all families have, of `uwsgi_…`.
pub(crate) static UWSGI_PASS: ConfKey<PassConf> = ConfKey::new(Level::Location);

/// The caches of `uwsgi_cache_path`.
pub(crate) static UWSGI_CACHES: ConfKey<FamilyCaches> = ConfKey::new(Level::Main);

/// The rest of `uwsgi_…`.
pub(crate) static UWSGI: ConfKey<UwsgiConf> = ConfKey::new(Level::Location);

/// The settings that all families have, of `memcached_…`.
pub(crate) static MEMCACHED_PASS: ConfKey<PassConf> = ConfKey::new(Level::Location);

/// The rest of `memcached_…`.
pub(crate) static MEMCACHED: ConfKey<MemcachedConf> = ConfKey::new(Level::Location);

/// The settings that all families have, of `memc_…`.
pub(crate) static MEMC_PASS: ConfKey<PassConf> = ConfKey::new(Level::Location);

/// The rest of `memc_…`.
pub(crate) static MEMC: ConfKey<MemcConf> = ConfKey::new(Level::Location);

/// The settings that all families have, of `tunnel_…`.
pub(crate) static TUNNEL_PASS: ConfKey<PassConf> = ConfKey::new(Level::Location);

/// The rest of `tunnel_…`.
pub(crate) static TUNNEL: ConfKey<TunnelConf> = ConfKey::new(Level::Location);

/// Headers of responses that clients are not shown, of uwsgi servers.
pub(crate) const HIDDEN: &[&str] =
    &["X-Accel-Expires", "X-Accel-Redirect", "X-Accel-Limit-Rate", "X-Accel-Buffering", "X-Accel-Charset"];

/// Header lines of FastCGI and SCGI servers that are not passed on.
pub(crate) const HIDDEN_WITH_STATUS: &[&str] = &[
    "X-Accel-Expires",
    "X-Accel-Redirect",
    "X-Accel-Limit-Rate",
    "X-Accel-Buffering",
    "X-Accel-Charset",
    "Status",
];

settings! {
    /// The settings of `fastcgi_…`.
    pub(crate) struct FastCgiConf {
        pub(crate) target: Passed<ServerSaid>,
        pub(crate) index: Setting<Bytes>,
        pub(crate) split: Setting<Option<Arc<Regex>>>,
        pub(crate) params: Setting<Vec<Param>>,
        pub(crate) catch_stderr: Setting<Vec<Bytes>>,
        pub(crate) keep_conn: Setting<bool> = false,
        pub(crate) sent: Own<Arc<Params>>,
    }
}

settings! {
    /// The settings of `scgi_…`.
    pub(crate) struct ScgiConf {
        pub(crate) target: Passed<ServerSaid>,
        pub(crate) params: Setting<Vec<Param>>,
        pub(crate) sent: Own<Arc<Params>>,
    }
}

settings! {
    /// The settings of `uwsgi_…`.
    pub(crate) struct UwsgiConf {
        pub(crate) target: Passed<UwsgiServer>,
        pub(crate) params: Setting<Vec<Param>>,
        pub(crate) modifiers: [Setting<u64>; 2],
        pub(crate) string: Setting<Bytes>,
        pub(crate) sent: Own<Arc<Params>>,
    }
}

settings! {
    /// The settings of `memcached_…`.
    pub(crate) struct MemcachedConf {
        pub(crate) target: Passed<KeyServer>,
        /// 0: flags are not looked at.
        pub(crate) gzip_flag: Setting<u64> = 0,
    }
}

settings! {
    /// The settings of `memc_…`.
    pub(crate) struct MemcConf {
        pub(crate) target: Passed<ServerSaid>,
        /// The commands that are allowed; none: all are.
        pub(crate) commands: Setting<Vec<Command>>,
    }
}

settings! {
    /// The settings of `tunnel_…`.
    pub(crate) struct TunnelConf {
        pub(crate) target: Passed<ServerSaid>,
    }
}

/// Where requests are passed to.
#[derive(Debug)]
pub(crate) enum ServerSaid {
    /// Requests go to a server that the configuration names.
    Fixed(GroupRef),
    /// Requests go to a server whose name has variables in it.
    Evaluated(Value),
}

/// `uwsgi_pass`
#[derive(Debug)]
pub(crate) struct UwsgiServer {
    /// Variables give the scheme with the server.
    pub(crate) said: ServerSaid,
    /// The name of a server that is asked over TLS (`suwsgi://`), where variables do not give it.
    pub(crate) tls_name: Option<Bytes>,
}

/// How a uwsgi server is talked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UwsgiScheme {
    Plain,
    Tls,
}

impl UwsgiScheme {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Plain => "uwsgi://",
            Self::Tls => "suwsgi://",
        }
    }

    /// The scheme before an address, in any case, and how long its text is; an address without one is asked
    /// in plain text.
    pub(crate) fn of(address: &[u8]) -> (Self, usize) {
        let begins = |scheme: &Self| {
            let start = address.get(..scheme.text().len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(scheme.text().as_bytes()))
        };
        match [Self::Plain, Self::Tls].into_iter().find(begins) {
            Some(scheme) => (scheme, scheme.text().len()),
            None => (Self::Plain, 0),
        }
    }
}

/// `memcached_pass`
#[derive(Debug)]
pub(crate) struct KeyServer {
    pub(crate) group: GroupRef,
    /// `$memcached_key`
    pub(crate) key: Value,
}

/// One `…_param`.
#[derive(Clone, Debug)]
pub(crate) struct Param {
    pub(crate) name: Bytes,
    pub(crate) value: Value,
    pub(crate) form: ParamForm,
}

/// Whether a parameter is sent without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParamForm {
    Always,
    /// `if_not_empty`
    IfNotEmpty,
}

/// The parameters of each request, computed from those of a level.
#[derive(Debug, Default)]
pub(crate) struct Params {
    pub(crate) list: Vec<Param>,
    /// Names of the client's header lines that are not passed: in lower case with underscores.
    replaced: Vec<Box<[u8]>>,
}

/// How parameters begin that are header lines of the client.
const HEADER_PREFIX: &[u8] = b"HTTP_";

impl Params {
    /// The parameters of a level, and `HTTP_HOST` (which is `host`) unless the level sets it.
    pub(crate) fn new(said: &[Param], host: &Value) -> Self {
        let name = Bytes::from_static(b"HTTP_HOST");
        let own = Param { name, value: host.clone(), form: ParamForm::IfNotEmpty };
        let has_own = said.iter().any(|param| param.name.eq_ignore_ascii_case(&own.name));
        let mut params = Self::default();
        for param in said.iter().chain((!has_own).then_some(&own)) {
            let header = param.name.strip_prefix(HEADER_PREFIX).filter(|name| !name.is_empty());
            if let Some(header) = header {
                params.replaced.push(header.to_ascii_lowercase().into());
                if param.value.as_literal() == Some(b"") {
                    continue;
                }
            }
            params.list.push(param.clone());
        }
        params
    }

    /// Whether lines of the client with this name are left out.
    pub(crate) fn replaces(&self, name: &[u8]) -> bool {
        let as_param = |byte: &u8| if *byte == b'-' { b'_' } else { byte.to_ascii_lowercase() };
        let is_it =
            |other: &[u8]| other.len() == name.len() && name.iter().map(as_param).eq(other.iter().copied());
        self.replaced.iter().any(|other| is_it(other))
    }
}

/// The parts of a path: the script, and what stands behind it (`fastcgi_split_path_info`).
pub(crate) struct SplitPath<'a> {
    pub(crate) script: &'a [u8],
    pub(crate) info: &'a [u8],
}

/// Takes the path of a request apart; `None` where the expression was given up, which the log says.
pub(crate) fn split<'a>(view: &'a View<'_, '_>, conf: &FastCgiConf) -> Option<SplitPath<'a>> {
    let path = view.request.path();
    let whole = SplitPath { script: path, info: b"" };
    let Some(regex) = &*conf.split else { return Some(whole) };
    let mut captures = Captures::default();
    match regex.exec(path, &mut captures) {
        Ok(true) => {
            let part = |group| captures.get(group).map_or(&b""[..], |range| &path[range]);
            Some(SplitPath { script: part(1), info: part(2) })
        }
        Ok(false) => Some(whole),
        Err(error) => {
            let text = error.describe(path, regex);
            view.request.log(clearway_base::log::Level::Alert, format_args!("{text}"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn param(name: &'static str, value: &'static str) -> Param {
        let value = Value::literal(Bytes::from_static(value.as_bytes()));
        Param { name: Bytes::from_static(name.as_bytes()), value, form: ParamForm::Always }
    }

    #[test]
    fn parameters_take_the_place_of_header_lines() {
        let host = Value::literal(Bytes::from_static(b"h"));
        let said = [param("A", ""), param("HTTP_ACCEPT", ""), param("HTTP_X_Y", "z"), param("HTTP_", "e")];
        let params = Params::new(&said, &host);
        let names: Vec<_> = params.list.iter().map(|param| &param.name[..]).collect();
        assert_eq!(names, [&b"A"[..], b"HTTP_X_Y", b"HTTP_", b"HTTP_HOST"]);
        let replaced = ["Accept", "x-y", "X_Y", "Host", "accept-language", "A"];
        let replaced = replaced.map(|name| params.replaces(name.as_bytes()));
        assert_eq!(replaced, [true, true, true, true, false, false]);
    }

    #[test]
    fn schemes_of_uwsgi_servers_are_found_in_any_case() {
        let cases = [
            ("uwsgi://a:1", UwsgiScheme::Plain, 8),
            ("SUwsgi://a:1", UwsgiScheme::Tls, 9),
            ("suwsgi:/a:1", UwsgiScheme::Plain, 0),
            ("a:1", UwsgiScheme::Plain, 0),
        ];
        for (address, scheme, len) in cases {
            assert_eq!(UwsgiScheme::of(address.as_bytes()), (scheme, len), "{address}");
        }
    }

    #[test]
    fn a_host_that_is_said_is_the_only_one() {
        let host = Value::literal(Bytes::from_static(b"h"));
        let params = Params::new(&[param("http_host", "mine")], &host);
        assert_eq!(params.list.len(), 1);
        assert!(!params.replaces(b"host"), "as in nginx the prefix is in upper case");
    }
}
