//! The servers of a group as `server` lines say them at present: those of the configuration, or what has
//! become of them while serving. In a zone and in a state file they stand as text.
//!
//! The record in a zone begins with a line of three numbers: its version, the fingerprint of the configured
//! servers that were changed first, and the next number of a server. A line follows for each server, with its
//! number in front. It counts for configurations whose servers have that fingerprint, or that of the record
//! itself, as they are read back from the state file.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;

use bytes::Bytes;
use clearway_upstream::ServerState;

use crate::upstreams::line::{Rank, ServerDraft, address_of, said_of};

/// Servers of a group that is changed while serving at most.
pub(crate) const SERVERS_MAX: usize = 1024;

/// The present servers of a group, as `server` lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Roster {
    /// How often servers were changed.
    pub(crate) version: u64,
    pub(crate) next_id: u32,
    /// With their numbers, which never stand for another one.
    pub(crate) servers: Vec<(u32, ServerDraft)>,
}

/// Why there is no other roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    NotFound,
    Exists,
    TooMany,
}

impl Roster {
    /// The servers of a configuration, numbered from 0.
    pub(crate) fn configured(servers: Vec<ServerDraft>) -> Self {
        let next_id = u32::try_from(servers.len()).unwrap_or(u32::MAX);
        Self { version: 0, next_id, servers: (0..).zip(servers).collect() }
    }

    pub(crate) fn find(&self, id: u32) -> Option<&ServerDraft> {
        self.servers.iter().find(|(known, _)| *known == id).map(|(_, server)| server)
    }

    /// Adds a server: its number.
    pub(crate) fn add(&mut self, server: ServerDraft) -> Result<u32, Refused> {
        if self.servers.iter().any(|(_, known)| known.addresses == server.addresses) {
            return Err(Refused::Exists);
        }
        if self.servers.len() >= SERVERS_MAX || self.next_id == u32::MAX {
            return Err(Refused::TooMany);
        }
        let id = self.next_id;
        debug_assert!(self.find(id).is_none(), "a number never stands for another server");
        self.next_id += 1;
        self.servers.push((id, server));
        debug_assert!(self.servers.len() <= SERVERS_MAX, "a group has so many at most");
        Ok(id)
    }

    /// Has something else said of a server.
    pub(crate) fn alter(&mut self, id: u32, alter: impl FnOnce(&mut ServerDraft)) -> Result<u32, Refused> {
        let (_, server) = self.servers.iter_mut().find(|(known, _)| *known == id).ok_or(Refused::NotFound)?;
        alter(server);
        debug_assert_eq!(
            self.servers.iter().filter(|(known, _)| *known == id).count(),
            1,
            "a number stands for one server"
        );
        Ok(id)
    }

    pub(crate) fn remove(&mut self, id: u32) -> Result<u32, Refused> {
        let before = self.servers.len();
        self.servers.retain(|(known, _)| *known != id);
        debug_assert!(self.servers.len() + 1 >= before, "a number stands for one server");
        if self.servers.len() < before { Ok(id) } else { Err(Refused::NotFound) }
    }

    /// Stands for what is said, without numbers.
    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.servers.iter().for_each(|(_, server)| line_of(server).hash(&mut hasher));
        hasher.finish()
    }

    /// Writes the record that a zone keeps, for a group that is configured so.
    pub(crate) fn write_record(&self, configured: &Self, out: &mut Vec<u8>) {
        debug_assert!(
            self.servers.iter().all(|(id, _)| *id < self.next_id),
            "the next number stands for no server yet"
        );
        let (version, base, next) = (self.version, configured.fingerprint(), self.next_id);
        out.extend_from_slice(format!("{version} {base} {next}\n").as_bytes());
        for (id, server) in &self.servers {
            out.extend_from_slice(format!("{id} {}\n", line_of(server)).as_bytes());
        }
    }

    /// Reads the record of a group that is configured so: its servers or, if the record is of other ones,
    /// those of the configuration. The version is that of the record in any case.
    pub(crate) fn read_record(record: &[u8], configured: &Self) -> Option<Self> {
        let text = std::str::from_utf8(record).ok()?;
        let (head, lines) = text.split_once('\n')?;
        let mut numbers = head.split(' ').map(str::parse::<u64>);
        let mut number = || numbers.next()?.ok();
        let (version, base, next_id) = (number()?, number()?, u32::try_from(number()?).ok()?);
        let servers = lines.lines().map(|line| read_line(line, configured)).collect::<Option<Vec<_>>>();
        let read = servers.map(|servers| Self { version, next_id, servers });
        let fingerprint = configured.fingerprint();
        let is_of_it = |read: &Self| base == fingerprint || read.fingerprint() == fingerprint;
        Some(read.filter(is_of_it).unwrap_or_else(|| Self { version, ..configured.clone() }))
    }

    /// The text of the state file.
    pub(crate) fn file_text(&self) -> Vec<u8> {
        let lines = self.servers.iter().map(|(_, server)| line_of(server) + "\n");
        lines.collect::<String>().into_bytes()
    }
}

/// `server NAME …;`, the same text for what says the same.
pub(crate) fn line_of(server: &ServerDraft) -> String {
    let mut line = Vec::new();
    let mut put = |text: std::fmt::Arguments<'_>| line.write_fmt(text).expect("memory takes all");
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    put(format_args!("server {}", text(&server.name)));
    if server.weight != 1 {
        put(format_args!(" weight={}", server.weight));
    }
    if server.max_conns != 0 {
        put(format_args!(" max_conns={}", server.max_conns));
    }
    if server.max_fails != 1 {
        put(format_args!(" max_fails={}", server.max_fails));
    }
    if server.fail_timeout_s != 10 {
        put(format_args!(" fail_timeout={}s", server.fail_timeout_s));
    }
    if server.slow_start_ms != 0 {
        put(format_args!(" slow_start={}ms", server.slow_start_ms));
    }
    if let Some(route) = &server.route {
        put(format_args!(" route={}", text(route)));
    }
    if let Some(lookup) = server.lookup.as_ref().filter(|lookup| !lookup.is_late) {
        if let Some(service) = &lookup.service {
            put(format_args!(" service={}", text(service)));
        }
        put(format_args!(" resolve"));
    }
    if server.rank == Rank::Backup {
        put(format_args!(" backup"));
    }
    match server.state {
        ServerState::Up => {}
        ServerState::Draining => put(format_args!(" drain")),
        ServerState::Down => put(format_args!(" down")),
    }
    put(format_args!(";"));
    String::from_utf8(line).expect("it was text")
}

/// A line of a record. Where a server is says the configuration, if it has one of that name.
fn read_line(line: &str, configured: &Roster) -> Option<(u32, ServerDraft)> {
    let (id, said) = line.strip_suffix(';')?.split_once(" server ")?;
    let mut words = said.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes()));
    let name = words.next()?;
    let words: Vec<Bytes> = words.collect();
    let mut server = said_of(&name, &words).ok()?;
    match configured.servers.iter().find(|(_, known)| known.name == name) {
        Some((_, known)) => {
            server.addresses.clone_from(&known.addresses);
            server.lookup.clone_from(&known.lookup);
        }
        None => server.addresses = vec![address_of(&name).ok()?],
    }
    Some((id.parse().ok()?, server))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(said: &str) -> ServerDraft {
        let mut words = said.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes()));
        let name = words.next().unwrap();
        let mut server = said_of(&name, &words.collect::<Vec<_>>()).unwrap();
        server.addresses = vec![address_of(&name).unwrap()];
        server
    }

    fn roster(servers: &[&str]) -> Roster {
        Roster::configured(servers.iter().map(|said| server(said)).collect())
    }

    fn record_of(roster: &Roster, configured: &Roster) -> Vec<u8> {
        let mut record = Vec::new();
        roster.write_record(configured, &mut record);
        record
    }

    #[test]
    fn lines_say_what_was_said() {
        for said in [
            "127.0.0.1:80",
            "[::1]:80 weight=3 max_conns=7 max_fails=0 fail_timeout=5s slow_start=1500ms route=a backup",
            "unix:/run/x.sock down",
        ] {
            assert_eq!(line_of(&server(said)), format!("server {said};"));
        }
        assert_eq!(line_of(&server("127.0.0.1:80 weight=1 fail_timeout=10s")), "server 127.0.0.1:80;");
    }

    #[test]
    fn a_record_counts_for_the_configuration_that_it_is_of() {
        let configured = roster(&["127.0.0.1:80", "127.0.0.1:81 weight=2"]);
        let mut changed = configured.clone();
        changed.remove(0).unwrap();
        assert_eq!(changed.add(server("127.0.0.1:82")), Ok(2));
        assert_eq!(changed.add(server("127.0.0.1:82 weight=7")), Err(Refused::Exists));
        changed.alter(1, |server| server.state = ServerState::Draining).unwrap();
        assert_eq!(changed.alter(0, |_| {}), Err(Refused::NotFound));
        changed.version = 3;
        let record = record_of(&changed, &configured);
        assert_eq!(Roster::read_record(&record, &configured), Some(changed.clone()));
        // As the state file brings it back.
        let same = roster(&["127.0.0.1:81 weight=2 drain", "127.0.0.1:82"]);
        assert_eq!(Roster::read_record(&record, &same), Some(changed.clone()));
        assert_eq!(changed.file_text(), b"server 127.0.0.1:81 weight=2 drain;\nserver 127.0.0.1:82;\n");
        // Another configuration begins anew.
        let other = roster(&["127.0.0.1:90"]);
        assert_eq!(Roster::read_record(&record, &other), Some(Roster { version: 3, ..other.clone() }));
    }

    #[test]
    fn what_is_no_record_is_none() {
        let configured = roster(&["127.0.0.1:80"]);
        for record in [&b""[..], b"1 2\n", b"x 2 3\n", b"\xff\n", b"1 2 99999999999\n"] {
            assert_eq!(Roster::read_record(record, &configured), None);
        }
        let broken = [&record_of(&configured, &configured)[..], b"7 server a.example;\n"].concat();
        assert_eq!(Roster::read_record(&broken, &configured), Some(configured));
    }

    #[test]
    fn there_are_not_too_many() {
        let mut roster = Roster::default();
        for port in 1..=SERVERS_MAX {
            roster.add(server(&format!("127.0.0.1:{port}"))).unwrap();
        }
        assert_eq!(roster.add(server("127.0.0.2:1")), Err(Refused::TooMany));
    }
}
