//! Servers that are added, changed and removed while serving. What the servers of a group are is written down
//! in its zone, by one compare-and-swap (`zone::Store`), so that it outlives reloads and workers; then all
//! groups of that name in this process are made the same (`remaking`). Edits run on loops; a configuration
//! that comes into use catches up before requests get to know it. A worker that drains goes on with what it
//! had.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use clearway_metrics::Counter;
use clearway_offload::Blocking;
use clearway_upstream::{Common, Peer};
use clearway_zone::{Unkept, Updated, Zone};

use crate::upstreams::line::Ranks;
use crate::upstreams::roster::{Refused, Roster};
use crate::upstreams::state_file::StateFile;

/// Changes of groups while serving.
pub(crate) static EDITS: Counter = Counter::new(
    "upstream_edits_total",
    "changes",
    "Servers of groups that were added, changed or removed while serving (`status write=on`).",
);

/// The state of a group whose servers are changed while serving.
pub(crate) struct Editing {
    zone: Arc<Zone>,
    /// Where other processes know how its servers fare.
    common: Option<Arc<dyn Common>>,
    state: Option<Arc<StateFile>>,
    configured: Roster,
    ranks: Ranks,
    /// Servers of the configuration before, until this one is in use.
    former: Mutex<Vec<Arc<Peer>>>,
}

/// Why servers were not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotEdited {
    /// The change makes no sense.
    Refused(Refused),
    /// The zone has no room for it.
    NoRoom,
    /// Other processes were faster, or too many processes use the zone.
    Busy,
}

impl Editing {
    pub(crate) fn new(
        (zone, common): (Arc<Zone>, Option<Arc<dyn Common>>),
        state: Option<Arc<StateFile>>,
        (configured, ranks): (Roster, Ranks),
        former: Vec<Arc<Peer>>,
    ) -> Self {
        Self { zone, common, state, configured, ranks, former: Mutex::new(former) }
    }

    /// The state of the group that other processes share.
    pub(crate) fn common(&self) -> Option<&Arc<dyn Common>> {
        self.common.as_ref()
    }

    pub(crate) fn zone(&self) -> &Arc<Zone> {
        &self.zone
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

    /// Servers of the configuration before; there are none from now on.
    pub(crate) fn take_former(&self) -> Vec<Arc<Peer>> {
        std::mem::take(&mut *self.former.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The servers of the group of this name in the zone, if they were changed.
    pub(crate) fn recorded(&self, group: &[u8]) -> Option<Roster> {
        let mut record = Vec::new();
        self.zone.store()?.get(self.zone.hash(group), &mut record)?;
        Roster::read_record(&record, &self.configured)
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
