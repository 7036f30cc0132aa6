//! The replacement of TLS with servers in a build that has none: no request uses it.

use std::marker::PhantomData;
use std::task::{Context, Poll};

use clearway_http::{Answer, Exchange, Request, Step};
use clearway_net::connect::Outbound;
use clearway_os::outgoing::Remote;
use clearway_runtime::Socket;
use clearway_upstream::{Connection, Identity, Transport};

use crate::engine::protocol::Protocol;
use crate::engine::session::{Flow, Session};
use crate::settings::pass::PassConf;

/// There is none.
pub(super) enum Secure<'c> {
    #[expect(dead_code, reason = "nothing makes one")]
    Never(std::convert::Infallible, PhantomData<&'c ()>),
}

impl Secure<'_> {
    #[expect(clippy::unused_async, reason = "where there is TLS it waits")]
    pub(super) async fn load(&mut self, _: &Request<'_>) -> Result<(), Answer> {
        Ok(())
    }

    pub(super) fn shake_hands(&self, _: Socket) -> Result<Shaking, String> {
        match self {
            Self::Never(never, _) => match *never {},
        }
    }

    pub(super) fn call(&mut self, _: &[u8]) {}

    pub(super) fn tag(&self) -> u64 {
        match self {
            Self::Never(never, _) => match *never {},
        }
    }
}

/// There is none either.
pub(super) enum Shaking {}

impl Shaking {
    pub(super) fn poll(&mut self, _: &mut Context<'_>) -> Poll<Result<(), String>> {
        match *self {}
    }

    pub(super) fn finish(self, _: &Secure<'_>) -> Result<Transport, String> {
        match self {}
    }
}

pub(super) fn prepare<'c>(
    _: &Exchange<'_, 'c>,
    _: &'c PassConf,
    _: &[u8],
) -> Result<Box<Secure<'c>>, Answer> {
    Err(Answer::Status(500))
}

impl<'c, P: Protocol> Session<'c, P> {
    pub(super) fn begin_handshake(
        &mut self,
        exchange: &mut Exchange<'_, 'c>,
        made: Outbound,
        remote: &Remote,
    ) -> Flow {
        let identity = Identity { remote, local: self.local, scope: self.scope };
        self.outbound = Some(Connection::new(made, identity, self.home.now_ms()));
        self.note_connected(exchange);
        Flow::On
    }

    pub(super) fn poll_handshaking(&mut self, _: &mut Exchange<'_, 'c>, _: &mut Context<'_>) -> Flow {
        Flow::End(Step::Respond(Answer::Status(500)))
    }

    pub(super) fn poll_consulting(&mut self, _: &mut Exchange<'_, 'c>, _: &mut Context<'_>) -> Flow {
        Flow::End(Step::Respond(Answer::Status(500)))
    }

    pub(super) fn keep_session(&mut self) {}
}
