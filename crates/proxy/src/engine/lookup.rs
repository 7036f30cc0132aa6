//! A request waits for the address of its server; its client may leave meanwhile.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use clearway_base::Errno;
use clearway_base::log::Level;
use clearway_http::{Request, Step};
use clearway_upstream::Group;

use crate::engine::session::CLIENT_CLOSED_REQUEST;
use crate::settings::pass::PassConf;
use crate::upstreams::Question;

/// Asks for the servers. Where the client leaves (and `…_ignore_client_abort` does not say otherwise) nobody
/// is asked any more, unless other requests wait for the same name.
///
/// # Errors
/// What the request is answered with.
pub(super) async fn servers_of(
    question: Question<'_>,
    request: &mut Request<'_>,
    pass: &PassConf,
) -> Result<Arc<Group>, Step<'static>> {
    let watches = !*pass.ignore_client_abort;
    let mut asking = pin!(question.ask(request.home()));
    let found = std::future::poll_fn(|cx| {
        if let Poll::Ready(found) = asking.as_mut().poll(cx) {
            return Poll::Ready(Ok(found));
        }
        match request.poll_closed(cx) {
            Poll::Ready(closed) if watches => Poll::Ready(Err(closed)),
            _ => Poll::Pending,
        }
    });
    match found.await {
        Ok(Ok(group)) => Ok(group),
        Ok(Err(message)) => {
            request.log(Level::Error, format_args!("{message}"));
            Err(Step::status(502))
        }
        Err(closed) => {
            log_departure(request, closed, "");
            Err(Step::status(CLIENT_CLOSED_REQUEST))
        }
    }
}

/// Says that the client has left, and what comes of it.
pub(super) fn log_departure(request: &Request<'_>, closed: io::Result<()>, end: &str) {
    let error = closed.err().map(|error| format!(" {}", Errno(&error))).unwrap_or_default();
    let message = "epoll_wait() reported that client prematurely closed connection";
    request.log(Level::Info, format_args!("{message}{end}{error}"));
}
