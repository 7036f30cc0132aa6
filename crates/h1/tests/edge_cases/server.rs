//! The least server there can be around parser and body reader: what nginx does with
//! `location / { return 200 "…"; }`, no socket involved.

use clearway_h1::{Fault, Options};
use clearway_message::{HeaderName, Method, RequestHead, Version};

use crate::connection::{EndPlace, Event, Received, Wish, receive};

/// `client_max_body_size`'s default.
const BODY_MAX_BYTES: u64 = 1 << 20;

/// One answer: how the table spells it, and what it says about the request
/// (for faults, what the error log says).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) spelled: String,
    pub(crate) body: String,
}

/// Answers to `input` when it arrives `step` bytes at a time.
pub(crate) fn answer(input: &[u8], step: usize) -> Vec<Answer> {
    let mut answers = Vec::new();
    // Of the request that is being received.
    let mut waiting = None;
    let mut goes_on = true;
    let end = receive(input.chunks(step), &Options::default(), |event| {
        if !goes_on {
            return Wish::Close;
        }
        match event {
            Event::Head(received, bytes) => {
                if let Some(fault) = judge_method(received.head).or_else(|| judge_path(received.head, bytes))
                {
                    answers.push(refuse(fault, received, bytes));
                    goes_on = false;
                    return Wish::Close;
                }
                let keeps_alive = received.parser.wants_keep_alive(received.head);
                waiting = Some((accept(received.head, describe(received, bytes)), keeps_alive));
            }
            Event::Body(_) => {}
            Event::End => {
                let (answer, keeps_alive) = waiting.take().expect("a head came before");
                answers.push(answer);
                goes_on = keeps_alive;
            }
            Event::Refused(fault, head, bytes) => {
                waiting = None;
                answers.push(refuse(fault, head, bytes));
            }
        }
        Wish::Keep(BODY_MAX_BYTES)
    });
    if end.place == EndPlace::Body {
        // The answer does not wait for the body.
        answers.extend(waiting.map(|(answer, _)| answer));
    }
    answers
}

fn accept(head: &RequestHead, body: String) -> Answer {
    let body = if head.method() == Method::Head { String::new() } else { body };
    let spelled = if head.version() == Version::HTTP_09 { "0.9" } else { "200" };
    Answer { spelled: spelled.to_owned(), body }
}

fn refuse(fault: Fault, Received { head, parser }: Received<'_>, bytes: &[u8]) -> Answer {
    let prefix = if head.version() == Version::HTTP_09 { "0.9-" } else { "" };
    Answer {
        spelled: format!("{prefix}{}", fault.page()),
        body: parser.describe(head, fault, bytes).to_string(),
    }
}

/// A server that carries no tunnels.
fn judge_method(head: &RequestHead) -> Option<Fault> {
    (head.method() == Method::Connect).then_some(Fault::Connect)
}

/// Stands in for the normalizing of paths, which is not the codec's: climbing above the root.
fn judge_path(head: &RequestHead, bytes: &[u8]) -> Option<Fault> {
    assert_eq!(head.line.path_is_plain, is_plain(head.line.path.of(bytes)));
    head.line.path.of(bytes).starts_with(b"/..").then_some(Fault::InvalidRequest)
}

fn is_plain(path: &[u8]) -> bool {
    let text = String::from_utf8_lossy(path);
    !(text.contains('%') || text.contains("//") || text.contains("/."))
}

/// The variables of `oracle::CONFIGURATION`, in its order.
fn describe(Received { head, parser }: Received<'_>, bytes: &[u8]) -> String {
    let text = |span: clearway_message::Span| {
        span.of(bytes).iter().map(|&byte| char::from(byte)).collect::<String>()
    };
    let host = head.host.map_or_else(|| "none".to_owned(), |host| text(host.name).to_lowercase());
    let mut x = String::new();
    for value in head.headers.named(bytes, HeaderName::new(b"x")) {
        let value: String = value.iter().map(|&byte| char::from(byte)).collect();
        x = if x.is_empty() { value } else { format!("{x}, {value}") };
    }
    format!(
        "{}|{}|{}|{}|{}|{}|{x}",
        text(head.line.method_name),
        text(head.line.raw),
        text(head.line.args),
        host,
        text(head.line.protocol),
        parser.size(head),
    )
}
