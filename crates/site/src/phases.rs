//! The phases of a request, and the handlers that a location has in them: listed once, at load, so that a
//! request walks a short flat array.

use std::ops::Range;

use clearway_runtime::Tag;

use crate::core::CoreLocation;
use crate::engine::Engine;
use crate::levels::Confs;
use crate::variables::VariableNames;

/// When a handler runs, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The head was read; of the server.
    PostRead,
    /// Before a location is looked for; of the server.
    ServerRewrite,
    /// The location is known.
    Rewrite,
    /// Limits.
    PreAccess,
    /// Access control: allow, deny, authentication.
    Access,
    /// Last chance to choose another file or location.
    PreContent,
    /// The handler that answers.
    Content,
    /// As `Content`, with what another server says. A request whose location has such a handler does not
    /// come to others when it goes on in an `if` that says of no server.
    Pass,
    /// The response is sent or given up.
    Log,
}

impl Phase {
    /// With which phase its handlers take turns, in the order of their modules.
    const fn turn(self) -> Self {
        match self {
            Self::Pass => Self::Content,
            phase => phase,
        }
    }

    /// As reports call it.
    pub const fn step(self) -> &'static str {
        match self {
            Self::PostRead => "in the post-read phase",
            Self::ServerRewrite => "in the server-rewrite phase",
            Self::Rewrite => "in the rewrite phase",
            Self::PreAccess => "in the preaccess phase",
            Self::Access => "in the access phase",
            Self::PreContent => "in the precontent phase",
            Self::Content | Self::Pass => "in the content phase",
            Self::Log => "in the log phase",
        }
    }
}

/// How much of a loop's time a handler can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Microseconds, whatever the request.
    Cheap,
    /// Unbounded: it runs foreign code. Where it blocked lately it runs detached from the start.
    MayBlock,
}

/// A module's part in a phase.
pub struct PhaseHandler<E: Engine> {
    /// When.
    pub phase: Phase,
    /// How much time it can take.
    pub cost: Cost,
    /// Whether it has anything to do in a location; asked once, at load.
    pub enabled: fn(&Enabling<'_, E>) -> bool,
    /// Its function.
    pub handler: E::Handler,
}

/// The facts that decide at load whether a handler or filter takes part in a location.
pub struct Enabling<'a, E: Engine> {
    /// The location's settings of all modules.
    pub confs: &'a Confs,
    /// The location's settings of the engine.
    pub core: &'a CoreLocation,
    /// The variables that the configuration uses.
    pub variables: &'a VariableNames<E>,
}

/// A handler in a location.
pub struct PhaseEntry<E: Engine> {
    /// Its function.
    pub handler: E::Handler,
    /// The tag of suspects; `None` for cheap handlers.
    pub tag: Option<Tag>,
    /// Its place among the handlers of all modules.
    pub order: u16,
    /// When it does it.
    pub phase: Phase,
}

/// Phases between which the engine has something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The server's rewrite phase, before a location is looked for.
    Server,
    /// Which may send the request to another location.
    Rewrite,
    /// Limits on connections and rates; before access control.
    Limits,
    /// Access control.
    Access,
    /// Up to the response.
    Answer,
    /// The end.
    Log,
}

/// The identity of a list that was chosen from handlers: each one's place among all, and its tag.
pub(crate) type ListKey = Vec<(u16, Option<Tag>)>;

/// The handlers of a location in their order; locations that do not differ in it share one.
pub struct PhaseList<E: Engine> {
    entries: Box<[PhaseEntry<E>]>,
    /// Where the handlers of all parts but the first begin.
    starts: [usize; 5],
}

/// The handlers of all modules in the order in which they run.
pub(crate) fn in_order<'m, E: Engine>(
    handlers: impl Iterator<Item = &'m PhaseHandler<E>>,
) -> Vec<&'m PhaseHandler<E>> {
    let mut handlers: Vec<_> = handlers.collect();
    handlers.sort_by_key(|handler| handler.phase.turn());
    handlers
}

impl<E: Engine> PhaseList<E> {
    /// Chooses of all handlers, in their order, those that are enabled; `name` tells this location from
    /// others.
    pub fn build(handlers: &[&PhaseHandler<E>], enabling: &Enabling<'_, E>, name: &[u8]) -> Self {
        let enabled = handlers.iter().zip(0..).filter(|(handler, _)| (handler.enabled)(enabling));
        let (phases, entries): (Vec<_>, Vec<_>) = enabled
            .map(|(handler, order)| {
                let tag = (handler.cost == Cost::MayBlock).then(|| tag(name, handler.phase));
                let phase = handler.phase;
                (phase, PhaseEntry { handler: handler.handler, tag, order, phase })
            })
            .unzip();
        let start_of = |first| phases.partition_point(|&phase| phase < first);
        let starts = [Phase::Rewrite, Phase::PreAccess, Phase::Access, Phase::PreContent, Phase::Log];
        let starts = starts.map(start_of);
        Self { entries: entries.into(), starts }
    }

    /// Tells lists apart that were chosen from the same handlers.
    pub fn key(&self) -> ListKey {
        self.entries.iter().map(|entry| (entry.order, entry.tag)).collect()
    }

    /// The places of the handlers of a part.
    pub fn part(&self, part: Part) -> Range<usize> {
        let [rewrite, limits, access, answer, log] = self.starts;
        match part {
            Part::Server => 0..rewrite,
            Part::Rewrite => rewrite..limits,
            Part::Limits => limits..access,
            Part::Access => access..answer,
            Part::Answer => answer..log,
            Part::Log => log..self.entries.len(),
        }
    }

    /// The rest of a part for a request that has just come here from another location, where the handler of
    /// this order had it.
    pub fn part_behind(&self, part: Part, order: u16) -> Range<usize> {
        let Range { start, end } = self.part(part);
        start + self.entries[start..end].partition_point(|entry| entry.order <= order)..end
    }

    /// Whether one of them asks another server.
    pub fn passes_on(&self) -> bool {
        self.entries.iter().any(|entry| entry.phase == Phase::Pass)
    }

    /// The handler at a place.
    pub fn entry(&self, index: usize) -> &PhaseEntry<E> {
        &self.entries[index]
    }

    /// The phase of the handler that suspects are known by with this tag.
    pub fn tagged(&self, tag: Tag) -> Option<Phase> {
        self.entries.iter().find(|entry| entry.tag == Some(tag)).map(|entry| entry.phase)
    }
}

fn tag(name: &[u8], phase: Phase) -> Tag {
    Tag::of(&[name, format!(" {phase:?}").as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tests::Nothing;

    #[test]
    fn a_tag_means_the_phase_of_its_handler() {
        let entry = |name: &[u8], order, phase| PhaseEntry::<Nothing> {
            handler: (),
            tag: Some(tag(name, phase)),
            order,
            phase,
        };
        let untagged = PhaseEntry { tag: None, ..entry(b"a:1", 0, Phase::Access) };
        let entries =
            [untagged, entry(b"a:1", 1, Phase::PreContent), entry(b"a:1", 2, Phase::Content)].into();
        let list = PhaseList { entries, starts: [0, 0, 0, 1, 3] };
        assert_eq!(list.tagged(tag(b"a:1", Phase::Content)), Some(Phase::Content));
        assert_eq!(list.tagged(tag(b"a:1", Phase::PreContent)), Some(Phase::PreContent));
        assert_eq!(list.tagged(tag(b"a:1", Phase::Access)), None);
        assert_eq!(list.tagged(tag(b"a:2", Phase::Content)), None);
    }
}
