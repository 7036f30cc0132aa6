//! `post_action`: what a location has done behind the response of a request, by the same request, so that
//! variables tell how that has gone. It goes through the phases from an internal redirect on; what it is
//! answered with is nobody's. Runs in the request's task, before the request is logged.

use std::pin::Pin;

use crate::config::request_directives::PAGES;
use crate::link::send_queue::Completion;
use crate::phases::engine::Active;
use crate::request::answer::{Answer, Redirect};
use crate::request::{Request, Stage};

/// The status of a connection that is closed without an answer, behind which nothing is done.
const CLOSED: u16 = 444;

impl<'c> Active<'c> {
    /// Whether the location says that something is done behind its responses, which has left or never will.
    #[inline]
    pub fn acts_behind_response(&self) -> bool {
        self.request.conf(&PAGES).post_action.is_some() && self.output.status() != CLOSED
    }

    /// Does what the location says. Boxed, as most requests should not have to have room for it.
    #[cold]
    pub fn act_behind_response(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.run_post_actions())
    }

    async fn run_post_actions(&mut self) {
        if self.body.discard_received().is_err() {
            // The connection finds that out when it reads on behind this request.
            return;
        }
        let completion = if self.output.is_completed() { Completion::Whole } else { Completion::Cut };
        let behind = self.output.begin_behind(completion);
        let response = std::mem::replace(&mut self.output, behind);
        debug_assert!(self.request.stage == Stage::Open, "actions are not nested");
        self.request.stage = Stage::Behind;
        // As in nginx: where an action leads to a location with one, that follows.
        while let Some(action) = next_action(&self.request) {
            // The answer goes to no client.
            let _ = self.follow(action).await;
            self.request.strands().finish_joined().await;
        }
        self.request.stage = Stage::Open;
        let behind = std::mem::replace(&mut self.output, response);
        debug_assert_eq!(behind.sent_bytes(), self.output.sent_bytes(), "nothing of an action is sent");
        self.output.head = behind.into_head();
    }
}

/// The next action; `None` if there is none, or there were too many redirects.
fn next_action(request: &Request<'_>) -> Option<Answer> {
    let action = Option::as_ref(&request.conf(&PAGES).post_action)?;
    if request.redirects_left == 0 {
        return None;
    }
    Some(match action.first() {
        Some(b'/') => Answer::Redirect(Box::new(Redirect { path: action.to_vec(), args: None })),
        _ => Answer::Named(action[..].into()),
    })
}
