//! Lists in a dictionary: items that are linked with each other; their entry names the first and the last.

use crate::dict::change::Held;
use crate::dict::layout::{WORD, high, low, pair};
use crate::dict::lock::Writer;
use crate::dict::nodes::{Contents, Entry, Oldest, list_node_bytes};
use crate::dict::{Dict, Got, Key, Kind, Refusal, Value};

/// The next item in the lower half, the one before in the upper.
const LINKS: usize = 0;
/// The value's length in bytes, and its kind above.
const SIZE: usize = 1;
const DATA: usize = 2;
/// nginx's bytes in an item beside its value; here they are fewer.
const ITEM_BYTES: usize = 21;

/// Where an item is put or taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The front.
    Left,
    /// The back.
    Right,
}

impl Dict<'_> {
    /// Puts an item at an end of a list, which is made where there is none, and says how many there are then.
    ///
    /// # Errors
    /// [`Refusal::NotList`]; [`Refusal::NoMemory`], as nothing is evicted for it.
    pub fn push(&self, key: &Key<'_>, end: End, value: Value<'_>, now_ms: u64) -> Result<u32, Refusal> {
        let mut held = self.held(key);
        held.writer.expire(Oldest::Expired, now_ms, held.stripe());
        let list = match held.find(key) {
            Some((_, entry)) if entry.is_list() && !entry.is_expired(now_ms) => entry,
            Some((_, entry)) if !entry.is_expired(now_ms) => return Err(Refusal::NotList),
            Some((place, _)) => {
                held.writer.unlink(place);
                held.writer.commit();
                held.writer.free_orphans();
                make_list(&mut held, key)?
            }
            None => make_list(&mut held, key)?,
        };
        let writer = &mut held.writer;
        let mut number = [0; WORD];
        let (kind, bytes) = value.parts(&mut number);
        let Some(item) = writer.alloc(ITEM_BYTES + bytes.len()) else { return Err(Refusal::NoMemory) };
        writer.fill(item + SIZE, pair(bytes.len() as u32, kind as u32));
        writer.fill_bytes(item + DATA, bytes);
        add(writer, list, item, end);
        writer.set_len(list, list.len + 1);
        writer.refresh(list.at);
        writer.commit();
        Ok(list.len as u32 + 1)
    }

    /// Takes an item from an end of a list; a text is appended to `out`. A list without items goes.
    ///
    /// # Errors
    /// [`Refusal::NotList`].
    pub fn pop(
        &self,
        key: &Key<'_>,
        end: End,
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> Result<Option<Got>, Refusal> {
        let mut held = self.held(key);
        held.writer.expire(Oldest::Expired, now_ms, held.stripe());
        let Some((place, list)) = held.find(key).filter(|(_, entry)| !entry.is_expired(now_ms)) else {
            return Ok(None);
        };
        if !list.is_list() {
            return Err(Refusal::NotList);
        }
        let writer = &mut held.writer;
        let ends = writer.read(list.value_at());
        let item = match end {
            End::Left => low(ends),
            End::Right => high(ends),
        } as usize;
        let size = writer.read(item + SIZE);
        let got = writer.memory.value(high(size) as u8, item + DATA, low(size) as usize, out);
        if list.len == 1 {
            writer.unlink(place);
            writer.commit();
            writer.free_orphans();
            return Ok(got);
        }
        take(writer, list, item, end);
        writer.free(item);
        writer.set_len(list, list.len - 1);
        writer.refresh(list.at);
        writer.commit();
        Ok(got)
    }

    /// How many items a list has; 0: it is not there.
    ///
    /// # Errors
    /// [`Refusal::NotList`].
    pub fn list_len(&self, key: &Key<'_>, now_ms: u64) -> Result<u32, Refusal> {
        match self.look(key, |_, entry| *entry).filter(|entry| !entry.is_expired(now_ms)) {
            None => Ok(0),
            Some(entry) if entry.is_list() => {
                self.memory.touch(entry.at, key.hash);
                Ok(entry.len as u32)
            }
            Some(_) => Err(Refusal::NotList),
        }
    }
}

/// A list without items, that goes again if it gets none: nothing is lasting yet.
fn make_list(held: &mut Held<'_>, key: &Key<'_>) -> Result<Entry, Refusal> {
    let writer = &mut held.writer;
    let at = writer.alloc(list_node_bytes(key.bytes.len())).ok_or(Refusal::NoMemory)?;
    let contents = Contents { kind: Kind::List, bytes: &[0; WORD], len: 0, flags: 0, expires_ms: 0 };
    writer.fill_entry(at, key, contents);
    writer.link(at, key);
    Ok(writer.memory.entry(at))
}

/// The word of links in which `end` looks outward is `before`.
fn add(writer: &mut Writer<'_>, list: Entry, item: usize, end: End) {
    let ends = writer.read(list.value_at());
    let (first, last) = (low(ends), high(ends));
    let item = item as u32;
    if first == 0 {
        writer.fill(item as usize + LINKS, 0);
        return writer.write(list.value_at(), pair(item, item));
    }
    match end {
        End::Left => {
            writer.fill(item as usize + LINKS, pair(first, 0));
            let at = first as usize + LINKS;
            writer.write(at, pair(low(writer.read(at)), item));
            writer.write(list.value_at(), pair(item, last));
        }
        End::Right => {
            writer.fill(item as usize + LINKS, pair(0, last));
            let at = last as usize + LINKS;
            writer.write(at, pair(item, high(writer.read(at))));
            writer.write(list.value_at(), pair(first, item));
        }
    }
}

/// Takes an item from a list of two items or more.
fn take(writer: &mut Writer<'_>, list: Entry, item: usize, end: End) {
    let (ends, links) = (writer.read(list.value_at()), writer.read(item + LINKS));
    match end {
        End::Left => {
            let next = low(links);
            let at = next as usize + LINKS;
            writer.write(at, pair(low(writer.read(at)), 0));
            writer.write(list.value_at(), pair(next, high(ends)));
        }
        End::Right => {
            let before = high(links);
            let at = before as usize + LINKS;
            writer.write(at, pair(0, high(writer.read(at))));
            writer.write(list.value_at(), pair(low(ends), before));
        }
    }
}
