//! All servers and locations, as modules see them when everything is read (`Module::finish`). Boot and
//! reload.

use std::collections::HashMap;

use bytes::Bytes;
use clearway_conf::{Error, Pos};

use crate::engine::Engine;
use crate::ids::{LocationId, ServerId};
use crate::levels::{Conf, ConfKey};
use crate::listen::Protocols;
use crate::load::{Load, location_id, server_id};

impl<E: Engine> Load<E> {
    /// Shows a module's settings for every server and location, with the names of its server as they are
    /// written (one that is empty, if there are none); for `Module::finish`.
    ///
    /// # Errors
    /// What `visit` says first.
    pub fn visit_with_names<T: Conf>(
        &self,
        key: &ConfKey<T>,
        mut visit: impl FnMut(&T, &[Bytes]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let bases: HashMap<usize, usize> =
            self.servers.iter().enumerate().skip(1).map(|(server, draft)| (draft.base, server)).collect();
        let (mut server_of, no_name) = (vec![0], [Bytes::new()]);
        for (index, draft) in self.locations.iter().enumerate().skip(1) {
            let server = bases.get(&index).copied().unwrap_or_else(|| server_of[draft.parent]);
            server_of.push(server);
            let names = &self.servers[server].names;
            visit(
                self.drafts.locations.of(&draft.confs, key),
                if names.is_empty() { &no_name } else { names },
            )?;
        }
        Ok(())
    }

    /// Gives each server something of its own that is made of what it says, in the order of the
    /// configuration.
    ///
    /// # Errors
    /// What `make` says first.
    pub fn make_for_servers<T: Conf, M: Conf>(
        &mut self,
        said: &ConfKey<T>,
        made: &ConfKey<M>,
        mut make: impl FnMut(&T) -> Result<Option<M>, Error>,
    ) -> Result<(), Error> {
        for server in self.servers.iter_mut().skip(1) {
            if let Some(own) = make(self.drafts.servers.of(&server.confs, said))? {
                self.drafts.servers.put(&mut server.confs, made, own);
            }
        }
        Ok(())
    }

    /// The settings of a server.
    pub fn of_server<T: Conf>(&self, server: ServerId, key: &ConfKey<T>) -> &T {
        self.drafts.servers.of(&self.servers[server.0 as usize + 1].confs, key)
    }

    /// The server and the location that are being read; `None` outside of servers.
    pub fn place(&self) -> Option<(ServerId, LocationId)> {
        (self.server > 0).then(|| (server_id(self.server), location_id(self.location)))
    }

    /// A module's settings for a location that was read; for `Module::finish`.
    pub fn of_location<T: Conf>(&self, id: LocationId, key: &ConfKey<T>) -> &T {
        self.drafts.locations.of(&self.locations[id.0 as usize].confs, key)
    }

    /// All locations of servers, the servers themselves among them; for `Module::finish`.
    pub fn location_ids(&self) -> impl Iterator<Item = LocationId> + use<E> {
        (1..self.locations.len()).map(location_id)
    }

    /// Where a server begins.
    pub fn server_pos(&self, server: ServerId) -> Option<&Pos> {
        self.locations[self.servers[server.0 as usize + 1].base].pos.as_ref()
    }

    /// The servers of each address whose connections begin with a handshake of TLS, the default one first.
    pub fn ssl_addresses(&self) -> Vec<Vec<ServerId>> {
        self.listens.with(Protocols::SSL).collect()
    }

    /// Has connections without TLS looked at for the preface of HTTP/2, where the settings of the address's
    /// default server say so.
    pub fn note_preface<T: Conf>(&mut self, key: &ConfKey<T>, speaks: impl Fn(&T) -> bool) {
        let Self { listens, drafts, servers, .. } = self;
        listens.note_preface(|server| speaks(drafts.servers.of(&servers[server.0 as usize + 1].confs, key)));
    }

    /// All servers, in the order of the configuration.
    pub fn server_ids(&self) -> impl Iterator<Item = ServerId> + use<E> {
        (1..self.servers.len()).map(server_id)
    }
}
