//! Groups whose servers were changed while serving (`editing`) are made anew, of servers that go on as they
//! were. Any thread.

use std::sync::Arc;

use clearway_upstream::{Common, Group, Peer, PeerConfig};

use crate::upstreams::editing::Editing;
use crate::upstreams::group::{Members, UpstreamGroup, config_of};
use crate::upstreams::lasting::peer;
use crate::upstreams::line::{Rank, ServerDraft};
use crate::upstreams::roster::Roster;

impl UpstreamGroup {
    /// How its servers fare other processes know as well from here on, if it has a zone and there are any.
    pub(crate) fn join_others(&self) {
        let Some(common) = self.common() else { return };
        if let Members::Changing(members) = self.members() {
            members.rcu(|members| Arc::new(members.in_common(common)));
        }
        if let Some(budget) = &self.budget {
            budget.share(&**common);
        }
    }

    /// The memory that it has in common with other processes.
    pub(crate) fn common(&self) -> Option<&Arc<dyn Common>> {
        self.editing.as_ref().and_then(Editing::common)
    }

    /// Has the servers that the zone says, where they were changed meanwhile.
    pub(crate) fn catch_up(&self) {
        let Some(editing) = &self.editing else { return };
        let former = editing.take_former();
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

    /// Makes the groups anew after another process has changed the servers.
    pub(crate) fn follow_others(&self) {
        let Some(editing) = &self.editing else { return };
        let recorded = editing.recorded(self.name());
        if recorded.is_some_and(|recorded| recorded.version > self.roster.load().version) {
            self.catch_up();
        }
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
