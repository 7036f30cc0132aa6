//! The phases of a request, what modules do in them, and what a handler can answer. Per location the
//! handlers that have something to do there are listed once, at load, so that a request walks a short
//! flat array. Runs in the request's task.
//!
//! The engine's own steps stand between the phases: find-config after `ServerRewrite`, post-rewrite
//! after `Rewrite` (back to find-config if the path was changed), post-access after `Access`.

pub(crate) mod access;
pub(crate) mod balancer;
pub(crate) mod early_read;
pub(crate) mod engine;
pub(crate) mod handshake;
pub(crate) mod made_body;
mod pause;
mod post_action;
pub(crate) mod protocol;
pub(crate) mod question;
pub(crate) mod read_body;
pub(crate) mod redirect;
pub(crate) mod script;
pub(crate) mod spool;
pub(crate) mod subrequest;
pub(crate) mod tunnel;

use std::future::Future;
use std::io;
use std::pin::Pin;

use crate::output::view::{Assign, Computed, Eval, View};
use crate::output::{HeaderFilter, Output};
use crate::request::Request;
use crate::request::answer::Answer;
use crate::request::body::Body;
use crate::tables::Http;

/// A request in the hands of a handler: what was asked, the body still to be read, and the answer.
pub struct Exchange<'a, 'c> {
    /// The request head and how it was routed.
    pub request: &'a mut Request<'c>,
    /// The request body.
    pub body: Body<'a>,
    /// The response.
    pub output: Output<'a, 'c>,
}

impl<'c> Exchange<'_, 'c> {
    /// The request as variables see it.
    pub fn view(&self) -> View<'_, 'c> {
        View::new(self.request, self.output.state)
    }
}

impl clearway_site::Engine for Http {
    type Handler = Handler;
    type HeaderFilter = HeaderFilter;
    type Eval = Eval;
    type Assign = Assign;
    type Computed = dyn Computed;
}

/// Does its part in a phase.
pub type Handler = for<'a, 'c> fn(Exchange<'a, 'c>) -> Step<'a>;

/// The future of a handler that has to wait.
pub type Wait<'a> = Pin<Box<dyn Future<Output = Step<'static>> + Send + 'a>>;

/// The answer of a handler.
pub enum Step<'a> {
    /// The handler does not answer; the next one is asked.
    Declined,
    /// In the access phase: the client may, as far as this handler goes (`satisfy`). Else as `Declined`.
    Allowed,
    /// The handler has pushed the response.
    Done,
    /// The engine answers so.
    Respond(Answer),
    /// Its client has left while it waited; with an error if the connection broke.
    Left(io::Result<()>),
    /// The handler waits and answers later. If the client leaves before, the future is dropped.
    Wait(Wait<'a>),
    /// The handler waits and answers later, and looks itself for a client that leaves
    /// ([`Request::poll_closed`]).
    WaitRegardless(Wait<'a>),
}

impl Step<'_> {
    /// Answers with a status.
    pub const fn status(code: u16) -> Self {
        Self::Respond(Answer::Status(code))
    }
}
