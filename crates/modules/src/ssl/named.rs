//! Certificates whose names have variables in them (`ssl_certificate $ssl_server_name.pem`): the names are
//! worked out when a client has said hello, and files that are not known yet are read by a pool.

use std::sync::Arc;

use clearway_http::{Value, View};
use clearway_offload::{At, Blocking, Pool};
use clearway_tls::Pair;
use clearway_tls::files::{PairName, SystemFiles, full_name, place_of};
use clearway_tls::objects::{self, ObjectCache};

/// The certificates of a server, by names with variables.
pub(crate) struct Named {
    /// `ssl_certificate` and `ssl_certificate_key`.
    pub(crate) values: Vec<(Value, Value)>,
    pub(crate) cache: Option<Arc<ObjectCache>>,
    pub(crate) passwords: Arc<Vec<Vec<u8>>>,
    /// Where relative names begin.
    pub(crate) prefix: Vec<u8>,
}

/// A pair and the names that it was found under.
pub(crate) struct NamedPair {
    pub(crate) name: PairName,
    pub(crate) pair: Pair,
}

/// The result of a look.
pub(crate) enum Reading {
    /// All pairs are known.
    Known(Vec<NamedPair>),
    /// This pool has to read the pairs.
    Needed(Arc<Pool>, Unread),
    /// The certificates cannot be loaded.
    None(String),
}

/// Pairs that are to be read.
pub(crate) struct Unread {
    names: Vec<PairName>,
    cache: Option<Arc<ObjectCache>>,
    passwords: Arc<Vec<Vec<u8>>>,
    now_s: u64,
}

impl Named {
    /// Works the names out and looks for what they name.
    pub(crate) fn look_up(&self, view: &View<'_, '_>) -> Reading {
        let full = |value: &Value| {
            let mut name = Vec::new();
            value.append(view, &mut name);
            full_name(&self.prefix, &name)
        };
        let pair_name =
            |(certificate, key): &(Value, Value)| PairName { certificate: full(certificate), key: full(key) };
        let names: Vec<PairName> = self.values.iter().map(pair_name).collect();
        let now_s = view.request.home().now_ms() / 1000;
        if let Some(known) = self.cache.as_ref().and_then(|cache| find(cache, &names, now_s)) {
            return Reading::Known(known);
        }
        let (cache, passwords) = (Option::clone(&self.cache), Arc::clone(&self.passwords));
        match view.request.file_pool() {
            Some(pool) => Reading::Needed(pool, Unread { names, cache, passwords, now_s }),
            None => Reading::None("no thread pool for certificates".to_owned()),
        }
    }
}

fn find(cache: &ObjectCache, names: &[PairName], now_s: u64) -> Option<Vec<NamedPair>> {
    let found = |name: &PairName| {
        let pair = cache.find(name.names(), now_s)?;
        Some(NamedPair { name: name.clone(), pair })
    };
    names.iter().map(found).collect()
}

impl Unread {
    /// Where the job that reads them goes.
    pub(crate) fn place(&self) -> At {
        place_of(self.names.iter().flat_map(|name| [&name.certificate[..], &name.key]))
    }

    /// Reads them.
    ///
    /// # Errors
    /// What nginx says of the first one that cannot be loaded.
    pub(crate) fn read(self, witness: &Blocking) -> Result<Vec<NamedPair>, String> {
        let Self { names, cache, passwords, now_s } = self;
        let files = SystemFiles::new(witness);
        let read = |name: PairName| {
            let pair = objects::load_pair(cache.as_deref(), name.names(), &passwords, now_s, &files)?;
            Ok(NamedPair { name, pair })
        };
        names.into_iter().map(read).collect()
    }
}
