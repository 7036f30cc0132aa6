//! How many there are of each key at present: counts that go down again, whatever becomes of the process
//! that has counted (`workers` has the rules). Any thread, without locks.
//!
//! A slot holds what one process has counted for one key: the number of the process, by which slots of
//! processes that are gone can be told, and the count. Processes that count at the same moment do not see
//! each other, so that while one worker replaces another there may be one too many.

use std::sync::Arc;

use crate::table::{Contended, KeyHash, Updated};
use crate::workers::Worker;
use crate::zone::Zone;

/// Bits of a payload that hold the count; the number of the process is above.
const COUNT_BITS: u32 = 20;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

/// The payload of a slot with nothing left to count: below that of any process, so that the slot is free.
const NOTHING: u64 = 1;

/// How often it is tried to take one away. Each try gives up after a thousand failures, each of which is
/// the success of another thread.
const TRIES_MAX: u32 = 100;

/// One of a key, as long as it lives.
pub struct Counted {
    zone: Arc<Zone>,
    key: KeyHash,
}

/// Why one more is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There are as many as there may be.
    Limit,
    /// The key is new, and the zone is full.
    NoRoom,
}

fn payload(worker: Worker, count: u64) -> u64 {
    u64::from(worker.number()) << COUNT_BITS | count
}

fn count_in(payload: u64) -> u64 {
    if payload == NOTHING { 0 } else { payload & COUNT_MAX }
}

impl Zone {
    /// Counts one more of a key, unless there are `most` of it.
    ///
    /// # Errors
    /// [`Refused`].
    ///
    /// # Panics
    /// Before `Zones::open`.
    pub fn count(self: &Arc<Self>, key: &[u8], most: u64) -> Result<Counted, Refused> {
        let own = self.own_worker().ok_or(Refused::NoRoom)?;
        let (mut elsewhere, mut oldest) = (0, own);
        for worker in self.workers().all().filter(|&worker| worker != own) {
            oldest = oldest.min(worker);
            if !worker.is_pending() {
                let kept = self.table().get(self.hash_of(key, worker));
                elsewhere += kept.map_or(0, count_in);
            }
        }
        let hash = self.hash_of(key, own);
        let most = most.min(COUNT_MAX);
        let updated = self.table().update_if_room(hash, payload(oldest, 0), |kept| {
            let here = kept.map_or(0, count_in);
            (here + elsewhere < most).then(|| payload(own, here + 1))
        });
        match updated {
            Ok(Updated::Unchanged) => Err(Refused::Limit),
            Ok(Updated::Full) | Err(Contended) => Err(Refused::NoRoom),
            Ok(_) => Ok(Counted { zone: Arc::clone(self), key: hash }),
        }
    }

    fn hash_of(&self, key: &[u8], worker: Worker) -> KeyHash {
        self.hash(&[&worker.number().to_le_bytes(), key].concat())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        for _ in 0..TRIES_MAX {
            let updated = self.zone.table().update(self.key, 0, |kept| {
                let kept = kept.filter(|&kept| count_in(kept) > 0)?;
                Some(if count_in(kept) == 1 { NOTHING } else { kept - 1 })
            });
            debug_assert_ne!(updated, Ok(Updated::Unchanged), "what was counted is there");
            if updated.is_ok() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::Zones;

    const BYTES: u64 = 32 * 1024;

    fn open(zones: &Zones) -> Arc<Zone> {
        let zone = zones.declare(b"one", BYTES, "limit_conn").unwrap();
        zones.open().unwrap();
        zone
    }

    fn refused(result: Result<Counted, Refused>) -> Option<Refused> {
        result.err()
    }

    #[test]
    fn counts_go_up_and_down() {
        let zone = open(&Zones::create(None));
        let first = zone.count(b"a", 2).unwrap();
        let second = zone.count(b"a", 2).unwrap();
        assert_eq!(refused(zone.count(b"a", 2)), Some(Refused::Limit));
        assert_eq!(refused(zone.count(b"b", 2)), None);
        drop(first);
        let third = zone.count(b"a", 2).unwrap();
        assert_eq!(refused(zone.count(b"a", 2)), Some(Refused::Limit));
        drop((second, third));
        assert_eq!(refused(zone.count(b"a", 1)), None);
    }

    #[test]
    fn a_full_zone_forgets_nobody() {
        let zone = open(&Zones::create(None));
        let mut counted = Vec::new();
        let mut refusals = 0;
        for number in 0..2 * zone.table().slots() {
            match zone.count(&number.to_le_bytes(), 1) {
                Ok(one) => counted.push(one),
                Err(Refused::NoRoom) => refusals += 1,
                Err(Refused::Limit) => panic!("each key comes once"),
            }
        }
        assert!(refusals > 0 && counted.len() > zone.table().slots() / 2);
        counted.clear();
        let again = (0..zone.table().slots() / 2).map(|number| zone.count(&number.to_le_bytes(), 1));
        assert!(again.collect::<Result<Vec<_>, _>>().is_ok(), "there is room again");
    }

    /// Another process, as far as a zone can tell.
    fn count_as(pid: u32, zone: &Zone, key: &[u8], count: u64) {
        let worker = zone.workers().enlist(pid).unwrap();
        zone.table().update(zone.hash_of(key, worker), 0, |_| Some(payload(worker, count))).unwrap();
    }

    #[test]
    fn who_was_reaped_counts_no_more() {
        let master = Zones::create(None);
        let zone = open(&master);
        count_as(1 << 30, &zone, b"a", 2);
        let one = zone.count(b"a", 3).unwrap();
        assert_eq!(refused(zone.count(b"a", 3)), Some(Refused::Limit));
        master.forget_worker(1 << 30);
        let two = zone.count(b"a", 3).unwrap();
        drop((one, two));
    }

    #[test]
    fn what_the_dead_have_left_is_room() {
        let master = Zones::create(None);
        let zone = open(&master);
        for number in 0..zone.table().slots() {
            count_as(1 << 30, &zone, &number.to_le_bytes(), 1);
        }
        master.forget_worker(1 << 30);
        let counted = (0..zone.table().slots() / 2).map(|number| zone.count(&number.to_le_bytes(), 1));
        assert!(counted.collect::<Result<Vec<_>, _>>().is_ok());
    }

    #[test]
    fn who_found_no_place_gets_one_when_there_is_one() {
        const OTHER: u32 = 1 << 30;
        let master = Zones::create(None);
        let zone = open(&master);
        let others = (OTHER..).take_while(|&pid| zone.workers().enlist(pid).is_some()).count();
        assert_eq!(refused(zone.count(b"a", 1)), Some(Refused::NoRoom));
        assert_eq!(refused(zone.count(b"a", 1)), Some(Refused::NoRoom));
        master.forget_worker(OTHER + others as u32 - 1);
        let one = zone.count(b"a", 1).map_err(|refused| panic!("there is a place: {refused:?}"));
        assert_eq!(refused(zone.count(b"a", 1)), Some(Refused::Limit));
        drop(one);
    }

    #[test]
    fn threads_of_a_process_have_one_place() {
        for _ in 0..100 {
            let zone = open(&Zones::create(None));
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| assert!(zone.count(b"a", 4).map(std::mem::forget).is_ok()));
                }
            });
            assert_eq!(refused(zone.count(b"a", 4)), Some(Refused::Limit));
            assert_eq!(zone.workers().all().count(), 1);
        }
    }

    #[test]
    fn counts_survive_a_reload() {
        let master = Zones::create(None);
        open(&master);
        let worker = || {
            let list = master.list();
            let handed = list.iter().map(|(key, fd)| (key.clone(), fd.as_fd().try_clone_to_owned().unwrap()));
            Zones::handed(handed.collect())
        };
        let one = open(&worker()).count(b"a", 1).unwrap();
        let after = open(&worker());
        assert_eq!(refused(after.count(b"a", 1)), Some(Refused::Limit));
        drop(one);
        assert_eq!(refused(after.count(b"a", 1)), None);
    }
}
