//! The engine's own settings of servers and locations. Written by its directives at boot or reload, read by
//! requests.

use std::sync::Arc;

use bytes::Bytes;
use clearway_base::log::Sink;
use clearway_h1::{ChunkedEncoding, InvalidHeaders, Options, Underscores};
use clearway_message::Method;
use clearway_message::uri::MergeSlashes;

use crate::ids::LocationId;
use crate::levels::{ConfKey, Level};
use crate::mime::{DEFAULT_TYPE, Types};
use crate::product::ServerTokens;
use crate::sending::Sending;
use crate::setting::{Own, Setting};
use crate::settings;
use crate::variables::Value;

/// The engine's own settings of locations.
pub static CORE_CONF: ConfKey<CoreLocation> = ConfKey::new(Level::Location);

/// The engine's settings of a server.
pub static CORE_SERVER: ConfKey<CoreServer> = ConfKey::new(Level::Server);

/// A setting apart from others, as most servers and many locations have one of their own.
pub static ROOT: ConfKey<Setting<Root>> = ConfKey::new(Level::Location);

settings! {
    /// The engine's settings of a server.
    #[derive(Clone)]
    pub struct CoreServer {
        /// `client_header_timeout`, milliseconds.
        pub client_header_timeout_ms: Setting<u64> = 60_000,
        /// `client_header_buffer_size`, bytes.
        pub client_header_buffer_bytes: Setting<u64> = 1024,
        /// `large_client_header_buffers`: number, bytes each.
        pub large_client_header_buffers: Setting<(u64, u64)> = (4, 8192),
        /// `connection_pool_size`, bytes.
        pub connection_pool_bytes: Setting<u64> = 512,
        /// `merge_slashes`.
        pub merge_slashes: Setting<MergeSlashes> = MergeSlashes::On,
        /// `ignore_invalid_headers`.
        pub invalid_headers: Setting<InvalidHeaders> = InvalidHeaders::Ignore,
        /// `underscores_in_headers`.
        pub underscores: Setting<Underscores> = Underscores::Invalid,
        /// `max_headers`: lines.
        pub max_headers: Setting<u64> = 1000,
        /// Whether `CONNECT` may be asked for: some location has `tunnel_pass`.
        pub connect: Own<Connect> = Connect::Refused,
        /// The limits of the codec that these make.
        pub options: Own<Options>,
    }
    then CoreServer::limit_codec
}

/// The treatment of requests for tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connect {
    /// 405
    Refused,
    /// Requests for tunnels are routed like others.
    Allowed,
}

impl CoreServer {
    fn limit_codec(&mut self) {
        let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        let (number, size) = *self.large_client_header_buffers;
        self.options.client_header_buffer_size = bytes(*self.client_header_buffer_bytes);
        self.options.large_client_header_buffers = bytes(number);
        self.options.large_client_header_buffer_size = bytes(size);
        self.options.invalid_headers = *self.invalid_headers;
        self.options.underscores = *self.underscores;
        self.options.max_headers = bytes(*self.max_headers);
    }
}

/// Where files are.
#[derive(Clone, Debug)]
pub struct Root {
    /// `root` or `alias`.
    pub kind: RootKind,
    /// The directory (of `root` without its last slash), absolute unless it begins with a variable.
    pub path: Value,
}

impl Default for Root {
    /// The block `http` always has a directory, which it gets from its loader.
    fn default() -> Self {
        Self { kind: RootKind::Root, path: Value::literal(Bytes::new()) }
    }
}

/// The part of the request's path that is appended to a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootKind {
    /// All.
    Root,
    /// The part behind the name of the location, which has so many bytes.
    Alias(usize),
    /// Nothing: an `alias` in a location with an expression names the file itself.
    AliasWhole,
}

/// Whether a `Location` that is a path is made absolute (`absolute_redirect`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedirectUrl {
    /// A whole URL.
    Absolute,
    /// As the handler gave it.
    AsGiven,
}

/// The host in it (`server_name_in_redirect`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedirectHost {
    /// The one that the client asked for.
    Requested,
    /// The first `server_name`.
    ServerName,
}

/// Whether a port other than 80 is in it (`port_in_redirect`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedirectPort {
    /// Redirects have the port.
    Shown,
    /// Redirects do not have the port.
    Hidden,
}

/// Whether files have tags (`etag`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ETags {
    /// Made of date and size.
    On,
    /// None.
    Off,
}

/// The effect of an `error_page` on the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// The status stays.
    Keep,
    /// `=`: it becomes that of the answer from the page.
    FromPage,
    /// `=CODE`.
    With(u16),
}

/// One code of an `error_page`.
#[derive(Clone, Debug)]
pub struct ErrorPage {
    /// The status that it is for.
    pub code: u16,
    /// The effect on the status.
    pub overwrite: Overwrite,
    /// Path with arguments, `@name`, or a URL.
    pub uri: Value,
}

/// Which browsers get no second request on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepaliveDisable(u8);

impl KeepaliveDisable {
    /// No browser.
    pub const NONE: Self = Self(1);
    /// Internet Explorer up to 6, after POST.
    pub const MSIE6: Self = Self(2);
    /// Safari on macOS.
    pub const SAFARI: Self = Self(4);

    /// Both sets.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the sets have a browser in common.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// `keepalive_timeout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepaliveTimeout {
    /// How long an idle connection stays open, milliseconds; 0: no further request is served.
    pub timeout_ms: u64,
    /// The time in the header for the client, seconds; 0: no header.
    pub header_s: u64,
}

settings! {
    /// The engine's settings of a location.
    #[derive(Clone)]
    pub struct CoreLocation {
        /// `types`.
        pub types: Setting<Arc<Types>> = Types::usual(),
        /// `default_type`.
        pub default_type: Setting<Bytes> = Bytes::from_static(DEFAULT_TYPE.as_bytes()),
        /// `etag`.
        pub etags: Setting<ETags> = ETags::On,
        /// `server_tokens`.
        pub server_tokens: Setting<ServerTokens> = ServerTokens::On,
        /// `absolute_redirect`.
        pub redirect_url: Setting<RedirectUrl> = RedirectUrl::Absolute,
        /// `server_name_in_redirect`.
        pub redirect_host: Setting<RedirectHost> = RedirectHost::Requested,
        /// `port_in_redirect`.
        pub redirect_port: Setting<RedirectPort> = RedirectPort::Shown,
        /// `chunked_transfer_encoding`.
        pub chunked_encoding: Setting<ChunkedEncoding> = ChunkedEncoding::On,
        /// Whether the location is for internal requests only.
        pub access: Own<LocationAccess> = LocationAccess::All,
        /// Not inherited.
        pub limit_except: Own<Option<LimitExcept>>,
        /// The error logs; each gets every line.
        pub error_log: Setting<Vec<Arc<dyn Sink>>>,
        /// Whether a file that is not there is logged.
        pub log_not_found: Setting<bool> = true,
        /// Whether subrequests are logged.
        pub log_subrequest: Setting<bool> = false,
        /// `keepalive_timeout`.
        pub keepalive_timeout: Setting<KeepaliveTimeout> =
            KeepaliveTimeout { timeout_ms: 75_000, header_s: 0 },
        /// `keepalive_min_timeout`, milliseconds.
        pub keepalive_min_timeout_ms: Setting<u64> = 0,
        /// `keepalive_requests`.
        pub keepalive_requests: Setting<u64> = 1000,
        /// `keepalive_time`, milliseconds.
        pub keepalive_time_ms: Setting<u64> = 3_600_000,
        /// `keepalive_disable`.
        pub keepalive_disable: Setting<KeepaliveDisable> = KeepaliveDisable::MSIE6,
        /// How responses are sent.
        pub sending: Sending,
    }
}

/// How a location is written, as far as directives in it care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocationForm {
    /// No location: `http` or `server`.
    Outside,
    /// A path.
    Path,
    /// An expression.
    Regex,
    /// `@name`.
    Named,
}

/// Which requests a location is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocationAccess {
    #[default]
    /// Requests of all kinds.
    All,
    /// `internal`
    Internal,
}

impl CoreLocation {
    /// The time that the header tells a client that its connection stays open, seconds.
    pub fn keepalive_header_s(&self) -> Option<u64> {
        Some(self.keepalive_timeout.header_s).filter(|&seconds| seconds > 0)
    }
}

/// A location for methods that the one around it is not for.
#[derive(Clone, Copy, Debug)]
pub struct LimitExcept {
    /// The methods that are not limited, a bit each.
    free: u32,
    /// The location that answers instead.
    pub location: LocationId,
}

/// The bit of a method in such a set.
pub const fn method_bit(method: Method) -> u32 {
    1 << method as u32
}

impl LimitExcept {
    /// For all methods but those whose bits these are.
    pub const fn new(free: u32, location: LocationId) -> Self {
        Self { free, location }
    }

    /// Whether a request with this method is limited.
    pub const fn holds_for(self, method: Method) -> bool {
        self.free & method_bit(method) == 0
    }
}
