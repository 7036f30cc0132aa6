//! A request on a stream: one of several at once on a connection, each in a task of its own, which holds all
//! that it stands on. What moves frames is the connection's task.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use clearway_h2::request::HeadFault;
use clearway_http::{Active, Client, Link, Parts, Setup, Stage, Strands, Stream, StreamFault, Way};

/// The status of a request whose client was waited for in vain.
const TIMED_OUT: u16 = 408;

/// In which form the head of a request has come.
pub(crate) enum Arrived {
    /// As HTTP/1 writes it, to be parsed.
    Text,
    /// As a head.
    Head,
    /// As one that is to be refused.
    Fault(HeadFault),
}

/// The request's side of a stream: whatever becomes of the task, its connection learns that it is over.
struct Leaving(Arc<Stream>);

impl Drop for Leaving {
    fn drop(&mut self) {
        if !self.0.has_left() {
            self.0.abort(StreamFault::Other);
        }
    }
}

/// Answers the request whose complete head is in `parts` as HTTP/1 writes it; it is the connection's
/// `number`th. To be spawned on the loop that the client is at home on.
pub async fn serve_stream(
    client: Arc<Client>,
    setup: Arc<Setup>,
    stream: Arc<Stream>,
    parts: Box<Parts>,
    number: u64,
) {
    serve_arrived(client, setup, stream, parts, (number, Arrived::Text)).await;
}

/// As [`serve_stream`], for a head in any form.
pub(crate) async fn serve_arrived(
    client: Arc<Client>,
    setup: Arc<Setup>,
    stream: Arc<Stream>,
    mut parts: Box<Parts>,
    (number, arrived): (u64, Arrived),
) {
    let stream = Leaving(stream);
    let way = Way { client: &client, setup: &setup, link: Link::Stream(&stream.0) };
    // Declared before the request, which refers to it: its background work.
    let strands = Strands::default();
    let mut active = Active::new(way, &strands, &mut parts, 0, number);
    Stage::begin_stream(client.home.index());
    let answered = {
        let mut answering = pin!(answer(&mut active, &stream.0, arrived));
        let mut is_registered = false;
        poll_fn(|cx| {
            let polled = strands.poll_beside(answering.as_mut(), cx);
            if polled.is_ready() {
                return polled.map(Some);
            }
            stream.0.note_acted();
            // A task has one waker for all of its life.
            let is_cut = match std::mem::replace(&mut is_registered, true) {
                true => stream.0.is_cut(),
                false => stream.0.is_cut_or_register(cx.waker()),
            };
            if is_cut { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    };
    let is_complete = answered.unwrap_or_else(|| {
        active.cut();
        false
    });
    let status = active.status();
    Stage::end_stream(client.home.index(), status);
    if active.logs_slowly() {
        Box::pin(active.log_slowly()).await;
    }
    active.log();
    active.end();
    if is_complete {
        stream.0.finish();
    } else {
        stream.0.abort(if status == TIMED_OUT { StreamFault::TimedOut } else { StreamFault::Other });
    }
    if !strands.is_empty() {
        // The response has ended; what is apart from it refers to the request.
        let mut finishing = Box::pin(strands.finish());
        poll_fn(|cx| strands.poll_beside(finishing.as_mut(), cx)).await;
    }
    drop(active);
    client.put_back(parts);
}

/// Whether there is a response that was written to its end.
async fn answer(active: &mut Active<'_>, stream: &Stream, arrived: Arrived) -> bool {
    let parsed = match arrived {
        Arrived::Text => active.parse_head(),
        Arrived::Head => Some(Ok(())),
        Arrived::Fault(fault) => {
            if fault.is_malformed() {
                stream.note_malformed();
            }
            Box::pin(active.refuse_head(fault)).await;
            return active.is_complete();
        }
    };
    match parsed {
        Some(Ok(())) => {
            active.begin_stream_body(stream);
            let is_sent = active.run().await.is_ok() && active.send_rest().await.is_ok();
            if active.acts_behind_response() {
                active.act_behind_response().await;
            }
            is_sent && active.is_persistent()
        }
        Some(Err(fault)) => {
            Box::pin(active.refuse(fault)).await;
            active.is_complete()
        }
        None => {
            active.give_up(400, format_args!("client sent an incomplete request"));
            false
        }
    }
}
