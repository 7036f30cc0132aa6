//! A handshake that code runs in: what is known of it, and what the code has said so far. Owned by the run.

use std::sync::Arc;

use clearway_http::{About, Wishes};
use clearway_runtime::TaskCell;
use clearway_tls::{Chain, Pair, PrivateKey};

/// See the file's head.
pub(crate) struct Shaking {
    pub(crate) about: About,
    said: TaskCell<Said>,
}

/// What code has said.
struct Said {
    wishes: Wishes,
    /// Certificates without their keys yet.
    chains: Vec<Arc<Chain>>,
    /// Keys without their certificates yet.
    keys: Vec<Arc<PrivateKey>>,
}

impl Shaking {
    pub(crate) fn new(about: About, wishes: Wishes) -> Self {
        Self { about, said: TaskCell::new(Said { wishes, chains: Vec::new(), keys: Vec::new() }) }
    }

    /// What is wished for, when the code is over.
    pub(crate) fn take_wishes(&self) -> Wishes {
        std::mem::take(&mut self.said.enter().wishes)
    }

    /// Does something with what is wished for.
    pub(crate) fn wish<R>(&self, work: impl FnOnce(&mut Wishes) -> R) -> R {
        work(&mut self.said.enter().wishes)
    }

    /// None of the configuration's certificates is shown, and none that was said before.
    pub(crate) fn clear(&self) {
        let mut said = self.said.enter();
        said.wishes.is_cleared = true;
        said.wishes.pairs.clear();
        said.chains.clear();
        said.keys.clear();
    }

    /// This is shown, with its key, which may have been said before.
    pub(crate) fn add_chain(&self, chain: Arc<Chain>) {
        let mut said = self.said.enter();
        let key = said.keys.iter().position(|key| chain.has_key(key));
        match key {
            Some(at) => {
                let key = said.keys.swap_remove(at);
                said.wishes.pairs.push(Arc::new(Pair::new(chain, key)));
            }
            None => said.chains.push(chain),
        }
    }

    /// The key of a certificate that was said before, or will be.
    ///
    /// # Errors
    /// It is that of none which was said.
    pub(crate) fn add_key(&self, key: Arc<PrivateKey>) -> Result<(), ()> {
        let mut said = self.said.enter();
        let chain = said.chains.iter().rposition(|chain| chain.has_key(&key));
        match chain {
            Some(at) => {
                let chain = said.chains.swap_remove(at);
                said.wishes.pairs.push(Arc::new(Pair::new(chain, key)));
                Ok(())
            }
            None if said.chains.is_empty() => {
                said.keys.push(key);
                Ok(())
            }
            None => Err(()),
        }
    }
}
