//! The task of a resolver: it owns the table and the sockets, takes questions, and ends with the resolver.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::task::{Context, Poll};

use clearway_base::Errno;
use clearway_base::log::{Level, Sink};
use clearway_runtime::{LoopRef, Timer};

use crate::Shared;
use crate::metrics;
use crate::server::{DATAGRAM_MAX, Server, Trouble};
use crate::table::{Deed, Table};

/// Questions that are taken from the queue before answers are looked at again.
const QUESTIONS_PER_ROUND: usize = 64;

/// The task of one resolver.
pub(crate) struct Service {
    shared: Arc<Shared>,
    sink: Arc<dyn Sink>,
    table: Table,
    servers: Vec<Server>,
    /// The remaining deeds of the table, in reverse order.
    deeds: Vec<Deed>,
    timer: Timer,
    home: LoopRef,
    buf: Box<[u8; DATAGRAM_MAX]>,
}

impl Service {
    pub(crate) fn new(
        shared: Arc<Shared>,
        sink: Arc<dyn Sink>,
        table: Table,
        servers: Vec<Server>,
        home: LoopRef,
    ) -> Self {
        let (deeds, timer, buf) = (Vec::new(), Timer::new(home), Box::new([0; DATAGRAM_MAX]));
        Self { shared, sink, table, servers, deeds, timer, home, buf }
    }

    /// Questions, messages, deeds; whether there may be more to do at once.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now_ms = self.home.now_ms();
        let questions = std::iter::from_fn(|| self.shared.inbox.pop());
        let mut taken = 0;
        for waiter in questions.take(QUESTIONS_PER_ROUND) {
            taken += 1;
            if !waiter.is_gone() {
                self.table.ask(waiter, now_ms);
            }
        }
        let mut failed = Vec::new();
        for (number, server) in self.servers.iter_mut().enumerate() {
            let table = &mut self.table;
            let take = |message: &[u8], via| table.receive(message, via, now_ms);
            if let Poll::Ready(trouble) = server.poll(cx, &mut self.buf[..], take) {
                failed.push((number, trouble));
            }
        }
        for (number, trouble) in &failed {
            self.tell(*number, trouble);
            self.table.server_failed(*number);
        }
        if self.table.next_ms().is_some_and(|at_ms| at_ms <= now_ms) {
            self.table.tick(now_ms);
        }
        let has_more = taken == QUESTIONS_PER_ROUND || !failed.is_empty() || !self.table.deeds.is_empty();
        std::task::ready!(self.poll_deeds(cx));
        if has_more { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Does what the table wants done.
    fn poll_deeds(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.deeds.is_empty() {
                self.deeds.extend(self.table.deeds.drain(..).rev());
            }
            let Some(deed) = self.deeds.pop() else { return Poll::Ready(()) };
            match &deed {
                Deed::Log(text) => self.sink.log(Level::Error, format_args!("{text}")),
                Deed::Send { server, via, query } => match self.servers[*server].poll_send(cx, *via, query) {
                    Poll::Ready(Ok(())) => metrics::QUERIES.increment(),
                    Poll::Ready(Err(trouble)) => {
                        let server = *server;
                        self.tell(server, &trouble);
                        self.table.server_failed(server);
                    }
                    Poll::Pending => {
                        self.deeds.push(deed);
                        return Poll::Pending;
                    }
                },
            }
        }
    }

    fn tell(&self, server: usize, trouble: &Trouble) {
        let (call, error, address) = (trouble.call, Errno(&trouble.error), self.servers[server].address());
        let text = format_args!("{call} failed {error} while resolving, resolver: {address}");
        self.sink.log(level_of(&trouble.error), text);
    }

    fn arm(&self) {
        let servers = self.servers.iter().filter_map(Server::next_ms);
        match servers.chain(self.table.next_ms()).min() {
            Some(at_ms) => self.timer.arm(at_ms),
            None => self.timer.disarm(),
        }
    }
}

/// As nginx has it: trouble of peers and networks is an error, and any other is the machine's own.
fn level_of(error: &io::Error) -> Level {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::ConnectionReset
        | Kind::BrokenPipe
        | Kind::NotConnected
        | Kind::TimedOut
        | Kind::ConnectionRefused
        | Kind::NetworkDown
        | Kind::NetworkUnreachable
        | Kind::HostUnreachable => Level::Error,
        _ => Level::Alert,
    }
}

impl Future for Service {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if this.shared.task.get().is_none() {
            // What was asked before this was there is found in the queue.
            let _ = this.shared.task.set(cx.waker().clone());
            fence(Ordering::SeqCst);
        }
        if this.shared.is_closed.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        loop {
            while this.turn(cx).is_ready() {}
            this.arm();
            if this.timer.poll_expired(cx).is_pending() {
                return Poll::Pending;
            }
            this.timer.disarm();
            this.table.tick(this.home.now_ms());
        }
    }
}
