//! Services of the crates above for a configuration while it is loaded, by type. Boot and reload.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use clearway_conf::KeptFiles;
use clearway_net::listen::HostNames;

use crate::engine::Engine;
use crate::load::{Load, path_bytes};

/// Where relative paths begin that belong to the configuration rather than to what is served: the directory
/// of its file, with a slash at its end. Among the services.
#[derive(Clone)]
pub struct ConfPrefix(pub PathBuf);

/// Things that modules ask for by type.
#[derive(Default)]
pub struct Services(Vec<Box<dyn Any + Send + Sync>>);

impl Services {
    /// Adds a thing; of one type there is one.
    #[must_use]
    pub fn with<T: Any + Send + Sync>(mut self, thing: T) -> Self {
        self.0.push(Box::new(thing));
        self
    }

    /// Leaves out the thing of this type.
    #[must_use]
    pub fn without<T: Any + Send + Sync>(mut self) -> Self {
        self.0.retain(|thing| !thing.is::<T>());
        self
    }

    /// The thing of this type.
    pub fn find<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.iter().find_map(|thing| thing.downcast_ref())
    }
}

impl<E: Engine> Load<E> {
    /// Where relative paths begin that belong to the configuration; ends in a slash.
    pub fn conf_prefix(&self) -> Vec<u8> {
        let prefix = self.environment().services.find::<ConfPrefix>().map(|ConfPrefix(prefix)| prefix);
        path_bytes(prefix.unwrap_or(&self.environment().prefix))
    }

    /// The files that directives name and that are read at load (certificates, keys).
    pub fn kept_files(&self) -> Arc<KeptFiles> {
        self.environment().services.find::<Arc<KeptFiles>>().cloned().unwrap_or_default()
    }

    /// Resolves names that the configuration has for addresses.
    pub fn resolver(&self) -> Arc<HostNames> {
        self.environment().services.find::<Arc<HostNames>>().cloned().unwrap_or_default()
    }
}
