//! Name servers as a location says them (`resolver`), for what asks them without a request: the module that
//! has the directive puts here what asks.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use clearway_runtime::LoopRef;
use clearway_site::{ConfKey, Level, Setting, settings};

/// The name servers of locations.
pub static NAME_SERVERS: ConfKey<NameServersConf> = ConfKey::new(Level::Location);

settings! {
    /// Name servers of a location.
    pub struct NameServersConf {
        /// The name servers that are asked.
        pub asked: Setting<Option<Arc<dyn NameServers>>>,
        /// How long they may take.
        pub timeout: Setting<Duration> = Duration::from_secs(30),
    }
}

impl NameServersConf {
    /// The name servers, and how long they are asked.
    #[must_use]
    pub fn asked(&self) -> AskedServers {
        AskedServers { servers: Option::clone(&self.asked), timeout: *self.timeout }
    }
}

/// The name servers of a location.
#[derive(Clone)]
pub struct AskedServers {
    /// The name servers; `None` if the configuration names none.
    pub servers: Option<Arc<dyn NameServers>>,
    /// How long they may take.
    pub timeout: Duration,
}

/// Finds addresses of names.
pub trait NameServers: Send + Sync {
    /// The addresses of a name, one at least. To be polled by a task of `home`.
    fn resolve(&self, home: LoopRef, name: &[u8], timeout: Duration) -> Resolving;
}

/// The future of a question.
pub type Resolving = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, Unresolved>> + Send>>;

/// Why there are no addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// No name server can be asked.
    NoServers,
    /// The failure, as nginx words it: `3: Host not found`.
    Failed(String),
}
