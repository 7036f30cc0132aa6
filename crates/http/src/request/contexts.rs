//! The state that modules keep with a request, each under a key of its own. Owned by the request; what is
//! common to a request and its subrequests stands in their tree.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

/// How long a module's state is kept, and what knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasts {
    /// Until an internal redirect; known to this request alone.
    UntilRedirect,
    /// Kept to the end; known to this request alone, so that it can always be changed.
    ToTheEnd,
    /// Kept to the end; subrequests that begin later know it, too.
    Inherited,
    /// As long as the request or one of its subrequests; all of them have the same one.
    Common,
}

/// Names what a module keeps of requests. Always a `static`.
#[derive(Debug)]
pub struct ContextKey<T> {
    lasts: Lasts,
    number: OnceLock<u32>,
    state: PhantomData<fn() -> T>,
}

/// Keys are numbered over the whole process, when they are used first.
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);

impl<T> ContextKey<T> {
    /// An empty slot for values that are kept for `lasts`.
    pub const fn new(lasts: Lasts) -> Self {
        Self { lasts, number: OnceLock::new(), state: PhantomData }
    }

    #[inline]
    fn number(&self) -> u32 {
        *self.number.get_or_init(|| NEXT_NUMBER.fetch_add(1, Ordering::Relaxed))
    }
}

/// The state of modules for a request; most requests have none.
#[derive(Clone)]
pub(super) struct Contexts<U>(Option<Box<Kept<U>>>);

#[derive(Clone)]
struct Kept<U> {
    list: SmallVec<[Context; 2]>,
    /// Says which other server is asked, where one is.
    upstream: Option<U>,
}

impl<U> Default for Contexts<U> {
    fn default() -> Self {
        Self(None)
    }
}

impl<U> Default for Kept<U> {
    fn default() -> Self {
        Self { list: SmallVec::new(), upstream: None }
    }
}

/// A module's own state in a request.
#[derive(Clone)]
struct Context {
    number: u32,
    lasts: Lasts,
    state: Arc<dyn Any + Send + Sync>,
}

impl<U: Copy> Contexts<U> {
    /// The state that a subrequest has from the beginning.
    pub(super) fn of_subrequest(&self) -> Self {
        let Some(contexts) = &self.0 else { return Self(None) };
        let inherited = contexts.list.iter().filter(|context| context.lasts == Lasts::Inherited).cloned();
        let list: SmallVec<_> = inherited.collect();
        Self((!list.is_empty()).then(|| Box::new(Kept { list, upstream: None })))
    }

    /// Forgets what does not outlast an internal redirect.
    pub(super) fn leave(&mut self) {
        if let Some(contexts) = &mut self.0 {
            contexts.list.retain(|context| context.lasts != Lasts::UntilRedirect);
        }
    }

    #[inline]
    pub(super) fn find<T: Any + Send + Sync>(&self, key: &ContextKey<T>) -> Option<&T> {
        let contexts = self.0.as_ref()?;
        let number = key.number();
        let context = contexts.list.iter().find(|context| context.number == number)?;
        let state = context.state.downcast_ref();
        debug_assert!(state.is_some(), "a key stands for one type");
        state
    }

    /// To be changed; `None` also where subrequests know it.
    pub(super) fn find_mut<T: Any + Send + Sync>(&mut self, key: &ContextKey<T>) -> Option<&mut T> {
        let contexts = self.0.as_mut()?;
        let number = key.number();
        let context = contexts.list.iter_mut().find(|context| context.number == number)?;
        Arc::get_mut(&mut context.state)?.downcast_mut()
    }

    /// Keeps `state` in place of what there was.
    pub(super) fn put<T: Any + Send + Sync>(&mut self, key: &ContextKey<T>, state: T) {
        debug_assert_ne!(key.lasts, Lasts::Common, "what is common belongs to the tree");
        let contexts = self.0.get_or_insert_default();
        let number = key.number();
        let context = Context { number, lasts: key.lasts, state: Arc::new(state) };
        match contexts.list.iter_mut().find(|context| context.number == number) {
            Some(old) => *old = context,
            None => contexts.list.push(context),
        }
    }

    /// Which server is asked, for the error log.
    pub(super) fn set_upstream(&mut self, url: U) {
        self.0.get_or_insert_default().upstream = Some(url);
    }

    pub(super) fn upstream(&self) -> Option<U> {
        self.0.as_ref()?.upstream
    }
}

/// The state that a request and its subrequests share.
#[derive(Default)]
pub(crate) struct CommonContexts(Vec<(u32, Arc<dyn Any + Send + Sync>)>);

impl CommonContexts {
    pub(super) fn find<T: Any + Send + Sync>(&self, key: &ContextKey<T>) -> Option<Arc<T>> {
        debug_assert_eq!(key.lasts, Lasts::Common, "the tree has only what is common");
        let number = key.number();
        let (_, state) = self.0.iter().find(|(other, _)| *other == number)?;
        Arc::clone(state).downcast().ok()
    }

    /// Made when it is asked for first.
    pub(super) fn get<T: Any + Default + Send + Sync>(&mut self, key: &ContextKey<T>) -> Arc<T> {
        self.find(key).unwrap_or_else(|| {
            let made = Arc::new(T::default());
            debug_assert!(self.0.iter().all(|(other, _)| *other != key.number()), "each is made once");
            self.0.push((key.number(), Arc::clone(&made) as Arc<dyn Any + Send + Sync>));
            made
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static PASSING: ContextKey<u8> = ContextKey::new(Lasts::UntilRedirect);
    static OWN: ContextKey<u8> = ContextKey::new(Lasts::ToTheEnd);
    static INHERITED: ContextKey<u8> = ContextKey::new(Lasts::Inherited);
    static COMMON: ContextKey<Vec<u8>> = ContextKey::new(Lasts::Common);

    #[test]
    fn each_lasts_as_long_as_its_key_says() {
        let mut main = Contexts::<()>::default();
        for (key, state) in [(&PASSING, 1), (&OWN, 2), (&INHERITED, 3)] {
            assert_eq!(main.find(key), None);
            main.put(key, 9);
            main.put(key, state);
        }
        let found =
            |contexts: &Contexts<()>| [&PASSING, &OWN, &INHERITED].map(|key| contexts.find(key).copied());
        assert_eq!(found(&main), [Some(1), Some(2), Some(3)]);
        assert_eq!(found(&main.of_subrequest()), [None, None, Some(3)]);
        main.leave();
        assert_eq!(found(&main), [None, Some(2), Some(3)]);
        assert!(Contexts::<()>::default().of_subrequest().0.is_none());
    }

    #[test]
    fn what_nobody_else_knows_can_be_changed() {
        let mut main = Contexts::<()>::default();
        assert!(main.find_mut(&OWN).is_none());
        main.put(&OWN, 1);
        main.put(&INHERITED, 1);
        let sub = main.of_subrequest();
        *main.find_mut(&OWN).unwrap() += 1;
        assert_eq!(main.find(&OWN), Some(&2));
        assert!(main.find_mut(&INHERITED).is_none());
        drop(sub);
        assert!(main.find_mut(&INHERITED).is_some());
    }

    #[test]
    fn what_is_common_is_made_once() {
        let mut common = CommonContexts::default();
        assert!(common.find(&COMMON).is_none());
        let made = common.get(&COMMON);
        assert!(Arc::ptr_eq(&made, &common.get(&COMMON)));
        assert!(Arc::ptr_eq(&made, &common.find(&COMMON).unwrap()));
    }
}
