//! How the commands of a location are carried out.

use bytes::Bytes;
use clearway_base::log::{Level, Verbatim};
use clearway_http::{Answer, Chunk, Exchange, Mark, Pushed, Ranges, Redirect, Step, Store};

use super::subrequests::{self, target};
use super::{Command, ECHO_CONF, EchoState, STATE, Verb};

/// The size of the pieces in which a body in a file is sent back, bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// Texts that a loop of `echo_foreach_split` is for.
struct Each {
    /// The command that began it.
    began_at: usize,
    items: std::vec::IntoIter<Vec<u8>>,
}

/// Why no further command is carried out.
pub(super) enum Stopped {
    /// The engine answers in its place.
    Answer(Answer),
    /// The output was sent in part, and the rest cannot be made.
    Failed,
}

impl From<Answer> for Stopped {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}

pub(super) async fn run(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    let commands = &exchange.request.conf(&ECHO_CONF).commands;
    if !commands.iter().any(|command| command.verb.needs_body())
        && let Err(answer) = exchange.discard_body()
    {
        return Step::Respond(answer);
    }
    match run_all(&mut exchange, commands).await {
        Ok(()) => {}
        Err(Stopped::Answer(answer)) if !exchange.output.head_sent() => return Step::Respond(answer),
        Err(Stopped::Answer(Answer::Abandon(status))) => return Step::Respond(Answer::Abandon(status)),
        Err(Stopped::Answer(_)) => return Step::Respond(Answer::Close),
        Err(Stopped::Failed) => return Step::Done,
    }
    begin(&mut exchange);
    let _ = exchange.output.write(exchange.request, Chunk::EMPTY, Mark::Last);
    Step::Done
}

async fn run_all(exchange: &mut Exchange<'_, '_>, commands: &[Command]) -> Result<(), Stopped> {
    let (mut at, mut each): (usize, Option<Each>) = (0, None);
    while let Some(command) = commands.get(at) {
        at += 1;
        match command.verb {
            Verb::ForeachSplit => {
                if each.is_some() {
                    return Err(refuse(exchange, "Nested echo_foreach not supported yet."));
                }
                let mut items = split(&command.arguments.eval(&exchange.view())).into_iter();
                match items.next() {
                    Some(item) => {
                        state(exchange).item = Some(item);
                        each = Some(Each { began_at: at, items });
                    }
                    None => at = behind_end(commands, at),
                }
            }
            Verb::End => match &mut each {
                None => {
                    let text = "Found a echo_end that has no corresponding echo_foreach before it.";
                    return Err(refuse(exchange, text));
                }
                Some(of) => {
                    let item = of.items.next();
                    if item.is_some() {
                        at = of.began_at;
                    }
                    if item.is_none() {
                        each = None;
                    }
                    state(exchange).item = item;
                }
            },
            _ => perform(exchange, command).await?,
        }
    }
    Ok(())
}

pub(super) fn refuse(exchange: &Exchange<'_, '_>, text: &str) -> Stopped {
    exchange.request.log(Level::Error, format_args!("{text}"));
    Stopped::Answer(Answer::Status(500))
}

/// Where commands go on behind the `echo_end` that is next.
fn behind_end(commands: &[Command], at: usize) -> usize {
    let end = commands[at..].iter().position(|command| command.verb == Verb::End);
    end.map_or(commands.len(), |end| at + end + 1)
}

/// The pieces of a text between delimiters, without empty ones.
fn split(arguments: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let [delimiter, text, ..] = arguments else { return Vec::new() };
    if delimiter.is_empty() {
        return vec![text.clone()];
    }
    let (mut pieces, mut rest) = (Vec::new(), &text[..]);
    while !rest.is_empty() {
        let found = rest.windows(delimiter.len()).position(|window| window == delimiter);
        let (piece, behind) = match found {
            Some(at) => (&rest[..at], &rest[at + delimiter.len()..]),
            None => (rest, &[][..]),
        };
        if !piece.is_empty() {
            pieces.push(piece.to_vec());
        }
        rest = behind;
    }
    pieces
}

fn state<'e>(exchange: &'e mut Exchange<'_, '_>) -> &'e mut EchoState {
    if exchange.request.context(&STATE).is_none() {
        exchange.request.set_context(&STATE, EchoState::default());
    }
    exchange.request.context_mut(&STATE).expect("it was set, and is this request's alone")
}

/// Carries out one command.
async fn perform(exchange: &mut Exchange<'_, '_>, command: &Command) -> Result<(), Stopped> {
    if command.verb == Verb::Echo {
        let line = command.arguments.line(&exchange.view());
        return send(exchange, line, Mark::More).await;
    }
    let arguments = command.arguments.eval(&exchange.view());
    match command.verb {
        Verb::Duplicate => duplicate(exchange, &arguments).await,
        Verb::Flush => send(exchange, Bytes::new(), Mark::Flush).await,
        Verb::Sleep => sleep(exchange, &arguments).await,
        Verb::ResetTimer => {
            let elapsed_ms = exchange.request.elapsed_ms();
            state(exchange).timer_began_ms = elapsed_ms;
            Ok(())
        }
        verb if verb.asks() => subrequests::ask(exchange, verb, arguments).await,
        Verb::RequestBody => send_body(exchange).await,
        Verb::ReadRequestBody => {
            exchange.read_body(Store::AsConfigured).await?;
            Ok(())
        }
        Verb::AbortParent => {
            let text = format!("unknown opcode: {}", Verb::AbortParent as u8);
            Err(refuse(exchange, &text))
        }
        Verb::Exec => Err(Stopped::Answer(redirect(exchange, &arguments))),
        _ => unreachable!("these are not carried out here"),
    }
}

/// Fills the head, before the first of the body.
fn begin(exchange: &mut Exchange<'_, '_>) {
    if exchange.output.head_sent() {
        return;
    }
    let status = *exchange.request.conf(&ECHO_CONF).status;
    let content_type = exchange.request.content_type();
    let head = exchange.output.head();
    head.status = status;
    head.content_type = content_type.map(Into::into);
    head.content_length = None;
    head.ranges = Ranges::Refused;
}

pub(super) async fn send(exchange: &mut Exchange<'_, '_>, text: Bytes, mark: Mark) -> Result<(), Stopped> {
    begin(exchange);
    let pushed = exchange.output.write(exchange.request, Chunk::Shared(text), mark);
    if pushed == Pushed::Full || mark == Mark::Flush {
        exchange.output.ready(exchange.request).await.map_err(|_| Stopped::Failed)?;
    }
    Ok(())
}

async fn duplicate(exchange: &mut Exchange<'_, '_>, arguments: &[Vec<u8>]) -> Result<(), Stopped> {
    /// Copies that are sent at a time.
    const COPIES_BYTES: usize = 16 * 1024;
    let [count, text, ..] = arguments else { return Ok(()) };
    let digits: Vec<u8> = count.iter().copied().filter(|&byte| byte != b'_').collect();
    let Some(count) = std::str::from_utf8(&digits).ok().and_then(|digits| digits.parse::<usize>().ok())
    else {
        let text = format!("invalid size specified: \"{}\"", Verbatim(count));
        return Err(refuse(exchange, &text));
    };
    if text.is_empty() {
        return send(exchange, Bytes::new(), Mark::More).await;
    }
    let at_once = (COPIES_BYTES / text.len()).clamp(1, count.max(1));
    let copies = Bytes::from(text.repeat(at_once));
    let mut left = count;
    while left > 0 {
        let now = left.min(at_once);
        send(exchange, copies.slice(..now * text.len()), Mark::More).await?;
        left -= now;
    }
    Ok(())
}

async fn sleep(exchange: &mut Exchange<'_, '_>, arguments: &[Vec<u8>]) -> Result<(), Stopped> {
    let duration = arguments.first().map_or(&[][..], |argument| argument);
    let Some(delay_ms) = milliseconds(duration) else {
        let text = format!("invalid sleep duration \"{}\"", Verbatim(duration));
        return Err(refuse(exchange, &text));
    };
    exchange.pause(delay_ms).await?;
    Ok(())
}

/// The milliseconds in a text of seconds with up to three decimal places.
fn milliseconds(text: &[u8]) -> Option<u64> {
    let (whole, part) = match text.iter().position(|&byte| byte == b'.') {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &[][..]),
    };
    let is_number = !text.is_empty() && whole.iter().chain(part).all(u8::is_ascii_digit);
    if !is_number || part.len() > 3 || whole.is_empty() && part.is_empty() {
        return None;
    }
    let digits = [whole, part, &b"000"[part.len()..]].concat();
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

fn redirect(exchange: &Exchange<'_, '_>, arguments: &[Vec<u8>]) -> Answer {
    if let Some(name) = arguments.first().filter(|first| first.starts_with(b"@")) {
        if let Some(args) = arguments.get(1) {
            let (args, name) = (Verbatim(args), Verbatim(name));
            let text = format_args!("querystring {args} ignored when exec'ing named location {name}");
            exchange.request.log(Level::Warn, text);
        }
        return Answer::Named(name.clone().into());
    }
    match target(arguments) {
        Some((path, args)) => Answer::Redirect(Box::new(Redirect { path, args })),
        None => Answer::Status(500),
    }
}

/// Sends the body of the request, if it was read.
async fn send_body(exchange: &mut Exchange<'_, '_>) -> Result<(), Stopped> {
    let Some(body) = exchange.request.stored_body().cloned() else { return Ok(()) };
    if let Some(bytes) = body.in_memory() {
        if bytes.is_empty() {
            return Ok(());
        }
        return send(exchange, bytes.clone(), Mark::More).await;
    }
    let mut offset = 0;
    while offset < body.len() {
        let piece = body.read(offset, PIECE_BYTES).await.map_err(|_| Answer::Status(500))?;
        if piece.is_empty() {
            return Err(Stopped::Answer(Answer::Status(500)));
        }
        offset += piece.len() as u64;
        send(exchange, piece, Mark::More).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_places() {
        for (text, ms) in [("1", Some(1000)), ("0.05", Some(50)), (".5", Some(500)), ("1.5", Some(1500))] {
            assert_eq!(milliseconds(text.as_bytes()), ms, "{text}");
        }
        for text in ["", ".", "x", "1.2345", "-1"] {
            assert_eq!(milliseconds(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn pieces_are_never_empty() {
        let pieces = |delimiter: &str, text: &str| split(&[delimiter.into(), text.into()]);
        assert_eq!(pieces(",", "a,,b,"), [b"a", b"b"]);
        assert_eq!(pieces("--", "a--b"), [b"a", b"b"]);
        assert!(pieces(",", "").is_empty() && pieces(",", ",,").is_empty());
    }
}
