//! Commands of memcached (`memc_pass`): `get` as of `memcached_pass`; of the others clients are shown what
//! memcached says.

use std::borrow::Cow;
use std::fmt;

use clearway_base::log::{Level, Verbatim};
use clearway_base::units::parse_number;
use clearway_gateway::memc::{Command, Reply, Storing, With, push_line, read_reply};
use clearway_gateway::memcached::{push_get, push_key};
use clearway_h1::{BodyEvent, Decoded};
use clearway_http::{Answer, Exchange, Request, ResponseHead};
use clearway_message::{Header, Method, status};

use crate::engine::application::{begin_attempts, server_of};
use crate::engine::asked::{Asked, AskedBody, BodyUse, Family, Framing, Where};
use crate::engine::memcached::{Fault, Memcached, progress};
use crate::engine::protocol::{Eof, HeadProgress, Persistence, Protocol, Say, TrailerUse, Wanted};
use crate::settings::gateway::{MEMC, MEMC_PASS};
use crate::settings::pass::PassConf;
use crate::upstreams::Choice;

/// Keys of memcached.
const KEY_MAX_BYTES: usize = 250;

/// `memc_pass`
pub(super) struct MemcPass;

/// A variable that says something.
fn said(exchange: &Exchange<'_, '_>, name: &[u8]) -> Option<Vec<u8>> {
    let text = exchange.view().variable_named(name)?;
    (!text.is_empty()).then(|| text.to_vec())
}

fn number(exchange: &Exchange<'_, '_>, name: &[u8], command: Command) -> Result<u64, Answer> {
    let Some(text) = said(exchange, name) else { return Ok(0) };
    parse_number(&text).ok_or_else(|| {
        let (name, text) = (Verbatim(name), Verbatim(&text));
        let line = format_args!("variable \"${name}\" takes invalid value: {text} ({})", command.name());
        exchange.request.log(Level::Error, line);
        Answer::Status(400)
    })
}

fn command_of(exchange: &Exchange<'_, '_>) -> Result<Command, Answer> {
    let request = &exchange.request;
    let command = match said(exchange, b"memc_cmd") {
        Some(name) => Command::named(&name).ok_or_else(|| {
            let name = Verbatim(&name);
            request.log(Level::Error, format_args!("unknown $memc_cmd \"{name}\""));
            Answer::Status(400)
        })?,
        None => match request.method() {
            Method::Get | Method::Head => Command::Get,
            Method::Post => Command::Add,
            Method::Put => Command::Set,
            Method::Delete => Command::Delete,
            _ => return Err(Answer::Status(405)),
        },
    };
    let allowed = &request.conf(&MEMC).commands;
    if !allowed.is_empty() && !allowed.contains(&command) {
        request.log(Level::Error, format_args!("memcached command \"{}\" not allowed", command.name()));
        return Err(Answer::Status(403));
    }
    Ok(command)
}

impl Family for MemcPass {
    type Protocol = Memc;
    type Target<'c> = Command;

    fn pass<'c>(request: &Request<'c>) -> &'c PassConf {
        request.conf(&MEMC_PASS)
    }

    fn evaluate<'c>(exchange: &Exchange<'_, 'c>) -> Result<Where<'c, Command>, Answer> {
        let command = command_of(exchange)?;
        let said = exchange.request.conf(&MEMC).target.get().ok_or(Answer::Status(500))?;
        let way = server_of(exchange, said, Level::Error)?;
        Ok(Where { destination: way.destination, target: command })
    }

    fn body_use(exchange: &Exchange<'_, '_>) -> BodyUse {
        let stores = command_of(exchange).is_ok_and(|command| command.with() == With::Value);
        if stores && said(exchange, b"memc_value").is_none() { BodyUse::Passed } else { BodyUse::Unread }
    }

    fn begin<'c>(
        exchange: &mut Exchange<'_, 'c>,
        (command, choice): (Command, Choice<'c>),
        body: AskedBody,
    ) -> Result<(Asked<'c>, Memc), Answer> {
        begin_attempts(exchange, "memc://");
        let key = key_of(exchange, command)?;
        debug_assert!(key.len() <= KEY_MAX_BYTES, "a longer key was refused");
        let pass = Self::pass(exchange.request);
        let is_head = exchange.request.is_head();
        let wanted = if is_head { Wanted::Head } else { Wanted::Whole };
        let mut head = Vec::new();
        if command == Command::Get {
            let sent = push_get(&key, &mut head);
            let protocol = Memc::Value(Memcached::new(head[sent].to_vec(), 0));
            let (framing, proxy) = (Framing::Plain, None);
            return Ok((
                Asked { pass, proxy, choice, head, body: AskedBody::None, framing, wanted },
                protocol,
            ));
        }
        let mut sent_key = Vec::new();
        push_key(&key, &mut sent_key);
        let value = said(exchange, b"memc_value");
        let length = match (&value, &body) {
            (Some(value), _) => value.len() as u64,
            (None, AskedBody::Stored(stored)) => stored.len(),
            (None, _) => 0,
        };
        let flags = u32::try_from(number(exchange, b"memc_flags", command)?).unwrap_or(u32::MAX);
        let more = Storing { flags, expires_s: number(exchange, b"memc_exptime", command)?, length };
        let amount = match command.with() {
            With::Amount => number(exchange, b"memc_value", command)?,
            _ => 0,
        };
        push_line(command, &sent_key, &more, amount, &mut head);
        let is_apart = value.is_none() && length > 0;
        if command.with() == With::Value && !is_apart {
            head.extend_from_slice(&value.unwrap_or_default());
            head.extend_from_slice(b"\r\n");
        }
        let body = if is_apart && command.with() == With::Value { body } else { AskedBody::None };
        let asked = Asked { pass, proxy: None, choice, head, body, framing: Framing::Line, wanted };
        Ok((asked, Memc::Line(Line { command, reply: None, left: 0 })))
    }
}

fn key_of(exchange: &Exchange<'_, '_>, command: Command) -> Result<Vec<u8>, Answer> {
    if command.with() == With::Nothing {
        return Ok(Vec::new());
    }
    let Some(key) = said(exchange, b"memc_key") else {
        exchange.request.log(Level::Error, format_args!("the \"$memc_key\" variable is not set"));
        return Err(Answer::Status(500));
    };
    if key.len() > KEY_MAX_BYTES {
        exchange.request.log(Level::Error, format_args!("the \"$memc_key\" variable is too long"));
        return Err(Answer::Status(400));
    }
    Ok(key)
}

/// Reads answers.
pub(super) enum Memc {
    Value(Memcached),
    Line(Line),
}

/// The answer of a command that shows no value.
pub(super) struct Line {
    command: Command,
    reply: Option<Reply>,
    /// How many of its bytes are left.
    left: usize,
}

/// What is the same of both kinds is asked of the one that is there.
macro_rules! of_each {
    ($self:ident, $value:ident => $of_value:expr, $line:ident => $of_line:expr) => {
        match $self {
            Self::Value($value) => $of_value,
            Self::Line($line) => $of_line,
        }
    };
}

impl Protocol for Memc {
    type Fault = Fault;

    const ENDS_WITH_BODY: bool = false;
    const INTERCEPTS_404: bool = true;
    const HAS_LINES: bool = false;

    fn reset(&mut self) {
        of_each!(self, value => value.reset(), line => (line.reply, line.left) = (None, 0));
    }

    fn head(&mut self, input: &[u8], max_bytes: usize) -> Result<HeadProgress, Fault> {
        let line = match self {
            Self::Value(value) => return value.head(input, max_bytes),
            Self::Line(line) => line,
        };
        line.reply = read_reply(input, line.command).map_err(Fault::Line)?;
        progress(line.reply, input, max_bytes)
    }

    fn next_head(&mut self) -> usize {
        0
    }

    fn describe_head<'a>(&'a self, fault: Fault, _: &'a [u8]) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(fault))
    }

    fn remark(&self, input: &[u8], say: Say<'_>) {
        if let Self::Value(value) = self {
            value.remark(input, say);
        }
    }

    fn status(&self) -> u16 {
        of_each!(self, value => value.status(), line => line.reply.map_or(200, |reply| reply.status))
    }

    fn status_line<'a>(&self, input: &'a [u8]) -> Cow<'a, [u8]> {
        match self {
            Self::Value(value) => value.status_line(input),
            Self::Line(_) => Cow::Borrowed(status::status_line(self.status()).unwrap_or("200 OK").as_bytes()),
        }
    }

    fn lines(&self) -> &[Header] {
        &[]
    }

    fn take_lines(&mut self) -> Vec<Header> {
        Vec::new()
    }

    fn head_len(&self) -> usize {
        of_each!(self, value => value.head_len(), _line => 0)
    }

    fn content_length(&self) -> Option<u64> {
        of_each!(self, value => value.content_length(), line => line.reply.map(|reply| reply.len as u64))
    }

    fn complete_head(&self, head: &mut ResponseHead<'_>) {
        if let Self::Value(value) = self {
            value.complete_head(head);
        }
    }

    fn switches_protocols(&self) -> bool {
        false
    }

    fn persistence(&self) -> Persistence {
        of_each!(self, value => value.persistence(), _line => Persistence::Stays)
    }

    fn begin_body(&mut self, wanted: Wanted, trailers: TrailerUse) {
        of_each!(self, value => value.begin_body(wanted, trailers),
            line => line.left = line.reply.map_or(0, |reply| reply.len));
    }

    fn body(&mut self, input: &[u8]) -> Result<Decoded, Fault> {
        let line = match self {
            Self::Value(value) => return value.body(input),
            Self::Line(line) => line,
        };
        let take = line.left.min(input.len());
        debug_assert!(take <= line.left, "no more is passed on than the reply has");
        line.left -= take;
        let event = match (take, line.left) {
            (0, 0) => BodyEvent::End,
            (0, _) => BodyEvent::NeedInput,
            _ => BodyEvent::Data(0..take),
        };
        Ok(Decoded { consumed: take, event })
    }

    fn describe_body(&self, fault: Fault) -> Box<dyn fmt::Display + '_> {
        Box::new(fault)
    }

    fn is_done(&self) -> bool {
        of_each!(self, value => value.is_done(), line => line.left == 0)
    }

    fn eof(&self) -> Eof {
        if self.is_done() { Eof::Complete } else { Eof::Premature }
    }

    fn excess(&self) -> (Level, &'static str) {
        (Level::Error, "memcached sent invalid trailer")
    }
}
