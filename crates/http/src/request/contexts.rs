//! What modules keep of a request, each its own. Owned by the request.

use std::any::Any;
use std::sync::Arc;

/// What modules keep of a request; most requests have none.
#[derive(Default)]
pub(super) struct Contexts(Option<Box<Kept>>);

#[derive(Clone, Default)]
struct Kept(Vec<Context>);

/// A module's own state in a request.
#[derive(Clone)]
struct Context {
    state: Arc<dyn Any + Send + Sync>,
    lasts: Lasts,
}

/// How long a module's state is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lasts {
    UntilRedirect,
    ToTheEnd,
}

impl Contexts {
    /// What a subrequest knows of it from the beginning.
    pub(super) fn of_subrequest(&self) -> Self {
        let mut contexts = Self(self.0.clone());
        contexts.leave();
        contexts
    }

    /// Forgets what does not outlast an internal redirect.
    pub(super) fn leave(&mut self) {
        if let Some(contexts) = &mut self.0 {
            contexts.0.retain(|context| context.lasts == Lasts::ToTheEnd);
        }
    }

    pub(super) fn find<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.as_ref()?.0.iter().find_map(|context| context.state.downcast_ref())
    }

    pub(super) fn put<T: Any + Send + Sync>(&mut self, context: T, lasts: Lasts) {
        let contexts = &mut self.0.get_or_insert_default().0;
        contexts.retain(|other| !other.state.is::<T>());
        contexts.push(Context { state: Arc::new(context), lasts });
    }
}
