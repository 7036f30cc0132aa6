//! A loaded configuration: servers, locations, addresses. Built at boot or reload, immutable, shared
//! by all loops through one `Arc`; a request borrows from it.

use std::sync::Arc;

use bytes::Bytes;
use clearway_log::{Progress, UtcOffset};
use clearway_runtime::Tag;

use crate::core::{CoreLocation, CoreServer, ROOT, Root};
use crate::engine::Engine;
use crate::ids::{LocationId, ServerId};
use crate::levels::{Conf, ConfKey, Confs};
use crate::listen::Socket;
use crate::locations;
use crate::phases::PhaseList;
use crate::product::Product;
use crate::setting::Setting;
use crate::variables::Variables;

/// A loaded configuration.
pub struct Snapshot<E: Engine> {
    pub(crate) servers: Box<[Server]>,
    pub(crate) locations: Box<[Location<E>]>,
    /// The addresses to listen on.
    pub sockets: Box<[Socket]>,
    /// The variables by their names.
    pub variables: Variables<E>,
    pub(crate) main: Confs,
    /// The name of the server.
    pub product: Product,
    /// The machine's name.
    pub hostname: Bytes,
    /// For local times.
    pub utc_offset: UtcOffset,
    /// How far logged lines are written.
    pub log_progress: Progress,
    /// Where relative paths of files begin; ends in a slash.
    pub prefix: Bytes,
}

impl<E: Engine> Snapshot<E> {
    /// The addresses to listen on.
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

    /// The server with this number.
    pub fn server(&self, id: ServerId) -> &Server {
        &self.servers[id.0 as usize]
    }

    /// The settings in `http` itself, for work that belongs to no request.
    pub fn outermost(&self) -> &Location<E> {
        &self.locations[0]
    }

    /// The location with this number.
    pub fn location(&self, id: LocationId) -> &Location<E> {
        &self.locations[id.0 as usize]
    }
}

/// A `server` block.
pub struct Server {
    /// First `server_name`, empty if there is none.
    pub name: Bytes,
    /// The location for requests that match no other one.
    pub base: LocationId,
    /// Its locations.
    pub tree: locations::Level<LocationId>,
    /// The settings that all servers without settings of their own share.
    pub core: Arc<CoreServer>,
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

/// A `location` block, or what applies in a server outside of its locations.
pub struct Location<E: Engine> {
    /// Name or pattern.
    pub name: Bytes,
    /// The engine's settings.
    pub core: Arc<CoreLocation>,
    pub(crate) confs: Confs,
    /// Its handlers.
    pub phases: Arc<PhaseList<E>>,
    pub(crate) filters: Arc<Filters<E>>,
}

impl<E: Engine> Location<E> {
    /// Name or pattern, without modifier.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Where its files are.
    pub fn root(&self) -> &Root {
        self.confs.of::<Setting<Root>>(&ROOT)
    }

    /// A module's settings for the location.
    pub fn conf<T: Conf>(&self, key: &ConfKey<T>) -> &T {
        self.confs.of(key)
    }

    /// Header filters before the place where bodies of subrequests come in, and filters behind it.
    pub fn header_filters(&self) -> (&[E::HeaderFilter], &[E::HeaderFilter]) {
        self.filters.enabled.split_at(self.filters.postpone_at)
    }
}

/// The header filters that take part in a location; locations that do not differ in it share one.
pub(crate) struct Filters<E: Engine> {
    pub(crate) enabled: Box<[E::HeaderFilter]>,
    /// How many of them are before the place where bodies of subrequests come in.
    pub(crate) postpone_at: usize,
}
