//! A loaded configuration: servers, locations, addresses. Built at boot or reload, immutable, shared
//! by all loops through one `Arc`; a request borrows from it.

pub(crate) mod generation;
pub(crate) mod listen;
pub mod locations;
pub mod mime;
mod name_keys;
pub mod server_names;

use std::sync::Arc;

use bytes::Bytes;
use clearway_base::log::Sink;
use clearway_h1::ChunkedEncoding;
use clearway_log::UtcOffset;
use clearway_runtime::Tag;

use crate::config::core_directives::ROOT;
use crate::config::levels::{Conf, ConfKey, Confs};
use crate::config::product::{Product, ServerTokens};
use crate::config::sending::Sending;
use crate::config::setting::Setting;
use crate::output::HeaderFilter;
use crate::phases::PhaseList;
use crate::phases::access::LimitExcept;
use crate::snapshot::listen::Socket;
use crate::snapshot::mime::{DEFAULT_TYPE, Types};
use crate::variables::{Value, Variables};
use clearway_message::uri::MergeSlashes;

/// Number of a server within a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerId(pub(crate) u32);

/// Number of a location within a snapshot. Each `http` and `server` block has one too, which holds
/// what applies where no location matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocationId(pub(crate) u32);

/// A loaded configuration.
pub struct Snapshot {
    pub(crate) servers: Box<[Server]>,
    pub(crate) locations: Box<[Location]>,
    pub(crate) sockets: Box<[Socket]>,
    pub(crate) variables: Variables,
    pub(crate) main: Confs,
    pub(crate) product: Product,
    pub(crate) hostname: Bytes,
    pub(crate) utc_offset: UtcOffset,
    /// Where relative paths of files begin; ends in a slash.
    pub(crate) prefix: Bytes,
}

impl Snapshot {
    /// What to listen on.
    pub fn sockets(&self) -> &[Socket] {
        &self.sockets
    }

    /// A module's settings for all of `http`.
    pub fn conf<T: Conf>(&self, key: &ConfKey<T>) -> &T {
        self.main.of(key)
    }

    /// The name of the location and the step of the work that a task means by its tag, where it cannot say so
    /// itself any more. Looks at all locations: not to be called on a loop.
    pub fn tagged(&self, tag: Tag) -> Option<(&[u8], &'static str)> {
        self.locations
            .iter()
            .find_map(|location| Some((location.name(), location.phases.tagged(tag)?.step())))
    }

    pub(crate) fn server(&self, id: ServerId) -> &Server {
        &self.servers[id.0 as usize]
    }

    pub(crate) fn location(&self, id: LocationId) -> &Location {
        &self.locations[id.0 as usize]
    }
}

/// A `server` block.
pub struct Server {
    /// First `server_name`, empty if there is none.
    pub(crate) name: Bytes,
    /// What applies where no location matches.
    pub(crate) base: LocationId,
    pub(crate) tree: locations::Level<LocationId>,
    /// Of the servers that say nothing of their own, one for all.
    pub(crate) core: Arc<CoreServer>,
    pub(crate) confs: Confs,
}

impl Server {
    /// First `server_name`, empty if there is none (`$server_name`).
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// A module's settings for the server.
    pub fn conf<T: Conf>(&self, key: &ConfKey<T>) -> &T {
        self.confs.of(key)
    }
}

/// The engine's settings of a server.
#[derive(Clone)]
pub(crate) struct CoreServer {
    /// `client_header_timeout`, milliseconds.
    pub(crate) client_header_timeout_ms: Setting<u64>,
    /// `client_header_buffer_size`, bytes.
    pub(crate) client_header_buffer_bytes: Setting<u64>,
    /// `large_client_header_buffers`: number, bytes each.
    pub(crate) large_client_header_buffers: Setting<(u64, u64)>,
    /// `connection_pool_size`, bytes.
    pub(crate) connection_pool_bytes: Setting<u64>,
    /// `merge_slashes`.
    pub(crate) merge_slashes: Setting<MergeSlashes>,
    /// `ignore_invalid_headers`.
    pub(crate) invalid_headers: Setting<clearway_h1::InvalidHeaders>,
    /// `underscores_in_headers`.
    pub(crate) underscores: Setting<clearway_h1::Underscores>,
    /// `max_headers`: lines.
    pub(crate) max_headers: Setting<u64>,
    /// The limits of the codec that these make.
    pub(crate) options: clearway_h1::Options,
}

impl Default for CoreServer {
    fn default() -> Self {
        Self {
            client_header_timeout_ms: Setting::new(60_000),
            client_header_buffer_bytes: Setting::new(1024),
            large_client_header_buffers: Setting::new((4, 8192)),
            connection_pool_bytes: Setting::new(512),
            merge_slashes: Setting::new(MergeSlashes::On),
            invalid_headers: Setting::new(clearway_h1::InvalidHeaders::Ignore),
            underscores: Setting::new(clearway_h1::Underscores::Invalid),
            max_headers: Setting::new(1000),
            options: clearway_h1::Options::default(),
        }
    }
}

impl Conf for CoreServer {
    fn merge(&mut self, parent: &Self) {
        self.client_header_timeout_ms.merge(&parent.client_header_timeout_ms);
        self.client_header_buffer_bytes.merge(&parent.client_header_buffer_bytes);
        self.large_client_header_buffers.merge(&parent.large_client_header_buffers);
        self.connection_pool_bytes.merge(&parent.connection_pool_bytes);
        self.merge_slashes.merge(&parent.merge_slashes);
        self.invalid_headers.merge(&parent.invalid_headers);
        self.underscores.merge(&parent.underscores);
        self.max_headers.merge(&parent.max_headers);
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

/// A `location` block, or what applies in a server outside of its locations.
pub struct Location {
    /// Name or pattern.
    pub(crate) name: Bytes,
    /// The engine's settings.
    pub core: Arc<CoreLocation>,
    pub(crate) confs: Confs,
    pub(crate) phases: Arc<PhaseList>,
    pub(crate) filters: Arc<Filters>,
}

impl Location {
    /// Name or pattern, without modifier.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Where its files are.
    pub fn root(&self) -> &Root {
        &self.confs.of(&ROOT).0
    }

    /// A module's settings for the location.
    pub fn conf<T: Conf>(&self, key: &ConfKey<T>) -> &T {
        self.confs.of(key)
    }

    /// Those before the place where bodies of subrequests come in, and those behind.
    pub(crate) fn header_filters(&self) -> (&[HeaderFilter], &[HeaderFilter]) {
        self.filters.enabled.split_at(self.filters.postpone_at)
    }
}

/// The header filters that take part in a location; locations that do not differ in it share one.
pub(crate) struct Filters {
    pub(crate) enabled: Box<[HeaderFilter]>,
    /// How many of them are before the place where bodies of subrequests come in.
    pub(crate) postpone_at: usize,
}

/// Where files are.
#[derive(Clone, Debug)]
pub struct Root {
    /// `root` or `alias`.
    pub kind: RootKind,
    /// The directory (of `root` without its last slash), absolute unless it begins with a variable.
    pub path: Value,
}

/// `root` or `alias` as a setting of its own.
pub(crate) struct RootConf(pub(crate) Setting<Root>);

impl Default for RootConf {
    fn default() -> Self {
        // All of `http` has a directory, which it gets from who loads it.
        Self(Setting::new(Root { kind: RootKind::Root, path: Value::literal(Bytes::new()) }))
    }
}

impl Conf for RootConf {
    fn merge(&mut self, parent: &Self) {
        self.0.merge(&parent.0);
    }
}

/// What of the request's path is appended to a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootKind {
    /// All.
    Root,
    /// What follows the name of the location, this many bytes.
    Alias(usize),
    /// Nothing: an `alias` in a location with an expression names the file itself.
    AliasWhole,
}

/// Whether a `Location` that is a path is made absolute (`absolute_redirect`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedirectUrl {
    Absolute,
    AsGiven,
}

/// The host in it (`server_name_in_redirect`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedirectHost {
    Requested,
    ServerName,
}

/// Whether a port other than 80 is in it (`port_in_redirect`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedirectPort {
    Shown,
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

/// What an `error_page` does with the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overwrite {
    /// It stays.
    Keep,
    /// `=`: it becomes that of the answer from the page.
    FromPage,
    /// `=CODE`.
    With(u16),
}

/// One code of an `error_page`.
#[derive(Clone, Debug)]
pub(crate) struct ErrorPage {
    /// The status that it is for.
    pub(crate) code: u16,
    /// What becomes of the status.
    pub(crate) overwrite: Overwrite,
    /// Path with arguments, `@name`, or a URL.
    pub(crate) uri: Value,
}

/// Which browsers get no second request on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeepaliveDisable(u8);

impl KeepaliveDisable {
    /// No browser.
    pub(crate) const NONE: Self = Self(1);
    /// Internet Explorer up to 6, after POST.
    pub(crate) const MSIE6: Self = Self(2);
    /// Safari on macOS.
    pub(crate) const SAFARI: Self = Self(4);

    /// Both sets.
    #[must_use]
    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the sets have a browser in common.
    pub(crate) const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// `keepalive_timeout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeepaliveTimeout {
    /// How long an idle connection stays open, milliseconds; 0: no further request is served.
    pub(crate) timeout_ms: u64,
    /// What the client is told, seconds; 0: nothing.
    pub(crate) header_s: u64,
}

/// The engine's settings of a location.
#[derive(Clone)]
pub struct CoreLocation {
    /// `types`.
    pub types: Setting<Arc<Types>>,
    /// `default_type`.
    pub default_type: Setting<Bytes>,
    /// `etag`.
    pub etags: Setting<ETags>,
    pub(crate) server_tokens: Setting<ServerTokens>,
    pub(crate) redirect_url: Setting<RedirectUrl>,
    pub(crate) redirect_host: Setting<RedirectHost>,
    pub(crate) redirect_port: Setting<RedirectPort>,
    pub(crate) chunked_encoding: Setting<ChunkedEncoding>,
    /// Whether the location is for internal requests only.
    pub(crate) access: LocationAccess,
    /// Not inherited.
    pub(crate) limit_except: Option<LimitExcept>,
    /// All of them get every line.
    pub(crate) error_log: Setting<Vec<Arc<dyn Sink>>>,
    /// Whether a file that is not there is logged.
    pub(crate) log_not_found: Setting<bool>,
    pub(crate) keepalive_timeout: Setting<KeepaliveTimeout>,
    pub(crate) keepalive_min_timeout_ms: Setting<u64>,
    pub(crate) keepalive_requests: Setting<u64>,
    pub(crate) keepalive_time_ms: Setting<u64>,
    pub(crate) keepalive_disable: Setting<KeepaliveDisable>,
    /// How responses are sent.
    pub sending: Sending,
}

/// Which requests a location is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LocationAccess {
    #[default]
    All,
    /// `internal`
    Internal,
}

impl Default for CoreLocation {
    fn default() -> Self {
        Self {
            types: Setting::new(Types::usual()),
            default_type: Setting::new(Bytes::from_static(DEFAULT_TYPE.as_bytes())),
            etags: Setting::new(ETags::On),
            server_tokens: Setting::new(ServerTokens::On),
            redirect_url: Setting::new(RedirectUrl::Absolute),
            redirect_host: Setting::new(RedirectHost::Requested),
            redirect_port: Setting::new(RedirectPort::Shown),
            chunked_encoding: Setting::new(ChunkedEncoding::On),
            access: LocationAccess::All,
            limit_except: None,
            error_log: Setting::default(),
            log_not_found: Setting::new(true),
            keepalive_timeout: Setting::new(KeepaliveTimeout { timeout_ms: 75_000, header_s: 0 }),
            keepalive_min_timeout_ms: Setting::new(0),
            keepalive_requests: Setting::new(1000),
            keepalive_time_ms: Setting::new(3_600_000),
            keepalive_disable: Setting::new(KeepaliveDisable::MSIE6),
            sending: Sending::default(),
        }
    }
}

impl Conf for CoreLocation {
    fn merge(&mut self, parent: &Self) {
        self.types.merge(&parent.types);
        self.default_type.merge(&parent.default_type);
        self.etags.merge(&parent.etags);
        self.server_tokens.merge(&parent.server_tokens);
        self.redirect_url.merge(&parent.redirect_url);
        self.redirect_host.merge(&parent.redirect_host);
        self.redirect_port.merge(&parent.redirect_port);
        self.chunked_encoding.merge(&parent.chunked_encoding);
        self.error_log.merge(&parent.error_log);
        self.log_not_found.merge(&parent.log_not_found);
        self.keepalive_timeout.merge(&parent.keepalive_timeout);
        self.keepalive_min_timeout_ms.merge(&parent.keepalive_min_timeout_ms);
        self.keepalive_requests.merge(&parent.keepalive_requests);
        self.keepalive_time_ms.merge(&parent.keepalive_time_ms);
        self.keepalive_disable.merge(&parent.keepalive_disable);
        self.sending.merge(&parent.sending);
    }
}

impl CoreLocation {
    pub(crate) fn keepalive_header_s(&self) -> Option<u64> {
        Some(self.keepalive_timeout.header_s).filter(|&seconds| seconds > 0)
    }
}
