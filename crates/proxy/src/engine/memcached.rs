//! Values that memcached keeps (`memcached_pass`). A key that is not there is answered with 404.

use std::borrow::Cow;
use std::fmt;

use clearway_base::log::{Level, Verbatim};
use clearway_gateway::memcached::{self, Answer as Said, Flags, Value, push_get, read_head};
use clearway_h1::{BodyEvent, Decoded, ResponseFault};
use clearway_http::{Answer, Exchange, Request, ResponseHead};
use clearway_message::{Header, Method};

use crate::engine::application::begin_attempts;
use crate::engine::asked::{Asked, AskedBody, BodyUse, Family, Framing, Where};
use crate::engine::protocol::{Eof, HeadProgress, Persistence, Protocol, Say, TrailerUse, Wanted};
use crate::settings::gateway::{MEMCACHED, MEMCACHED_PASS};
use crate::settings::pass::PassConf;
use crate::upstreams::{Choice, Destination};

/// Bytes around a key in a request.
const GET_BYTES: usize = "get \r\n".len();

/// `memcached_pass`
pub(super) struct MemcachedPass;

impl Family for MemcachedPass {
    type Protocol = Memcached;
    type Target<'c> = ();

    fn pass<'c>(request: &Request<'c>) -> &'c PassConf {
        request.conf(&MEMCACHED_PASS)
    }

    fn evaluate<'c>(exchange: &Exchange<'_, 'c>) -> Result<Where<'c, ()>, Answer> {
        if !matches!(exchange.request.method(), Method::Get | Method::Head) {
            return Err(Answer::Status(405));
        }
        let server = exchange.request.conf(&MEMCACHED).target.get().ok_or(Answer::Status(500))?;
        Ok(Where { destination: Destination::Configured(server.group.group()), target: () })
    }

    fn body_use(_: &Exchange<'_, '_>) -> BodyUse {
        BodyUse::Unread
    }

    fn begin<'c>(
        exchange: &mut Exchange<'_, 'c>,
        ((), choice): ((), Choice<'c>),
        body: AskedBody,
    ) -> Result<(Asked<'c>, Memcached), Answer> {
        let (pass, conf) = (Self::pass(exchange.request), exchange.request.conf(&MEMCACHED));
        let server = conf.target.get().ok_or(Answer::Status(500))?;
        begin_attempts(exchange, "memcached://");
        let mut key = Vec::new();
        server.key.append(&exchange.view(), &mut key);
        if key.is_empty() {
            exchange.request.log(Level::Error, format_args!("the \"$memcached_key\" variable is not set"));
            return Err(Answer::Status(500));
        }
        let mut head = Vec::with_capacity(GET_BYTES + key.len());
        let sent = push_get(&key, &mut head);
        if head[sent.clone()] != key {
            key = head[sent].to_vec();
        }
        let protocol = Memcached::new(key, *conf.gzip_flag);
        let wanted = if exchange.request.is_head() { Wanted::Head } else { Wanted::Whole };
        let asked = Asked { pass, proxy: None, choice, head, body, framing: Framing::Plain, wanted };
        Ok((asked, protocol))
    }
}

/// Reads answers.
pub(super) struct Memcached {
    /// As it was sent.
    key: Vec<u8>,
    /// Flags of values that are compressed; 0: nobody looks at them.
    gzip_flag: u64,
    head: Option<memcached::Head>,
    value: Option<Value>,
    trailer: Trailer,
}

/// The bytes behind a value, as far as they have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trailer {
    Valid,
    /// The value holds, and its connection is of no use.
    Invalid,
}

/// Why an answer is refused.
pub(super) enum Fault {
    Line(memcached::Fault),
    TooBig,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(fault) => fault.fmt(f),
            Self::TooBig => ResponseFault::TooBigHeader.fmt(f),
        }
    }
}

/// How far the head of an answer has come, of which `input` was received: `head` is there when it is whole.
pub(super) fn progress<T>(head: Option<T>, input: &[u8], max_bytes: usize) -> Result<HeadProgress, Fault> {
    match head {
        Some(_) => Ok(HeadProgress::Final),
        None if input.len() >= max_bytes => Err(Fault::TooBig),
        None => Ok(HeadProgress::Incomplete),
    }
}

impl Memcached {
    /// For a key as it was sent.
    pub(super) fn new(key: Vec<u8>, gzip_flag: u64) -> Self {
        Self { key, gzip_flag, head: None, value: None, trailer: Trailer::Valid }
    }

    fn flags(&self) -> Flags {
        if self.gzip_flag == 0 { Flags::Ignored } else { Flags::Wanted }
    }
}

impl Protocol for Memcached {
    type Fault = Fault;

    const ENDS_WITH_BODY: bool = false;
    const INTERCEPTS_404: bool = true;
    const HAS_LINES: bool = false;

    fn reset(&mut self) {
        (self.head, self.value, self.trailer) = (None, None, Trailer::Valid);
    }

    fn head(&mut self, input: &[u8], max_bytes: usize) -> Result<HeadProgress, Fault> {
        self.head = read_head(input, &self.key, self.flags()).map_err(Fault::Line)?;
        progress(self.head, input, max_bytes)
    }

    fn next_head(&mut self) -> usize {
        0
    }

    fn describe_head<'a>(&'a self, fault: Fault, _: &'a [u8]) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(fault))
    }

    fn remark(&self, _: &[u8], say: Say<'_>) {
        if self.status() == 404 {
            let key = Verbatim(&self.key);
            say(Level::Info, format_args!("key: \"{key}\" was not found by memcached"));
        }
    }

    fn status(&self) -> u16 {
        match self.head.map(|head| head.answer) {
            Some(Said::NotFound) => 404,
            Some(Said::Found { .. }) | None => 200,
        }
    }

    fn status_line<'a>(&self, _: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Borrowed(if self.status() == 404 { b"404 Not Found" } else { b"200 OK" })
    }

    fn lines(&self) -> &[Header] {
        &[]
    }

    fn take_lines(&mut self) -> Vec<Header> {
        Vec::new()
    }

    fn head_len(&self) -> usize {
        self.head.map_or(0, |head| head.len)
    }

    fn content_length(&self) -> Option<u64> {
        self.head.map(|head| match head.answer {
            Said::Found { bytes, .. } => bytes,
            Said::NotFound => 0,
        })
    }

    fn complete_head(&self, head: &mut ResponseHead<'_>) {
        if let Some(memcached::Head { answer: Said::Found { flags, .. }, .. }) = self.head
            && flags & self.gzip_flag != 0
        {
            head.content_encoding = Some(Cow::Borrowed(b"gzip"));
        }
    }

    fn switches_protocols(&self) -> bool {
        false
    }

    fn persistence(&self) -> Persistence {
        if self.trailer == Trailer::Valid { Persistence::Stays } else { Persistence::Closes }
    }

    fn begin_body(&mut self, _: Wanted, _: TrailerUse) {
        self.value = match self.head.map(|head| head.answer) {
            Some(Said::Found { bytes, .. }) => Some(Value::new(bytes)),
            Some(Said::NotFound) | None => None,
        };
    }

    fn body(&mut self, input: &[u8]) -> Result<Decoded, Fault> {
        let mut at = 0;
        let event = loop {
            let Some(value) = self.value.as_mut().filter(|value| !value.is_done()) else {
                break BodyEvent::End;
            };
            if at == input.len() {
                break BodyEvent::NeedInput;
            }
            let Ok(step) = value.next(&input[at..]) else {
                self.trailer = Trailer::Invalid;
                break BodyEvent::End;
            };
            let start = at;
            debug_assert!(step.consumed > 0, "each step gets somewhere");
            at += step.consumed;
            debug_assert!(at <= input.len(), "a value lies in what was received");
            if !step.data.is_empty() {
                break BodyEvent::Data(start + step.data.start..start + step.data.end);
            }
        };
        Ok(Decoded { consumed: at, event })
    }

    fn describe_body(&self, fault: Fault) -> Box<dyn fmt::Display + '_> {
        Box::new(fault)
    }

    fn is_done(&self) -> bool {
        self.trailer == Trailer::Invalid || self.value.as_ref().is_none_or(Value::is_done)
    }

    fn eof(&self) -> Eof {
        if self.is_done() { Eof::Complete } else { Eof::Premature }
    }

    fn excess(&self) -> (Level, &'static str) {
        (Level::Error, "memcached sent invalid trailer")
    }
}
