//! Names of servers that several worker processes have in common (`worker_groups`, and a zone): one of them
//! asks when the last answer ends, and the others have its servers, as nginx has one worker ask for a name.
//! It stands in the zone, under the name, by one compare-and-swap each (`zone::Store`). Any thread.
//!
//! A record is text: when to ask again, the number of the process that asks at present (0: none), and `?`
//! while nothing was found; then a line for each server, `ADDRESS primary|backup`, and of services
//! ` WEIGHT NAME`.
//! Where the zone has no room there is no record, and each process asks.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clearway_os::clock::monotonic_ms;
use clearway_os::outgoing::Remote;
use clearway_zone::{KeyHash, Updated, Zone};

use crate::upstreams::line::{Lookup, Rank};

/// A zone without room forgets these before anything else.
const PAYLOAD: u64 = 1;

/// How much longer than its question a process that asks is waited for.
const GRACE_MS: u64 = 1000;

/// A server that a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) remote: Remote,
    /// The record of the service that has led to it.
    pub(crate) service: Option<(Arc<str>, u32)>,
    pub(crate) rank: Rank,
}

#[cfg(test)]
pub(crate) const FIRST: Rank = Rank::Primary;
#[cfg(test)]
pub(crate) const LATER: Rank = Rank::Backup;

impl Found {
    /// An address of a name.
    pub(crate) fn address(remote: Remote) -> Self {
        Self { remote, service: None, rank: Rank::Primary }
    }

    /// An address of a host of a service, whose name is a line of text from here on.
    pub(crate) fn target(remote: Remote, host: &str, weight: u32, rank: Rank) -> Self {
        let host = host.replace(char::is_control, "\u{fffd}");
        Self { remote, service: Some((host.into(), weight)), rank }
    }
}

/// See the file's head: those of one name.
pub(crate) struct Turns {
    zone: Arc<Zone>,
    key: KeyHash,
}

/// Which process asks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Ours,
    /// Another one does, or the time has not come; with the last findings.
    Theirs(Option<Vec<Found>>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Record {
    due_ms: u64,
    asker: u32,
    found: Option<Vec<Found>>,
}

impl Turns {
    /// Those of a name of a group with this zone.
    pub(crate) fn of(zone: &Arc<Zone>, group: &[u8], lookup: &Lookup) -> Self {
        let service = lookup.service.as_deref().unwrap_or_default();
        // No name has a zero byte in it.
        let port = lookup.port.to_string();
        let name = [group, b"resolve", &lookup.host, port.as_bytes(), service].join(&0);
        Self { zone: Arc::clone(zone), key: zone.hash(&name) }
    }

    /// Whether this process asks now, for so long at most.
    pub(crate) fn take(&self, timeout: Duration) -> Turn {
        let Some(store) = self.zone.store() else { return Turn::Ours };
        let (now_ms, own) = (monotonic_ms(), self.zone.own_number().unwrap_or(0));
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let mut theirs = None;
        let taken = store.update(self.key, 0, PAYLOAD, |record, out| {
            let known = record.and_then(Record::read).unwrap_or_default();
            if !self.is_due(&known, now_ms) {
                theirs = Some(known.found);
                return false;
            }
            theirs = None;
            let due_ms = now_ms.saturating_add(timeout_ms).saturating_add(GRACE_MS);
            Record { due_ms, asker: own, found: known.found }.write(out);
            true
        });
        match (taken, theirs) {
            (Ok(Updated::Unchanged), Some(found)) => Turn::Theirs(found),
            _ => Turn::Ours,
        }
    }

    fn is_due(&self, record: &Record, now_ms: u64) -> bool {
        now_ms >= record.due_ms || (record.asker != 0 && !self.zone.has_worker(record.asker))
    }

    /// The findings of this process, if there are any; to be asked again after so many milliseconds.
    pub(crate) fn publish(&self, found: Option<&[Found]>, pause_ms: u64) {
        let Some(store) = self.zone.store() else { return };
        let due_ms = monotonic_ms().saturating_add(pause_ms);
        let kept = store.update(self.key, 0, PAYLOAD, |record, out| {
            let before = || record.and_then(Record::read).and_then(|record| record.found);
            let found = found.map(<[Found]>::to_vec).or_else(before);
            Record { due_ms, asker: 0, found }.write(out);
            true
        });
        if !matches!(kept, Ok(Updated::Changed | Updated::Inserted | Updated::Evicted)) {
            store.remove(self.key);
        }
    }
}

impl Record {
    fn write(&self, out: &mut Vec<u8>) {
        let mut text = format!("{} {}", self.due_ms, self.asker);
        match &self.found {
            None => text.push_str(" ?\n"),
            Some(found) => {
                text.push('\n');
                found.iter().for_each(|found| put_line(&mut text, found));
            }
        }
        debug_assert_eq!(Self::read(text.as_bytes()).as_ref(), Some(self), "what is written is read again");
        out.extend_from_slice(text.as_bytes());
    }

    /// Of bytes that may be anything.
    fn read(record: &[u8]) -> Option<Self> {
        let (head, lines) = std::str::from_utf8(record).ok()?.split_once('\n')?;
        let mut words = head.split(' ');
        let (due_ms, asker) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let found = match words.next() {
            Some(_) => None,
            None => Some(lines.lines().map(read_line).collect::<Option<_>>()?),
        };
        Some(Self { due_ms, asker, found })
    }
}

fn put_line(text: &mut String, found: &Found) {
    let Remote::Inet(address) = &found.remote else { return };
    let rank = if found.rank == Rank::Primary { "primary" } else { "backup" };
    let _ = write!(text, "{address} {rank}");
    if let Some((name, weight)) = &found.service {
        debug_assert!(!name.contains('\n'), "names of hosts are made lines where they are read");
        let _ = write!(text, " {weight} {name}");
    }
    text.push('\n');
}

fn read_line(line: &str) -> Option<Found> {
    let mut words = line.splitn(4, ' ');
    let remote = Remote::Inet(words.next()?.parse::<SocketAddr>().ok()?);
    let rank = match words.next()? {
        "primary" => Rank::Primary,
        "backup" => Rank::Backup,
        _ => return None,
    };
    let service = match words.next() {
        Some(weight) => Some((words.next()?.into(), weight.parse().ok()?)),
        None => None,
    };
    Some(Found { remote, service, rank })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use clearway_zone::Zones;

    fn zone(bytes: u64) -> Arc<Zone> {
        let zones = Zones::create(None);
        let zone = zones.declare(b"one", bytes, "upstream servers").unwrap();
        zones.open().unwrap();
        zone
    }

    fn turns(zone: &Arc<Zone>, host: &str) -> Turns {
        let host = Bytes::copy_from_slice(host.as_bytes());
        Turns::of(zone, b"g", &Lookup { host, port: 80, service: None, is_late: false })
    }

    fn remote(address: &str) -> Remote {
        Remote::Inet(address.parse().unwrap())
    }

    const TIMEOUT: Duration = Duration::from_hours(1);

    #[test]
    fn one_asks_and_all_have_what_it_finds() {
        let zone = zone(1 << 20);
        let (one, other) = (turns(&zone, "a.example"), turns(&zone, "a.example"));
        assert_eq!((one.take(TIMEOUT), other.take(TIMEOUT)), (Turn::Ours, Turn::Theirs(None)));
        assert_eq!(turns(&zone, "b.example").take(TIMEOUT), Turn::Ours, "another name");
        let found = vec![Found::address(remote("127.0.0.1:80"))];
        one.publish(Some(&found), 3_600_000);
        assert_eq!(other.take(TIMEOUT), Turn::Theirs(Some(found.clone())));
        assert_eq!(one.take(TIMEOUT), Turn::Theirs(Some(found.clone())), "the time has not come");
        // An answer that ends at once.
        one.publish(Some(&found), 0);
        assert_eq!(other.take(TIMEOUT), Turn::Ours);
        assert_eq!(one.take(TIMEOUT), Turn::Theirs(Some(found.clone())));
        // A question that fails leaves the findings as they are.
        other.publish(None, 3_600_000);
        assert_eq!(one.take(TIMEOUT), Turn::Theirs(Some(found)));
        other.publish(Some(&[]), 3_600_000);
        assert_eq!(one.take(TIMEOUT), Turn::Theirs(Some(Vec::new())));
    }

    #[test]
    fn one_that_asks_and_is_gone_is_not_waited_for() {
        let zone = zone(1 << 20);
        let turns = turns(&zone, "a.example");
        let record = Record { due_ms: u64::MAX, asker: u32::MAX, found: None };
        assert!(turns.is_due(&record, 0));
        let of_own = Record { asker: zone.own_number().unwrap(), ..record };
        assert!(!turns.is_due(&of_own, 0) && turns.is_due(&of_own, u64::MAX));
    }

    #[test]
    fn where_there_is_no_room_each_asks() {
        let zone = zone(16 << 10);
        let (one, other) = (turns(&zone, "a.example"), turns(&zone, "a.example"));
        assert_eq!(one.take(TIMEOUT), Turn::Ours);
        let many: Vec<Found> =
            (1..=500).map(|port| Found::address(remote(&format!("[::1]:{port}")))).collect();
        one.publish(Some(&many), 3_600_000);
        assert_eq!(other.take(TIMEOUT), Turn::Ours);
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let found = [
            Found::address(remote("[fe80::1%3]:80")),
            Found::target(remote("127.0.0.1:8080"), "a host", 7, Rank::Backup),
        ];
        for found in [None, Some(Vec::new()), Some(found.to_vec())] {
            let record = Record { due_ms: 12, asker: 3, found };
            let mut out = Vec::new();
            record.write(&mut out);
            assert_eq!(Record::read(&out), Some(record));
        }
        let name = "a\nb";
        assert_eq!(
            Found::target(remote("127.0.0.1:1"), name, 1, Rank::Primary).service.unwrap().0.lines().count(),
            1
        );
        for wrong in [&b""[..], b"1 2", b"x 2\n", b"1 2\nnowhere primary\n", b"1 2\n127.0.0.1:1\n", b"\xff\n"]
        {
            assert_eq!(Record::read(wrong), None);
        }
    }
}
