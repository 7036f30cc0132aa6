//! The typed configuration of modules at the levels main, server and location. A module declares one
//! static `ConfKey` per type; the key finds the type's slot by number, so a request reads its
//! configuration with an index and no look-up. Filled and merged at boot, immutable afterwards.

use std::any::Any;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// Slots are numbered over the whole process, for each level, so that any set of modules can share a
/// configuration.
static NEXT_INDEX: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];

impl<T: Conf> ConfKey<T> {
    /// Declares a type at a level.
    pub const fn new(level: Level) -> Self {
        Self { level, index: OnceLock::new(), conf: PhantomData }
    }

    fn index(&self) -> usize {
        let next = &NEXT_INDEX[self.level as usize];
        *self.index.get_or_init(|| next.fetch_add(1, Ordering::Relaxed)) as usize
    }
}

/// A module's object, whatever its type.
type Object = dyn Any + Send + Sync;

/// What the loader needs to know of a key without its type.
pub trait ConfSlot: Sync {
    /// The level that the key was declared for.
    fn level(&self) -> Level;
    /// Its number among those of its level.
    fn place(&self) -> usize;
    /// An object with its defaults.
    fn create(&self) -> Box<Object>;
    /// Completes the object of one level from that of the enclosing one.
    fn merge(&self, object: &mut Object, parent: &Object, nesting: Nesting);
}

impl<T: Conf> ConfSlot for ConfKey<T> {
    fn level(&self) -> Level {
        self.level
    }

    fn place(&self) -> usize {
        self.index()
    }

    fn create(&self) -> Box<Object> {
        Box::new(T::default())
    }

    fn merge(&self, object: &mut Object, parent: &Object, nesting: Nesting) {
        let object: &mut T = object.downcast_mut().expect("of the slot's type");
        let parent = parent.downcast_ref().expect("of the slot's type");
        match nesting {
            Nesting::Level => object.merge(parent),
            Nesting::If => object.merge_if(parent),
        }
    }
}

/// Number of an object within its column.
type ObjectId = u32;

/// The objects of all places of one level while a configuration is loaded. A place has an object of its
/// own for each type that a directive there has written to; what it has not written is made once for all
/// places that are in the same position. Of ten thousand servers most have little to say of their own.
pub(crate) struct Drafts {
    columns: Vec<Column>,
}

/// The objects of one type.
struct Column {
    slot: &'static dyn ConfSlot,
    objects: Vec<Box<Object>>,
    /// What a place has that leaves all to the one around it, by the object of that.
    inherited: HashMap<(ObjectId, Nesting), ObjectId>,
}

/// Which objects one place has: for each type the number of its object.
#[derive(Default)]
pub(crate) struct DraftConfs(Vec<Option<ObjectId>>);

impl Drafts {
    /// For the modules that have something at this level.
    pub(crate) fn new(level: Level, slots: &[&'static dyn ConfSlot]) -> Self {
        let mut slots: Vec<_> = slots.iter().filter(|slot| slot.level() == level).collect();
        slots.sort_by_key(|slot| slot.place());
        let column = |slot: &&'static dyn ConfSlot| Column {
            slot: *slot,
            objects: Vec::new(),
            inherited: HashMap::new(),
        };
        Self { columns: slots.into_iter().map(column).collect() }
    }

    /// The module's object at a place, to be written by its directives.
    pub(crate) fn of_mut<T: Conf>(&mut self, confs: &mut DraftConfs, key: &ConfKey<T>) -> &mut T {
        let at = self.column_of(key);
        confs.0.resize(self.columns.len(), None);
        let objects = &mut self.columns[at].objects;
        let id = *confs.0[at].get_or_insert_with(|| {
            objects.push(Box::new(T::default()));
            object_id(objects.len() - 1)
        });
        objects[id as usize].downcast_mut().expect("of the key's type")
    }

    /// Completes what a place has, or has not, from what the enclosing one has. That was completed before.
    pub(crate) fn merge(&mut self, confs: &mut DraftConfs, parent: &DraftConfs, nesting: Nesting) {
        confs.0.resize(self.columns.len(), None);
        for ((own, parent), column) in confs.0.iter_mut().zip(&parent.0).zip(&mut self.columns) {
            let parent = parent.expect("the enclosing place is complete");
            *own = Some(match *own {
                Some(own) => column.complete(own, parent, nesting),
                None => column.inherit(parent, nesting),
            });
        }
    }

    /// Completes the outermost place, which has defaults where nothing was written.
    pub(crate) fn complete_outermost(&mut self, confs: &mut DraftConfs) {
        confs.0.resize(self.columns.len(), None);
        for (own, column) in confs.0.iter_mut().zip(&mut self.columns) {
            own.get_or_insert_with(|| column.add());
        }
    }

    /// All objects of a type but that of one place; several places may share one.
    pub(crate) fn all_but<T: Conf>(
        &mut self,
        confs: &DraftConfs,
        key: &ConfKey<T>,
    ) -> impl Iterator<Item = &mut T> {
        let at = self.column_of(key);
        let left_out = confs.0.get(at).copied().flatten();
        let objects = self.columns[at].objects.iter_mut().zip(0..);
        let objects = objects.filter(move |(_, id)| Some(*id) != left_out);
        objects.map(|(object, _)| object.downcast_mut().expect("of the key's type"))
    }

    /// The module's object at a place that is complete.
    pub(crate) fn of<T: Conf>(&self, confs: &DraftConfs, key: &ConfKey<T>) -> &T {
        let at = self.column_of(key);
        let id = confs.0[at].expect("the place is complete");
        self.columns[at].objects[id as usize].downcast_ref().expect("of the key's type")
    }

    fn column_of<T: Conf>(&self, key: &ConfKey<T>) -> usize {
        let place = key.index();
        let found = self.columns.binary_search_by_key(&place, |column| column.slot.place());
        found.expect("a module uses the configuration that it declares")
    }

    /// The end: what `Confs` are made from.
    pub(crate) fn finish(self) -> FinishedDrafts {
        let places = self.columns.iter().map(|column| column.slot.place()).collect();
        let objects = self.columns.into_iter();
        let objects = objects.map(|column| column.objects.into_iter().map(Arc::from).collect());
        FinishedDrafts { places, objects: objects.collect() }
    }
}

impl Column {
    fn add(&mut self) -> ObjectId {
        self.objects.push(self.slot.create());
        object_id(self.objects.len() - 1)
    }

    fn complete(&mut self, own: ObjectId, parent: ObjectId, nesting: Nesting) -> ObjectId {
        let (own_at, parent_at) = (own as usize, parent as usize);
        let [own_object, parent_object] =
            self.objects.get_disjoint_mut([own_at, parent_at]).expect("a place is not inside itself");
        self.slot.merge(&mut **own_object, &**parent_object, nesting);
        own
    }

    fn inherit(&mut self, parent: ObjectId, nesting: Nesting) -> ObjectId {
        if let Some(&id) = self.inherited.get(&(parent, nesting)) {
            return id;
        }
        let id = self.add();
        self.complete(id, parent, nesting);
        self.inherited.insert((parent, nesting), id);
        id
    }
}

fn object_id(index: usize) -> ObjectId {
    ObjectId::try_from(index).expect("a configuration is far smaller than 4 GiB")
}

/// The objects of all places, complete.
pub(crate) struct FinishedDrafts {
    places: Vec<usize>,
    objects: Vec<Vec<Arc<Object>>>,
}

impl FinishedDrafts {
    /// One object of a place.
    pub(crate) fn shared<T: Conf>(&self, draft: &DraftConfs, key: &ConfKey<T>) -> Arc<T> {
        let at = self.places.binary_search(&key.index()).expect("a type of this level");
        let id = draft.0[at].expect("the place is complete");
        Arc::clone(&self.objects[at][id as usize]).downcast().expect("of the key's type")
    }

    /// What one place has.
    pub(crate) fn confs(&self, draft: &DraftConfs) -> Confs {
        let mut slots = vec![None; self.places.last().map_or(0, |place| place + 1)];
        for ((id, objects), place) in draft.0.iter().zip(&self.objects).zip(&self.places) {
            slots[*place] = id.map(|id| Arc::clone(&objects[id as usize]));
        }
        Confs { slots: slots.into() }
    }
}

/// The objects of all modules at one place of one level. Places share those that they do not differ in.
#[derive(Default)]
pub struct Confs {
    slots: Box<[Option<Arc<Object>>]>,
}

impl Confs {
    /// The module's object here.
    ///
    /// # Panics
    /// If the module is not among those the configuration was loaded with: a key is used only by the
    /// module that declares it.
    #[inline]
    pub fn of<T: Conf>(&self, key: &ConfKey<T>) -> &T {
        self.find(key).expect("a module reads the configuration that it declares")
    }

    #[inline]
    fn find<T: Conf>(&self, key: &ConfKey<T>) -> Option<&T> {
        self.slots.get(key.index())?.as_ref()?.downcast_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::setting::Setting;

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
        let mut drafts = Drafts::new(Level::Location, SLOTS);
        let (mut http, mut location) = (DraftConfs::default(), DraftConfs::default());
        drafts.of_mut(&mut http, &LIMITS).size_bytes.set(7);
        drafts.complete_outermost(&mut http);
        drafts.merge(&mut location, &http, Nesting::Level);
        let finished = drafts.finish();
        let confs = finished.confs(&location);
        assert_eq!(*confs.of(&LIMITS).size_bytes, 7);
        assert!(confs.find(&OTHER).is_none());

        let mut drafts = Drafts::new(Level::Server, SLOTS);
        let mut http = DraftConfs::default();
        drafts.complete_outermost(&mut http);
        assert!(!*drafts.finish().confs(&http).of(&OTHER).0);
    }

    #[test]
    fn places_share_what_they_leave_open() {
        let mut drafts = Drafts::new(Level::Location, SLOTS);
        let mut places: Vec<_> = (0..4).map(|_| DraftConfs::default()).collect();
        drafts.of_mut(&mut places[0], &LIMITS).size_bytes.set(1);
        drafts.of_mut(&mut places[2], &LIMITS).size_bytes.set(2);
        drafts.complete_outermost(&mut places[0]);
        for (place, parent) in [(1, 0), (2, 0), (3, 0)] {
            let (outer, inner) = places.split_at_mut(place);
            drafts.merge(&mut inner[0], &outer[parent], Nesting::Level);
        }
        // The two that leave open what `http` says have one object.
        assert_eq!(drafts.all_but(&places[0], &LIMITS).count(), 2);
        let finished = drafts.finish();
        let confs: Vec<_> = places.iter().map(|place| finished.confs(place)).collect();
        let sizes: Vec<u64> = confs.iter().map(|confs| *confs.of(&LIMITS).size_bytes).collect();
        assert_eq!(sizes, [1, 1, 2, 1]);
        assert!(std::ptr::eq(confs[1].of(&LIMITS), confs[3].of(&LIMITS)));
    }
}
