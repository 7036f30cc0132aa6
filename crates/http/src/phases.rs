//! The phases of a request, what modules do in them, and what a handler can answer. Per location the
//! handlers that have something to do there are listed once, at load, so that a request walks a short
//! flat array. Runs in the request's task.
//!
//! The engine's own steps stand between the phases: find-config after `ServerRewrite`, post-rewrite
//! after `Rewrite` (back to find-config if the path was changed), post-access after `Access`.

pub(crate) mod access;
pub(crate) mod engine;

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;

use clearway_runtime::Tag;

use crate::config::levels::Confs;
use crate::output::Output;
use crate::request::Request;
use crate::request::body::Body;
use crate::snapshot::CoreLocation;
use crate::variables::{VariableNames, View};

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
    /// Who may.
    Access,
    /// Last chance to choose another file or location.
    PreContent,
    /// Who answers.
    Content,
    /// The response is sent or given up.
    Log,
}

/// A request in the hands of a handler: what was asked, the body still to be read, and the answer.
pub struct Exchange<'a, 'c> {
    /// The request head and how it was routed.
    pub request: &'a mut Request<'c>,
    /// The request body.
    pub body: Body<'a, 'c>,
    /// The response.
    pub output: Output<'a, 'c>,
}

impl<'c> Exchange<'_, 'c> {
    /// What variables are evaluated on.
    pub fn view(&self) -> View<'_, 'c> {
        View::new(self.request, self.output.state)
    }
}

/// Does its part in a phase.
pub type Handler = for<'a, 'c> fn(Exchange<'a, 'c>) -> Step<'a>;

/// What a handler that has to wait for something runs on with.
pub type Wait<'a> = Pin<Box<dyn Future<Output = Step<'static>> + Send + 'a>>;

/// What a handler answers.
pub enum Step<'a> {
    /// It has nothing to say; the next one is asked.
    Declined,
    /// In the access phase: the client may, as far as this handler goes (`satisfy`). Else as `Declined`.
    Allowed,
    /// It has pushed the response.
    Done,
    /// The engine answers so.
    Respond(Answer),
    /// It will say later.
    Wait(Wait<'a>),
}

/// How the engine is to answer in a handler's place.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// With this status: the `error_page` for it, or the built-in page.
    Status(u16),
    /// With what another path gives.
    Redirect(Box<Redirect>),
    /// With what the named location (`@name`) gives.
    Named(Box<[u8]>),
    /// By closing the connection.
    Close,
    /// By closing the connection of somebody who is gone; the status is for the log.
    Abandon(u16),
}

/// Where an internal redirect leads.
#[derive(Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The new path, decoded.
    pub path: Vec<u8>,
    /// The new arguments, as they would be sent; `None`: there are none, and `$args` is not found.
    pub args: Option<Vec<u8>>,
}

impl Step<'_> {
    /// Answers with a status.
    pub const fn status(code: u16) -> Self {
        Self::Respond(Answer::Status(code))
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
pub struct PhaseHandler {
    /// When.
    pub phase: Phase,
    /// How much time it can take.
    pub cost: Cost,
    /// Whether it has anything to do in a location; asked once, at load.
    pub enabled: fn(&Enabling<'_>) -> bool,
    /// What it does.
    pub handler: Handler,
}

/// What decides at load whether a handler or filter takes part in a location.
pub struct Enabling<'a> {
    /// The location's settings of all modules.
    pub confs: &'a Confs,
    /// The location's settings of the engine.
    pub core: &'a CoreLocation,
    /// The variables that the configuration uses.
    pub variables: &'a VariableNames,
}

/// A handler in a location.
pub(crate) struct PhaseEntry {
    pub(crate) handler: Handler,
    /// What suspects are known by; `None` for cheap handlers.
    pub(crate) tag: Option<Tag>,
    /// Its place among the handlers of all modules.
    pub(crate) order: u16,
    pub(crate) phase: Phase,
}

/// Phases between which the engine has something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Of the server, before a location is looked for.
    Server,
    /// Which may send the request to another location.
    Rewrite,
    /// Before anybody asks who may.
    Limits,
    /// Who may.
    Access,
    /// Up to the response.
    Answer,
    /// The end.
    Log,
}

/// The handlers of a location in their order; locations that do not differ in it share one.
#[derive(Default)]
pub(crate) struct PhaseList {
    entries: Box<[PhaseEntry]>,
    /// Where the handlers of all parts but the first begin.
    starts: [usize; 5],
}

/// The handlers of all modules in the order in which they run.
pub(crate) fn in_order<'m>(handlers: impl Iterator<Item = &'m PhaseHandler>) -> Vec<&'m PhaseHandler> {
    let mut handlers: Vec<_> = handlers.collect();
    handlers.sort_by_key(|handler| handler.phase);
    handlers
}

impl PhaseList {
    /// Chooses of all handlers, in their order, those that are enabled; `name` tells this location from
    /// others.
    pub(crate) fn build(handlers: &[&PhaseHandler], enabling: &Enabling<'_>, name: &[u8]) -> Self {
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
    pub(crate) fn key(&self) -> Vec<(u16, Option<Tag>)> {
        self.entries.iter().map(|entry| (entry.order, entry.tag)).collect()
    }

    pub(crate) fn part(&self, part: Part) -> Range<usize> {
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

    /// What is left of a part for a request that has just come here from another location, where it was
    /// in the hands of the handler of this order.
    pub(crate) fn part_behind(&self, part: Part, order: u16) -> Range<usize> {
        let Range { start, end } = self.part(part);
        start + self.entries[start..end].partition_point(|entry| entry.order <= order)..end
    }

    pub(crate) fn entry(&self, index: usize) -> &PhaseEntry {
        &self.entries[index]
    }

    /// The phase of the handler that suspects are known by with this tag.
    pub(crate) fn tagged(&self, tag: Tag) -> Option<Phase> {
        self.entries.iter().find(|entry| entry.tag == Some(tag)).map(|entry| entry.phase)
    }
}

fn tag(name: &[u8], phase: Phase) -> Tag {
    Tag::of(&[name, format!(" {phase:?}").as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_means_the_phase_of_its_handler() {
        let entry = |name: &[u8], order, phase| PhaseEntry {
            handler: |_| Step::Declined,
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
