//! The settings of HTTP/2, as connections and requests need them: written by the module that has the
//! directives. Nothing in here waits.

use clearway_base::log::Level;
use clearway_h1::{InvalidHeaders, Options, Underscores};
use clearway_h2::connection::{Connection, Failure, Limits};
use clearway_h2::frame::Rest;
use clearway_h2::request::{HTTP_2, HeadFault, HeadLimits, HeadReader, Underscores as Names, Unusual};
use clearway_site::{ConfKey, CoreLocation, Protocols, Server, Setting, settings};

use crate::config::body_directives::BODY_CONF;
use crate::generation::Setup;
use crate::link::parts::Parts;
use crate::phases::protocol::Lingering;
use crate::request::Request;
use crate::tables::Module;

/// The engine's part of the tables: all locations have settings, whatever modules there are.
pub(crate) static HTTP2: Module =
    Module { name: "http2_settings", confs: &[&HTTP2_MAIN, &HTTP2_SERVER, &HTTP2_LOCATION], ..Module::EMPTY };

/// Settings of `http`.
pub static HTTP2_MAIN: ConfKey<Http2Main> = ConfKey::new(clearway_site::Level::Main);
/// Settings of each server.
pub static HTTP2_SERVER: ConfKey<Http2Server> = ConfKey::new(clearway_site::Level::Server);
/// Settings of each location.
pub static HTTP2_LOCATION: ConfKey<Http2Location> = ConfKey::new(clearway_site::Level::Location);

settings! {
    /// See [`HTTP2_MAIN`].
    pub struct Http2Main {
        /// `http2_recv_buffer_size`, bytes.
        pub receive_bytes: Setting<u64> = 256 * 1024_u64,
    }
}

settings! {
    /// See [`HTTP2_SERVER`].
    pub struct Http2Server {
        /// `http2`
        pub is_enabled: Setting<bool>,
        /// `http2_max_concurrent_streams`
        pub streams: Setting<u64> = 128_u64,
        /// `http2_body_preread_size`, bytes.
        pub window_bytes: Setting<u64> = 65_536_u64,
        /// `http2_pool_size`, which means nothing.
        pub pool_bytes: Setting<u64>,
        /// `http2_streams_index_size`, which means nothing.
        pub index_size: Setting<u64>,
    }
}

settings! {
    /// See [`HTTP2_LOCATION`].
    pub struct Http2Location {
        /// `http2_chunk_size`, bytes.
        pub chunk_bytes: Setting<u64> = 8 * 1024_u64,
    }
}

/// The parameters with which a connection begins.
#[derive(Clone, Copy, Debug)]
pub struct Http2 {
    /// The limits for the client.
    pub limits: Limits,
    /// Bytes read at once.
    pub receive_bytes: usize,
}

impl Setup {
    /// Whether connections without TLS may begin as HTTP/2 does, or those with TLS may agree on it, whose
    /// client has asked for a host of `server`.
    #[must_use]
    pub fn speaks_http2(&self, server: &Server) -> bool {
        *server.conf(&HTTP2_SERVER).is_enabled || self.address().protocols.has(Protocols::HTTP2)
    }

    /// The server of a connection: that of the host which was asked for in the handshake, or the default one.
    #[must_use]
    pub fn server_of(&self, host: Option<&[u8]>) -> &Server {
        let found = host.and_then(|host| self.find_host(host));
        self.snapshot().server(found.unwrap_or(self.address().default_server))
    }

    /// Its settings for HTTP/2.
    #[must_use]
    pub fn http2(&self, server: &Server) -> Http2 {
        let conf = server.conf(&HTTP2_SERVER);
        let receive_bytes = *self.snapshot().conf(&HTTP2_MAIN).receive_bytes;
        Http2 {
            limits: Limits {
                streams: u32::try_from(*conf.streams).unwrap_or(u32::MAX),
                window_bytes: u32::try_from(*conf.window_bytes).unwrap_or(u32::MAX),
                head: head_limits(&server.core.options),
            },
            receive_bytes: usize::try_from(receive_bytes).unwrap_or(usize::MAX),
        }
    }

    /// The settings that hold while no location is known.
    #[must_use]
    pub fn location_of(&self, server: &Server) -> &CoreLocation {
        &self.snapshot().location(server.base).core
    }

    /// How a connection ends that has no request.
    #[must_use]
    pub fn lingering(&self, server: &Server) -> Lingering {
        let conf = self.snapshot().location(server.base).conf(&BODY_CONF);
        Lingering {
            close: *conf.lingering_close,
            time_ms: *conf.lingering_time_ms,
            timeout_ms: *conf.lingering_timeout_ms,
        }
    }
}

fn head_limits(options: &Options) -> HeadLimits {
    let size = options.large_client_header_buffer_size;
    HeadLimits {
        field_bytes: size,
        head_bytes: size.saturating_mul(options.large_client_header_buffers),
        fields: options.max_headers,
        unusual: match options.invalid_headers {
            InvalidHeaders::Ignore => Unusual::Skipped,
            InvalidHeaders::Pass => Unusual::Kept,
        },
        underscores: match options.underscores {
            Underscores::Invalid => Names::Unusual,
            Underscores::Valid => Names::Usual,
        },
    }
}

impl Parts {
    /// Takes the head of the request that has begun last on a connection; what is wrong with it, if anything
    /// is.
    ///
    /// # Errors
    /// The connection has to end.
    pub fn take_head(
        &mut self,
        connection: &mut Connection,
        reader: &mut HeadReader,
        rest: Rest,
    ) -> Result<Option<HeadFault>, Failure> {
        self.input.clear();
        let (fault, block_bytes) = connection.read_head(reader, rest, (&mut self.input, &mut self.head))?;
        self.parser.complete(self.input.len(), block_bytes);
        Ok(fault)
    }
}

impl Request<'_> {
    /// Whether it has come over HTTP/2.
    #[inline]
    #[must_use]
    pub fn is_http2(&self) -> bool {
        self.version() == HTTP_2
    }

    /// Looks whether the server of the request speaks the protocol that its connection has.
    ///
    /// # Errors
    /// It does not: the status to answer with.
    pub(crate) fn check_http2(&self) -> Result<(), u16> {
        if !self.is_http2() || self.setup.speaks_http2(self.server) {
            return Ok(());
        }
        let message =
            "client attempted to request the server name for which the negotiated protocol is disabled";
        self.log(Level::Info, format_args!("{message}"));
        Err(421)
    }
}
