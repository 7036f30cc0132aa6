//! A handshake that code runs in: what is known of it, and what the code has said so far. Owned by the run,
//! or by the request.

use std::sync::Arc;

use clearway_http::{About, Met, Wishes};
use clearway_runtime::TaskCell;
use clearway_tls::engine::Shown;
use clearway_tls::{Chain, Pair, PrivateKey};

/// A handshake that code runs in.
pub(crate) struct Shaking {
    pub(crate) about: About,
    said: TaskCell<Said>,
}

/// The wishes of the code.
struct Said {
    wishes: Wishes,
    showing: Showing,
}

impl Shaking {
    pub(crate) fn new(about: About, mut wishes: Wishes) -> Self {
        let showing = Showing { shown: std::mem::take(&mut wishes.shown), ..Showing::default() };
        Self { about, said: TaskCell::new(Said { wishes, showing }) }
    }

    /// Takes the wishes when the code is over.
    pub(crate) fn take_wishes(&self) -> Wishes {
        let mut said = self.said.enter();
        Wishes { shown: std::mem::take(&mut said.showing.shown), ..std::mem::take(&mut said.wishes) }
    }

    /// Does something with what is wished for.
    pub(crate) fn wish<R>(&self, work: impl FnOnce(&mut Wishes) -> R) -> R {
        work(&mut self.said.enter().wishes)
    }

    /// Does something with the certificates that are shown.
    pub(crate) fn show<R>(&self, work: impl FnOnce(&mut Showing) -> R) -> R {
        work(&mut self.said.enter().showing)
    }
}

/// Certificates and keys that code has said, as far as they have met.
#[derive(Default)]
pub(crate) struct Showing {
    shown: Shown,
    /// Certificates without their keys yet.
    chains: Vec<Arc<Chain>>,
    /// Keys without their certificates yet.
    keys: Vec<Arc<PrivateKey>>,
}

impl Showing {
    /// None of the configuration's certificates is shown, and none that was said before.
    pub(crate) fn clear(&mut self) {
        *self = Self { shown: Shown { is_cleared: true, pairs: Vec::new() }, ..Self::default() };
    }

    /// This is shown, with its key, which may have been said before.
    pub(crate) fn add_chain(&mut self, chain: Arc<Chain>) {
        let key = self.keys.iter().position(|key| chain.has_key(key));
        match key {
            Some(at) => {
                let key = self.keys.swap_remove(at);
                self.shown.pairs.push(Arc::new(Pair::new(chain, key)));
            }
            None => self.chains.push(chain),
        }
    }

    /// The key of a certificate that was said before, or will be.
    ///
    /// # Errors
    /// It is that of none which was said.
    pub(crate) fn add_key(&mut self, key: Arc<PrivateKey>) -> Result<(), ()> {
        let chain = self.chains.iter().rposition(|chain| chain.has_key(&key));
        match chain {
            Some(at) => {
                let chain = self.chains.swap_remove(at);
                self.shown.pairs.push(Arc::new(Pair::new(chain, key)));
                Ok(())
            }
            None if self.chains.is_empty() => {
                self.keys.push(key);
                Ok(())
            }
            None => Err(()),
        }
    }
}

/// A server that shakes hands with a request, as code knows it.
#[derive(Default)]
pub(crate) struct Meeting {
    pub(crate) met: Met,
    pub(crate) showing: Showing,
}

impl Meeting {
    pub(crate) fn new(met: Met) -> Box<Self> {
        Box::new(Self { met, showing: Showing::default() })
    }

    /// The result of the handshake, with the code's changes.
    pub(crate) fn into_met(self) -> Met {
        Met { shown: self.showing.shown, ..self.met }
    }
}
