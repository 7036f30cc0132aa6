//! Servers that are connected to and asked nothing (`tunnel_pass`): the head that the client gets is made
//! here, and a tunnel follows.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;

use clearway_base::log::Level;
use clearway_h1::{BodyEvent, Decoded};
use clearway_http::{Answer, Exchange, Request};
use clearway_message::{Header, Method};

use crate::engine::application::{begin_attempts, server_of};
use crate::engine::asked::{Asked, AskedBody, BodyUse, Family, Framing, Where};
use crate::engine::protocol::{Eof, HeadProgress, Persistence, Protocol, Say, TrailerUse, Wanted};
use crate::settings::gateway::{TUNNEL, TUNNEL_PASS};
use crate::settings::pass::PassConf;
use crate::upstreams::Choice;

/// `tunnel_pass`
pub(super) struct TunnelPass;

impl Family for TunnelPass {
    type Protocol = ConnectOnly;
    type Target<'c> = ();

    fn pass<'c>(request: &Request<'c>) -> &'c PassConf {
        request.conf(&TUNNEL_PASS)
    }

    fn evaluate<'c>(exchange: &Exchange<'_, 'c>) -> Result<Where<'c, ()>, Answer> {
        if exchange.request.method() != Method::Connect {
            return Err(Answer::Status(405));
        }
        let said = exchange.request.conf(&TUNNEL).target.get();
        // What is wrong with an address is the client's as a rule.
        server_of(exchange, said.ok_or(Answer::Status(500))?, Level::Info)
    }

    fn body_use(_: &Exchange<'_, '_>) -> BodyUse {
        BodyUse::Unread
    }

    fn begin<'c>(
        exchange: &mut Exchange<'_, 'c>,
        ((), choice): ((), Choice<'c>),
        body: AskedBody,
    ) -> Result<(Asked<'c>, ConnectOnly), Answer> {
        begin_attempts(exchange, "");
        let pass = Self::pass(exchange.request);
        let (head, framing, wanted) = (Vec::new(), Framing::Plain, Wanted::Whole);
        Ok((Asked { pass, proxy: None, choice, head, body, framing, wanted }, ConnectOnly))
    }
}

/// The protocol without a response head: bytes are first read by the tunnel.
pub(super) struct ConnectOnly;

impl Protocol for ConnectOnly {
    type Fault = Infallible;

    const ANSWERS: bool = false;

    fn reset(&mut self) {}

    fn head(&mut self, _: &[u8], _: usize) -> Result<HeadProgress, Infallible> {
        Ok(HeadProgress::Final)
    }

    fn next_head(&mut self) -> usize {
        0
    }

    fn describe_head<'a>(&'a self, fault: Infallible, _: &'a [u8]) -> Option<Box<dyn fmt::Display + 'a>> {
        match fault {}
    }

    fn remark(&self, _: &[u8], _: Say<'_>) {}

    fn status(&self) -> u16 {
        200
    }

    fn status_line<'a>(&self, _: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Borrowed(b"200 OK")
    }

    fn lines(&self) -> &[Header] {
        &[]
    }

    fn take_lines(&mut self) -> Vec<Header> {
        Vec::new()
    }

    fn head_len(&self) -> usize {
        0
    }

    fn content_length(&self) -> Option<u64> {
        None
    }

    fn switches_protocols(&self) -> bool {
        true
    }

    fn persistence(&self) -> Persistence {
        Persistence::Closes
    }

    fn begin_body(&mut self, _: Wanted, _: TrailerUse) {}

    fn body(&mut self, _: &[u8]) -> Result<Decoded, Infallible> {
        Ok(Decoded { consumed: 0, event: BodyEvent::End })
    }

    fn describe_body(&self, fault: Infallible) -> Box<dyn fmt::Display + '_> {
        match fault {}
    }

    fn is_done(&self) -> bool {
        true
    }

    fn eof(&self) -> Eof {
        Eof::Complete
    }
}
