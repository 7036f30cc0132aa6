//! Servers that are added, changed and removed while serving. What the servers of a group are is written down in
//! its zone, by one compare-and-swap (`zone::Store`), so that it outlives reloads and workers; then all groups of
//! that name in this process are made the same. Edits run on loops; a configuration that comes into use catches
//! up before requests get to know it. A worker that drains goes on with the servers that it had.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use clearway_metrics::Counter;
use clearway_offload::Blocking;
use clearway_upstream::{Group, Peer, PeerConfig};
use clearway_zone::{Unkept, Updated, Zone};

use crate::upstreams::group::{Members, UpstreamGroup, config_of};
use crate::upstreams::lasting::peer;
use crate::upstreams::roster::{Refused, Roster};
use crate::upstreams::said::{Rank, Ranks, ServerDraft};
use crate::upstreams::state_file::StateFile;

/// Changes of groups while serving.
pub(crate) static EDITS: Counter = Counter::new(
    "upstream_edits_total",
    "changes",
    "Servers of groups that were added, changed or removed while serving (`status write=on`).",
);

/// See the file's head.
pub(crate) struct Editing {
    zone: Arc<Zone>,
    state: Option<Arc<StateFile>>,
    configured: Roster,
    ranks: Ranks,
    /// Servers of the configuration before, until this one is in use.
    former: Mutex<Vec<Arc<Peer>>>,
}

/// Why servers were not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotEdited {
    /// It makes no sense.
    Refused(Refused),
    /// The zone has no room for it.
    NoRoom,
    /// Others were faster, or too many processes use the zone.
    Busy,
}

impl Editing {
    pub(crate) fn new(
        zone: Arc<Zone>,
        state: Option<Arc<StateFile>>,
        (configured, ranks): (Roster, Ranks),
        former: Vec<Arc<Peer>>,
    ) -> Self {
        Self { zone, state, configured, ranks, former: Mutex::new(former) }
    }

    /// The name of the zone.
    pub(crate) fn zone_name(&self) -> &[u8] {
        self.zone.name()
    }

    pub(crate) fn ranks(&self) -> Ranks {
        self.ranks
    }

    pub(crate) fn state(&self) -> Option<&Arc<StateFile>> {
        self.state.as_ref()
    }

    /// Changes the servers, for all processes that are to come; what `change` says of the result.
    ///
    /// # Errors
    /// See [`NotEdited`]; nothing has changed then.
    pub(crate) fn edit(
        &self,
        name: &[u8],
        change: impl Fn(&mut Roster) -> Result<u32, Refused>,
    ) -> Result<(u32, Roster), NotEdited> {
        let store = self.zone.store().ok_or(NotEdited::Busy)?;
        let mut outcome = Err(NotEdited::Busy);
        let updated = store.update(self.zone.hash(name), 0, u64::from(u32::MAX), |record, out| {
            let read = record.and_then(|record| Roster::read_record(record, &self.configured));
            let mut roster = read.unwrap_or_else(|| self.configured.clone());
            match change(&mut roster) {
                Ok(id) => {
                    roster.version += 1;
                    roster.write_record(&self.configured, out);
                    outcome = Ok((id, roster));
                    true
                }
                Err(refused) => {
                    outcome = Err(NotEdited::Refused(refused));
                    false
                }
            }
        });
        match updated {
            Ok(Updated::Full) | Err(Unkept::TooLarge) => return Err(NotEdited::NoRoom),
            Err(Unkept::Contended) => return Err(NotEdited::Busy),
            Ok(Updated::Unchanged | Updated::Changed | Updated::Inserted | Updated::Evicted) => {}
        }
        if outcome.is_ok() {
            EDITS.increment();
        }
        outcome
    }

    /// What the zone has of the group of this name, where its servers were changed.
    fn recorded(&self, group: &[u8]) -> Option<Roster> {
        let mut record = Vec::new();
        self.zone.store()?.get(self.zone.hash(group), &mut record)?;
        Roster::read_record(&record, &self.configured)
    }
}

impl UpstreamGroup {
    /// Has the servers that the zone says, where they were changed meanwhile.
    pub(crate) fn catch_up(&self) {
        let Some(editing) = &self.editing else { return };
        let former = std::mem::take(&mut *editing.former.lock().unwrap_or_else(PoisonError::into_inner));
        let Some(recorded) = editing.recorded(self.name()).map(Arc::new) else { return };
        self.roster.rcu(|known| Arc::clone(if known.version < recorded.version { &recorded } else { known }));
        let Members::Changing(members) = self.members() else { return };
        let mut made = Vec::new();
        members.rcu(|members| {
            let roster = self.roster.load();
            Arc::new(Making { members, former: &former, made: &mut made, times: self.times() }.group(&roster))
        });
        members.load().make_room();
    }
}

impl StateFile {
    /// Writes down what the zone says of the group of this name.
    ///
    /// # Errors
    /// As those of the system calls that it takes.
    pub(crate) fn keep(&self, blocking: &Blocking, editing: &Editing, group: &[u8]) -> io::Result<()> {
        let newest = || editing.recorded(group).unwrap_or_else(|| editing.configured.clone());
        self.write(blocking, || newest().file_text())
    }
}

/// A group whose servers are those of a roster.
struct Making<'a> {
    members: &'a Group,
    former: &'a [Arc<Peer>],
    /// Servers that were not there, made once.
    made: &'a mut Vec<Arc<Peer>>,
    times: u32,
}

impl Making<'_> {
    fn group(mut self, roster: &Roster) -> Group {
        let (mut primary, mut backup) = (Vec::new(), Vec::new());
        for (id, server) in &roster.servers {
            if server.lookup.is_some() {
                // Names go on leading where they lead.
                primary.extend(self.found(self.members.primary(), (*id, server)));
                backup.extend(self.found(self.members.backup(), (*id, server)));
                continue;
            }
            let list = if server.rank == Rank::Primary { &mut primary } else { &mut backup };
            for address in &server.addresses {
                list.push(self.peer(config_of((*id, server), address.clone(), self.times)));
            }
        }
        self.members.with_peers(primary, backup)
    }

    /// The servers of a name, with what is said of them now.
    fn found(&self, known: &[Arc<Peer>], (id, server): (u32, &ServerDraft)) -> Vec<Arc<Peer>> {
        let of_name = known.iter().filter(|peer| peer.config().source == id);
        let renewed = of_name.map(|peer| {
            let before = peer.config();
            let mut config = config_of((id, server), before.remote.clone(), self.times);
            config.server = Arc::clone(&before.server);
            if server.weight == 1 && server.lookup.as_ref().is_some_and(|lookup| lookup.service.is_some()) {
                config.weight = before.weight;
            }
            same_or_altered(peer, config)
        });
        renewed.collect()
    }

    fn peer(&mut self, config: PeerConfig) -> Arc<Peer> {
        let is_it = |peer: &&Arc<Peer>| {
            let known = peer.config();
            known.source == config.source && known.remote == config.remote
        };
        if let Some(known) = self.members.peers().find(is_it) {
            return same_or_altered(known, config);
        }
        if let Some(made) = self.made.iter().find(|made| made.config() == &config) {
            return Arc::clone(made);
        }
        let made = peer(config, self.former);
        self.made.push(Arc::clone(&made));
        made
    }
}

fn same_or_altered(peer: &Arc<Peer>, config: PeerConfig) -> Arc<Peer> {
    if *peer.config() == config { Arc::clone(peer) } else { peer.altered(config) }
}
