//! Requests that the server makes to ask other servers something (`health_check`): no client has sent them
//! and none gets an answer. What a location says is evaluated on them. Runs in the task that asks.

use clearway_site::{LocationId, Part, ServerId, locations::Found};

use crate::phases::Step;
use crate::phases::engine::Active;
use crate::request::{LocationState, Origin};

/// The question cannot be made the head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHead;

impl Active<'_> {
    /// Parses the head, which has to be complete, and puts the request into a location, whether its path
    /// leads there or not. What rewrites requests in the server and in the location is carried out, so that
    /// variables have their values (`set`); answers and redirects of it are not followed. No log gets to
    /// know of the request.
    ///
    /// # Errors
    /// The head is none.
    pub async fn enter(&mut self, server: ServerId, location: LocationId) -> Result<(), NoHead> {
        self.request.leave_unlogged();
        let Some(Ok(())) = self.parse_head() else { return Err(NoHead) };
        let request = &mut self.request;
        request.method = request.parts.head.method();
        // A target that cannot be taken apart is asked for as it is.
        let _ = request.take_target();
        request.node_mut().origin = Origin::Internal;
        request.enter_server(server, "");
        self.rewrite(Part::Server).await;
        let request = &mut self.request;
        let found = request.find_location();
        let leads_there = matches!(found, Ok(Found::Location(found)) if found == location);
        let location = request.snapshot.location(location);
        let node = request.node_mut();
        node.location = location;
        if !leads_there {
            node.rewriting.place = LocationState::Lost;
        }
        self.rewrite(Part::Rewrite).await;
        // An `if` may have led to what it says.
        self.request.node_mut().location = location;
        Ok(())
    }

    async fn rewrite(&mut self, part: Part) {
        let phases = &self.request.location().phases;
        for index in phases.part(part) {
            let step = Box::pin(self.run_entry(phases.entry(index))).await;
            if !matches!(step, Step::Declined | Step::Allowed) {
                return;
            }
        }
    }
}
