//! The state that a request and its subrequests share: the head as it was received, variables, and what
//! modules keep for all of them. Made with the first subrequest, so that a request without one pays nothing.
//! They are all one task, which evaluates nothing while it is in one of the cells in here.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use clearway_message::Text;
use clearway_runtime::{Entered, TaskCell};
use clearway_site::VariableId;
use smallvec::SmallVec;

use crate::link::parts::Parts;
use crate::request::contexts::CommonContexts;
use crate::request::strands::Strands;
use crate::request::subrequest::SubPart;

/// Values of variables by number; `None` is one that was found to have no value.
pub(crate) type VariableValues<'c> = SmallVec<[(VariableId, Option<Text<'c>>); 4]>;

/// The state that a request and its subrequests share.
pub(crate) struct Tree<'c> {
    /// A copy of the head; what is to be sent is nobody's.
    parts: Parts,
    variables: TaskCell<VariableValues<'c>>,
    contexts: TaskCell<CommonContexts>,
    /// The number of the last subrequest.
    last_number: AtomicU32,
    /// Subrequests that have begun and whose output has not left them.
    live: AtomicU32,
    /// Subrequests that were asked for and have not ended.
    outstanding: AtomicU32,
}

impl<'c> Tree<'c> {
    pub(crate) fn new(parts: Parts, variables: VariableValues<'c>) -> Arc<Self> {
        Arc::new(Self {
            parts,
            variables: TaskCell::new(variables),
            contexts: TaskCell::default(),
            last_number: AtomicU32::new(0),
            live: AtomicU32::new(0),
            outstanding: AtomicU32::new(0),
        })
    }

    /// How often the head was changed when it was copied.
    pub(crate) fn head_changes(&self) -> u32 {
        self.parts.head_changes
    }

    pub(crate) fn variables(&self) -> Entered<'_, VariableValues<'c>> {
        self.variables.enter()
    }

    /// The state of modules for all of them.
    pub(crate) fn contexts(&self) -> Entered<'_, CommonContexts> {
        self.contexts.enter()
    }

    /// The number of a subrequest that begins, from 1.
    pub(crate) fn next_number(&self) -> u32 {
        let last = self.last_number.fetch_add(1, Ordering::Relaxed);
        debug_assert!(last < u32::MAX, "numbers of subrequests are not used again");
        last + 1
    }

    /// Counts one more subrequest that has begun, until the result is dropped; `None` where there are
    /// `most` of them.
    pub(crate) fn begin(self: &Arc<Self>, most: u32) -> Option<Live<'c>> {
        (self.live.load(Ordering::Relaxed) < most).then(|| {
            self.live.fetch_add(1, Ordering::Relaxed);
            Live(Arc::clone(self))
        })
    }

    /// Counts one more subrequest that is asked for, until the result is dropped; `None` where there are
    /// `most` of them.
    pub(crate) fn ask(self: &Arc<Self>, most: u32) -> Option<Asked<'c>> {
        (self.outstanding.load(Ordering::Relaxed) < most).then(|| {
            self.outstanding.fetch_add(1, Ordering::Relaxed);
            Asked(Arc::clone(self))
        })
    }
}

/// A subrequest that has begun.
pub(crate) struct Live<'c>(Arc<Tree<'c>>);

impl Drop for Live<'_> {
    fn drop(&mut self) {
        let before = self.0.live.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "each subrequest that has begun leaves once");
    }
}

/// A subrequest that was asked for.
pub(crate) struct Asked<'c>(Arc<Tree<'c>>);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let before = self.0.outstanding.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "each subrequest ends once");
    }
}

/// The head of a subrequest.
pub(crate) enum OwnHead {
    /// The subrequest has none: it says what all of them say.
    Common,
    /// It has what all of them have until it changes something.
    Unchanged,
    Copied(Box<Parts>),
}

/// The buffers of a request.
pub(crate) enum PartsRef<'c> {
    /// Its own, and what goes on beside its handlers.
    Own(&'c mut Parts, &'c Strands<'c>),
    /// The buffers of the request that this is a subrequest of.
    Shared(Box<SubPart<'c>>),
}

impl<'c> PartsRef<'c> {
    /// Its own buffers, to be changed.
    ///
    /// # Panics
    /// If it is a subrequest, which receives nothing.
    pub(crate) fn own(&mut self) -> &mut Parts {
        match self {
            Self::Own(parts, _) => parts,
            Self::Shared(_) => panic!("a subrequest receives nothing"),
        }
    }

    /// Whether the request may change its head.
    pub(crate) fn has_own_head(&self) -> bool {
        self.sub().is_none_or(|sub| !matches!(sub.head, OwnHead::Common))
    }

    /// The buffers, to change their head, if the request may.
    pub(crate) fn own_head(&mut self) -> Option<&mut Parts> {
        let parts = match self {
            Self::Own(parts, _) => &mut **parts,
            Self::Shared(sub) => {
                if let OwnHead::Unchanged = sub.head {
                    sub.head = OwnHead::Copied(Box::new(sub.tree.parts.copy_head(0)));
                }
                let OwnHead::Copied(parts) = &mut sub.head else { return None };
                parts
            }
        };
        parts.head_changes = parts.head_changes.saturating_add(1);
        Some(parts)
    }

    /// The part that makes the request a subrequest, if it is one.
    #[inline]
    pub(crate) fn sub(&self) -> Option<&SubPart<'c>> {
        match self {
            Self::Own(..) => None,
            Self::Shared(sub) => Some(sub),
        }
    }

    pub(crate) fn sub_mut(&mut self) -> Option<&mut SubPart<'c>> {
        match self {
            Self::Own(..) => None,
            Self::Shared(sub) => Some(sub),
        }
    }
}

impl Deref for PartsRef<'_> {
    type Target = Parts;

    #[inline]
    fn deref(&self) -> &Parts {
        match self {
            Self::Own(parts, _) => parts,
            Self::Shared(sub) => match &sub.head {
                OwnHead::Copied(parts) => parts,
                OwnHead::Common | OwnHead::Unchanged => &sub.tree.parts,
            },
        }
    }
}
