//! The typed configuration of modules at the levels main, server and location. A module declares one
//! static `ConfKey` per type; the key finds the type's slot by number, so a request reads its
//! configuration with an index and no look-up. Filled and merged at boot, immutable afterwards.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where a module's configuration lives; one object exists per block of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// One for all of `http`.
    Main,
    /// One for `http` and one for each `server`.
    Server,
    /// One for `http`, one for each `server` and one for each `location`.
    Location,
}

/// What a module is told at one level.
pub trait Conf: Default + Send + Sync + 'static {
    /// Takes from the enclosing level what this one leaves open. Enclosing levels are merged first.
    fn merge(&mut self, parent: &Self);

    /// `merge` for the block of an `if`, which also has the handler of the location around it unless it
    /// has one of its own.
    fn merge_if(&mut self, parent: &Self) {
        self.merge(parent);
    }
}

/// What a level is to the one around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nesting {
    /// A level of its own.
    Level,
    /// The block of an `if` in it.
    If,
}

/// Names a module's configuration type at a level. Always a `static`.
pub struct ConfKey<T> {
    level: Level,
    index: OnceLock<u32>,
    conf: PhantomData<fn() -> T>,
}

/// Slots are numbered over the whole process, so that any set of modules can share a configuration.
static NEXT_INDEX: AtomicU32 = AtomicU32::new(0);

impl<T: Conf> ConfKey<T> {
    /// Declares a type at a level.
    pub const fn new(level: Level) -> Self {
        Self { level, index: OnceLock::new(), conf: PhantomData }
    }

    fn index(&self) -> usize {
        *self.index.get_or_init(|| NEXT_INDEX.fetch_add(1, Ordering::Relaxed)) as usize
    }
}

/// What the loader needs to know of a key without its type.
pub trait ConfSlot: Sync {
    /// The level that the key was declared for.
    fn level(&self) -> Level;
    /// Puts an object with its defaults into a level's slot.
    fn create(&self, confs: &mut Confs);
    /// Completes the object of one level from that of the enclosing one.
    fn merge(&self, confs: &mut Confs, parent: &Confs, nesting: Nesting);
}

impl<T: Conf> ConfSlot for ConfKey<T> {
    fn level(&self) -> Level {
        self.level
    }

    fn create(&self, confs: &mut Confs) {
        let index = self.index();
        if confs.slots.len() <= index {
            confs.slots.resize_with(index + 1, || None);
        }
        confs.slots[index] = Some(Box::new(T::default()));
    }

    fn merge(&self, confs: &mut Confs, parent: &Confs, nesting: Nesting) {
        let parent = parent.find(self).expect("the enclosing level was created with the same modules");
        let conf = confs.find_mut(self).expect("created");
        match nesting {
            Nesting::Level => conf.merge(parent),
            Nesting::If => conf.merge_if(parent),
        }
    }
}

/// The objects of all modules at one place of one level.
#[derive(Default)]
pub struct Confs {
    slots: Vec<Option<Box<dyn Any + Send + Sync>>>,
}

impl Confs {
    /// Objects with defaults for those modules that have something at this level.
    pub fn create(level: Level, slots: &[&'static dyn ConfSlot]) -> Self {
        let mut confs = Self::default();
        for slot in slots.iter().filter(|slot| slot.level() == level) {
            slot.create(&mut confs);
        }
        confs
    }

    /// Completes every object from the enclosing place of the same level.
    pub fn merge(&mut self, parent: &Self, level: Level, slots: &[&'static dyn ConfSlot]) {
        self.merge_slots(parent, level, slots, Nesting::Level);
    }

    /// The same for the block of an `if` in a location.
    pub(crate) fn merge_if(&mut self, parent: &Self, slots: &[&'static dyn ConfSlot]) {
        self.merge_slots(parent, Level::Location, slots, Nesting::If);
    }

    fn merge_slots(
        &mut self,
        parent: &Self,
        level: Level,
        slots: &[&'static dyn ConfSlot],
        nesting: Nesting,
    ) {
        for slot in slots.iter().filter(|slot| slot.level() == level) {
            slot.merge(self, parent, nesting);
        }
    }

    /// The module's object here.
    ///
    /// # Panics
    /// If the module is not among those the configuration was loaded with: a key is used only by the
    /// module that declares it.
    pub fn of<T: Conf>(&self, key: &ConfKey<T>) -> &T {
        self.find(key).expect("a module reads the configuration that it declares")
    }

    /// The module's object here, to be written by its directives.
    ///
    /// # Panics
    /// As `of`.
    pub fn of_mut<T: Conf>(&mut self, key: &ConfKey<T>) -> &mut T {
        self.find_mut(key).expect("a module writes the configuration that it declares")
    }

    fn find<T: Conf>(&self, key: &ConfKey<T>) -> Option<&T> {
        self.slots.get(key.index())?.as_ref()?.downcast_ref()
    }

    fn find_mut<T: Conf>(&mut self, key: &ConfKey<T>) -> Option<&mut T> {
        self.slots.get_mut(key.index())?.as_mut()?.downcast_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::Setting;

    #[derive(Default)]
    struct Limits {
        size_bytes: Setting<u64>,
    }

    impl Conf for Limits {
        fn merge(&mut self, parent: &Self) {
            self.size_bytes.merge(&parent.size_bytes);
        }
    }

    #[derive(Default)]
    struct Other(Setting<bool>);

    impl Conf for Other {
        fn merge(&mut self, parent: &Self) {
            self.0.merge(&parent.0);
        }
    }

    static LIMITS: ConfKey<Limits> = ConfKey::new(Level::Location);
    static OTHER: ConfKey<Other> = ConfKey::new(Level::Server);
    const SLOTS: &[&dyn ConfSlot] = &[&LIMITS, &OTHER];

    #[test]
    fn each_level_has_the_types_declared_for_it_and_merges_down() {
        let mut http = Confs::create(Level::Location, SLOTS);
        let mut location = Confs::create(Level::Location, SLOTS);
        http.of_mut(&LIMITS).size_bytes.set(7);
        location.merge(&http, Level::Location, SLOTS);
        assert_eq!(*location.of(&LIMITS).size_bytes, 7);
        assert!(location.find(&OTHER).is_none());
        assert!(!*Confs::create(Level::Server, SLOTS).of(&OTHER).0);
    }
}
