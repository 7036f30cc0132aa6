//! The typed configuration of modules at the levels main, server and location. A module declares one
//! static `ConfKey` per type; the key finds the type's slot by number, so a request reads its
//! configuration with an index and no look-up. Filled and merged at boot, immutable afterwards.

use std::any::Any;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::setting::Merge;

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

/// The settings of a module at one level: declared with [`settings!`](crate::settings), or a single setting.
pub trait Conf: Merge + Default + Send + Sync + 'static {}

impl<T: Merge + Default + Send + Sync + 'static> Conf for T {}

/// The relation of a level to the one around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Nesting {
    /// A level of its own.
    Level,
    /// The block of an `if` in it.
    If,
    /// The block of a `limit_except` in it.
    Limited,
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

/// The facts about a key that the loader needs without its type.
pub trait ConfSlot: Sync {
    /// The level that the key was declared for.
    fn level(&self) -> Level;
    /// Its number among those of its level.
    fn place(&self) -> usize;
    /// An object with its defaults.
    fn create(&self) -> Arc<Object>;
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

    fn create(&self) -> Arc<Object> {
        Arc::new(T::default())
    }

    fn merge(&self, object: &mut Object, parent: &Object, nesting: Nesting) {
        let object: &mut T = object.downcast_mut().expect("of the slot's type");
        let parent = parent.downcast_ref().expect("of the slot's type");
        match nesting {
            Nesting::Level => object.merge(parent),
            Nesting::If => object.merge_if(parent),
            Nesting::Limited => object.merge_limited(parent),
        }
    }
}

/// Number of an object within its column.
type ObjectId = u32;

/// Number of a column among those of its level.
type ColumnId = u32;

/// Number of a row; the first one, of no place, is empty.
type RowId = NonZeroU32;

/// The objects of all places of one level while a configuration is loaded. A place has an object of its
/// own for each type that a directive there has written to; what it has not written is made once for all
/// places that are in the same position. Of ten thousand servers most have little to say of their own.
pub(crate) struct Drafts {
    columns: Vec<Column>,
    /// The rows of places that write nothing of their own: the object of each column.
    rows: Vec<Box<[ObjectId]>>,
}

/// The objects of one type.
struct Column {
    slot: &'static dyn ConfSlot,
    objects: Vec<Arc<Object>>,
    /// The object of a place that writes nothing of its own, by the object of the place around it.
    inherited: HashMap<(ObjectId, Nesting), ObjectId>,
}

/// Which objects one place has: what its directives have written, and for the rest a row.
#[derive(Default)]
pub(crate) struct DraftConfs {
    own: Vec<(ColumnId, ObjectId)>,
    /// Absent until the place is complete, and in the outermost one, where everything is its own.
    base: Option<RowId>,
    /// The rows of the places in it, by their nesting.
    inner: [Option<RowId>; 3],
}

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
        Self { columns: slots.into_iter().map(column).collect(), rows: vec![Box::default()] }
    }

    /// The module's object at a place, to be written by its directives.
    pub(crate) fn of_mut<T: Conf>(&mut self, confs: &mut DraftConfs, key: &ConfKey<T>) -> &mut T {
        let at = self.column_of(key);
        let id = self.id_of(confs, at).unwrap_or_else(|| {
            let objects = &mut self.columns[at].objects;
            objects.push(Arc::new(T::default()));
            let id = number(objects.len() - 1);
            confs.own.push((number(at), id));
            id
        });
        to_write(&mut self.columns[at].objects[id as usize]).downcast_mut().expect("of the key's type")
    }

    /// Gives a place that is complete an object of its own.
    pub(crate) fn put<T: Conf>(&mut self, confs: &mut DraftConfs, key: &ConfKey<T>, object: T) {
        let at = self.column_of(key);
        let objects = &mut self.columns[at].objects;
        objects.push(Arc::new(object));
        let id = number(objects.len() - 1);
        confs.own.retain(|(column, _)| *column as usize != at);
        confs.own.push((number(at), id));
    }

    /// Completes what a place has, or has not, from what the enclosing one has. That was completed before.
    pub(crate) fn merge(&mut self, confs: &mut DraftConfs, parent: &mut DraftConfs, nesting: Nesting) {
        for &(column, own) in &confs.own {
            let outer = self.complete_id(parent, column as usize);
            self.columns[column as usize].complete(own, outer, nesting);
        }
        confs.base = Some(self.row_in(parent, nesting));
    }

    /// Completes the outermost place, which has defaults where nothing was written.
    pub(crate) fn complete_outermost(&mut self, confs: &mut DraftConfs) {
        for at in 0..self.columns.len() {
            if self.id_of(confs, at).is_none() {
                confs.own.push((number(at), self.columns[at].add()));
            }
        }
    }

    /// All objects of a type but that of one place; several places may share one.
    pub(crate) fn all_but<T: Conf>(
        &mut self,
        confs: &DraftConfs,
        key: &ConfKey<T>,
    ) -> impl Iterator<Item = &mut T> {
        let at = self.column_of(key);
        let left_out = self.id_of(confs, at);
        let objects = self.columns[at].objects.iter_mut().zip(0..);
        let objects = objects.filter(move |(_, id)| Some(*id) != left_out);
        objects.map(|(object, _)| to_write(object).downcast_mut().expect("of the key's type"))
    }

    /// The module's object at a place that is complete.
    pub(crate) fn of<T: Conf>(&self, confs: &DraftConfs, key: &ConfKey<T>) -> &T {
        let at = self.column_of(key);
        let id = self.complete_id(confs, at);
        self.columns[at].objects[id as usize].downcast_ref().expect("of the key's type")
    }

    /// The end: what `Confs` are made from.
    pub(crate) fn finish(self) -> FinishedDrafts {
        let places: Vec<_> = self.columns.iter().map(|column| column.slot.place()).collect();
        let objects = self.columns.into_iter().map(|column| column.objects).collect();
        let mut finished = FinishedDrafts { places, objects, rows: Vec::with_capacity(self.rows.len()) };
        let mut known = HashMap::new();
        for row in &self.rows {
            let row = finished.share_chunks(row, &mut known);
            finished.rows.push(row);
        }
        finished
    }

    /// The row of a place in `parent` that has written nothing.
    fn row_in(&mut self, parent: &mut DraftConfs, nesting: Nesting) -> RowId {
        if let Some(row) = parent.inner[nesting as usize] {
            return row;
        }
        let outer: Vec<_> = (0..self.columns.len()).map(|at| self.complete_id(parent, at)).collect();
        let inherit = |(column, outer): (&mut Column, ObjectId)| column.inherit(outer, nesting);
        self.rows.push(self.columns.iter_mut().zip(outer).map(inherit).collect());
        let row = RowId::new(number(self.rows.len() - 1)).expect("the first row is of no place");
        parent.inner[nesting as usize] = Some(row);
        row
    }

    fn id_of(&self, confs: &DraftConfs, at: usize) -> Option<ObjectId> {
        let own = confs.own.iter().find(|(column, _)| *column as usize == at).map(|(_, id)| *id);
        own.or_else(|| confs.base.map(|row| self.rows[row.get() as usize][at]))
    }

    fn complete_id(&self, confs: &DraftConfs, at: usize) -> ObjectId {
        self.id_of(confs, at).expect("the place is complete")
    }

    fn column_of<T: Conf>(&self, key: &ConfKey<T>) -> usize {
        let place = key.index();
        let found = self.columns.binary_search_by_key(&place, |column| column.slot.place());
        found.expect("a module uses the configuration that it declares")
    }
}

impl Column {
    fn add(&mut self) -> ObjectId {
        self.objects.push(self.slot.create());
        number(self.objects.len() - 1)
    }

    fn complete(&mut self, own: ObjectId, parent: ObjectId, nesting: Nesting) {
        let (own_at, parent_at) = (own as usize, parent as usize);
        let [own_object, parent_object] =
            self.objects.get_disjoint_mut([own_at, parent_at]).expect("a place is not inside itself");
        self.slot.merge(to_write(own_object), &**parent_object, nesting);
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

fn to_write(object: &mut Arc<Object>) -> &mut Object {
    Arc::get_mut(object).expect("objects are shared when all of them are complete")
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("a configuration is far smaller than 4 GiB")
}

/// How many objects places share or do not share together.
const CHUNK_SLOTS: usize = 4;

/// Neighbouring slots.
type Chunk = [Option<Arc<Object>>; CHUNK_SLOTS];

/// Chunks that some row has, by their number and the objects in them.
type KnownChunks = HashMap<(usize, [Option<ObjectId>; CHUNK_SLOTS]), Arc<Chunk>>;

/// The objects of all places, complete.
pub(crate) struct FinishedDrafts {
    places: Vec<usize>,
    objects: Vec<Vec<Arc<Object>>>,
    rows: Vec<Arc<[Arc<Chunk>]>>,
}

impl FinishedDrafts {
    /// The settings of one place.
    pub(crate) fn confs(&self, draft: &DraftConfs) -> Confs {
        let row = draft.base.map(|row| &self.rows[row.get() as usize]);
        if let Some(row) = row.filter(|_| draft.own.is_empty()) {
            return Confs { chunks: Arc::clone(row) };
        }
        let mut chunks: Arc<[Arc<Chunk>]> = match row {
            Some(row) => row.iter().cloned().collect(),
            None => (0..self.chunk_count()).map(|_| Arc::default()).collect(),
        };
        let own_chunks = Arc::get_mut(&mut chunks).expect("nobody else has it yet");
        for &(column, id) in &draft.own {
            let (place, object) = (self.places[column as usize], &self.objects[column as usize][id as usize]);
            let chunk = Arc::make_mut(&mut own_chunks[place / CHUNK_SLOTS]);
            chunk[place % CHUNK_SLOTS] = Some(Arc::clone(object));
        }
        Confs { chunks }
    }

    fn chunk_count(&self) -> usize {
        self.places.last().map_or(0, |place| place / CHUNK_SLOTS + 1)
    }

    /// A row, in chunks that rows before it may have as well.
    fn share_chunks(&self, row: &[ObjectId], known: &mut KnownChunks) -> Arc<[Arc<Chunk>]> {
        let mut ids = vec![[None; CHUNK_SLOTS]; self.chunk_count()];
        for (&place, &id) in self.places.iter().zip(row) {
            ids[place / CHUNK_SLOTS][place % CHUNK_SLOTS] = Some(id);
        }
        let first_columns =
            (0..ids.len()).map(|number| self.places.partition_point(|&place| place < number * CHUNK_SLOTS));
        let chunks = ids.iter().enumerate().zip(first_columns).map(|((number, ids), first)| {
            let make = || {
                let mut columns = self.objects[first..].iter();
                Arc::new(ids.map(|id| id.and_then(|id| Some(Arc::clone(&columns.next()?[id as usize])))))
            };
            Arc::clone(known.entry((number, *ids)).or_insert_with(make))
        });
        chunks.collect()
    }
}

/// The objects of all modules at one place of one level, in chunks. Places share those that they do not
/// differ in, so that thousands of them are few bytes each, and what requests to them read is often the same.
#[derive(Default)]
pub struct Confs {
    chunks: Arc<[Arc<Chunk>]>,
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

    /// The settings of this level, as a shared reference.
    pub fn shared<T: Conf>(&self, key: &ConfKey<T>) -> Arc<T> {
        let object = self.slot(key.index()).expect("a module reads the configuration that it declares");
        Arc::clone(object).downcast().expect("of the key's type")
    }

    #[inline]
    fn find<T: Conf>(&self, key: &ConfKey<T>) -> Option<&T> {
        self.slot(key.index())?.downcast_ref()
    }

    #[inline]
    fn slot(&self, place: usize) -> Option<&Arc<Object>> {
        self.chunks.get(place / CHUNK_SLOTS)?[place % CHUNK_SLOTS].as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::Setting;

    crate::settings! {
        struct Limits {
            size_bytes: Setting<u64>,
        }
    }

    static LIMITS: ConfKey<Limits> = ConfKey::new(Level::Location);
    static OTHER: ConfKey<Setting<bool>> = ConfKey::new(Level::Server);
    const SLOTS: &[&dyn ConfSlot] = &[&LIMITS, &OTHER];

    #[test]
    fn each_level_has_the_types_declared_for_it_and_merges_down() {
        let mut drafts = Drafts::new(Level::Location, SLOTS);
        let (mut http, mut location) = (DraftConfs::default(), DraftConfs::default());
        drafts.of_mut(&mut http, &LIMITS).size_bytes.set(7);
        drafts.complete_outermost(&mut http);
        drafts.merge(&mut location, &mut http, Nesting::Level);
        let finished = drafts.finish();
        let confs = finished.confs(&location);
        assert_eq!(*confs.of(&LIMITS).size_bytes, 7);
        assert!(confs.find(&OTHER).is_none());

        let mut drafts = Drafts::new(Level::Server, SLOTS);
        let mut http = DraftConfs::default();
        drafts.complete_outermost(&mut http);
        assert!(!**drafts.finish().confs(&http).of(&OTHER));
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
            drafts.merge(&mut inner[0], &mut outer[parent], Nesting::Level);
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
