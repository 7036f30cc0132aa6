//! The body of the response on its way from the server to the client.

use std::task::{Context, Poll};

use bytes::Bytes;
use clearway_base::log::Level;
use clearway_base::units;
use clearway_h1::{BodyEvent, Decoded};
use clearway_http::{Answer, Chunk, Exchange, Mark, Step};
use clearway_message::Headers;
use clearway_runtime::Timer;
use clearway_upstream::AttemptOutcome;

use crate::attempts::Attempts;
use crate::engine::aside::{Aside, Lost, Progress, Room};
use crate::engine::ask::frames_itself;
use crate::engine::protocol::{Eof, Persistence, Protocol, Wanted};
use crate::engine::session::{BrokenBy, Flow, READING, Session, Stage, TO_CLIENT};
use crate::engine::store::{Keeping, Kept};
use crate::heads::accel::Buffering;
use crate::settings::pass::PassConf;
use crate::upstreams::LearnWhen;

/// How often a poll reads before others have their turn.
const READS_MAX: usize = 16;

/// The largest buffer that is read into, bytes.
const READ_MAX_BYTES: usize = 64 * 1024;

/// Buffers are as large as so many bytes, or a multiple of them.
const READ_STEP_BYTES: usize = 4096;

/// The body of one response on its way to the client.
pub(super) struct Relay {
    pub(super) buffering: Buffering,
    /// How much of the body has come, bytes.
    pub(super) length: u64,
    /// How much of early hints has come, bytes.
    pub(super) hints_bytes: u64,
    /// Whether variables want to see trailers.
    pub(super) wants_trailers: bool,
    /// How much is read at once, bytes.
    read_bytes: usize,
    /// How much may be in memory, bytes.
    pub(super) memory_bytes: usize,
    excess: Excess,
    /// Bytes a second that are read; 0 is no limit.
    rate: u64,
    /// When the body began, seconds since the epoch: as in nginx whole ones count, as the log has them.
    began_s: u64,
    /// Until when no more is read.
    rests: Option<Timer>,
    /// The bytes that the client has not taken yet and memory has no room for.
    aside: Option<Box<Aside>>,
    /// The file in which the response is kept, if it is.
    pub(super) keeping: Option<Kept>,
}

/// Why no more is sent to the client.
enum Over {
    /// Its connection is broken.
    Client,
    /// The bytes that were put aside are lost.
    Lost,
}

/// Whether more came than the response has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Excess {
    None,
    Some,
}

impl Default for Relay {
    fn default() -> Self {
        Self {
            buffering: Buffering::On,
            length: 0,
            hints_bytes: 0,
            wants_trailers: false,
            read_bytes: 0,
            memory_bytes: 0,
            excess: Excess::None,
            rate: 0,
            began_s: 0,
            rests: None,
            aside: None,
            keeping: None,
        }
    }
}

impl Relay {
    /// The body begins.
    pub(super) fn begin<'c>(
        &mut self,
        exchange: &mut Exchange<'_, 'c>,
        pass: &'c PassConf,
        asked: Option<Buffering>,
    ) {
        let own = if *pass.buffering { Buffering::On } else { Buffering::Off };
        self.buffering = asked.unwrap_or(own);
        if self.buffering == Buffering::Off {
            exchange.request.lift_limit_rate();
        }
        if let (Buffering::On, Some(rate)) = (self.buffering, &*pass.limit_rate) {
            self.rate = units::parse_size(&rate.eval(&exchange.view())).unwrap_or(0);
            self.began_s = exchange.request.home().unix_ms() / 1000;
        }
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        if self.buffering == Buffering::On
            && pass.keeping.store.is_some()
            && exchange.output.head().status == 200
        {
            self.keeping = Keeping::new(exchange.request, pass).map(Kept::File);
        }
        debug_assert_eq!(self.length, 0, "nothing of a body has come before it begins");
        debug_assert!(self.aside.is_none(), "nothing of a body is put aside before it begins");
        self.read_bytes = size(pass.buffers.1);
        self.memory_bytes = size(pass.memory_max_bytes());
        debug_assert!(self.read_bytes > 0, "a read of nothing would be the end");
    }
}

impl<'c, P: Protocol> Session<'c, P> {
    pub(super) fn poll_relaying(&mut self, exchange: &mut Exchange<'_, 'c>, cx: &mut Context<'_>) -> Flow {
        if !exchange.output.wants_body() && !self.keeps_body() {
            // As in nginx nobody looks what applications send behind such a head.
            if self.asked.proxy.is_some() && self.asked.wanted == Wanted::Whole && self.protocol.is_done() {
                self.note_excess(exchange, 0);
            }
            return self.complete(exchange);
        }
        if let Some(body) = self.whole_body.take()
            && let Some(flow) = self.take_whole(exchange, body)
        {
            return flow;
        }
        if let Some(flow) = self.take_input(exchange) {
            return flow;
        }
        for _ in 0..READS_MAX {
            // What has come leaves together, as far as there is room for it.
            if !self.may_hold_back(exchange) {
                let flushed = match self.poll_flush(exchange, cx) {
                    Poll::Ready(Err(over)) => return self.give_up(exchange, over),
                    flushed => flushed,
                };
                let is_held = flushed.is_pending() && !self.may_read(exchange);
                if self.poll_keeping(exchange, cx) || is_held {
                    // The client is waited for, or the disk, and the server does not have to send.
                    self.clocks.read_until_ms = None;
                    return Flow::Wait;
                }
            }
            let Poll::Ready(allowed) = self.poll_allowed(cx) else {
                self.clocks.read_until_ms = None;
                return self.flush_and_wait(exchange, cx);
            };
            if self.clocks.read_until_ms.is_none() {
                self.restart_read_clock();
            }
            let most = self.next_read_bytes().min(allowed);
            debug_assert!(most > 0, "a read of nothing would be the end");
            match self.poll_read(most, cx) {
                Poll::Pending => return self.flush_and_wait(exchange, cx),
                Poll::Ready(Err(error)) => {
                    exchange.request.set_action(READING);
                    exchange.request.log(Level::Error, format_args!("{}", BrokenBy("readv()", &error)));
                    return self.cut(exchange);
                }
                Poll::Ready(Ok(0)) => return self.take_end(exchange),
                Poll::Ready(Ok(size)) => {
                    self.restart_read_clock();
                    assert!(size <= self.input.len(), "what was read stands in the input");
                    self.attempt(exchange).received_bytes += size as u64;
                    self.rest_for(size);
                    exchange.request.set_action(READING);
                    self.unframe(exchange, size);
                    if size == most {
                        self.relay.read_bytes =
                            (2 * most).min(READ_MAX_BYTES).min(self.relay.memory_bytes).max(most);
                        debug_assert!(self.relay.read_bytes >= most, "reads only become larger");
                    }
                }
            }
            if let Some(flow) = self.take_input(exchange) {
                return flow;
            }
        }
        cx.waker().wake_by_ref();
        self.flush_and_wait(exchange, cx)
    }

    /// Whether what was received may wait for what else comes at once.
    fn may_hold_back(&self, exchange: &Exchange<'_, 'c>) -> bool {
        self.relay.buffering == Buffering::On
            && self.relay.aside.is_none()
            && self.relay.keeping.as_ref().is_none_or(|keeping| !keeping.is_full())
            && exchange.output.queued_bytes() < self.relay.memory_bytes
    }

    /// No more bytes come for now: bytes that were held back are sent.
    fn flush_and_wait(&mut self, exchange: &mut Exchange<'_, 'c>, cx: &mut Context<'_>) -> Flow {
        self.poll_keeping(exchange, cx);
        match self.poll_flush(exchange, cx) {
            Poll::Ready(Err(over)) => self.give_up(exchange, over),
            Poll::Ready(Ok(())) | Poll::Pending => Flow::Wait,
        }
    }

    /// How much is to be read at once: the rest of the body where its length is known, with a little more
    /// room, since a read that fills all of it says nothing of what comes behind.
    fn next_read_bytes(&self) -> usize {
        let least = self.relay.read_bytes;
        let Some(length) = self.protocol.content_length() else { return least };
        let left = usize::try_from(length.saturating_sub(self.relay.length)).unwrap_or(usize::MAX);
        // What goes into a cache as well may be in memory until it is written.
        let allowed = match &self.relay.keeping {
            Some(Kept::Object(_)) => READ_MAX_BYTES,
            Some(Kept::File(_)) | None => self.relay.memory_bytes,
        };
        let most = READ_MAX_BYTES.min(allowed).max(least);
        (left / READ_STEP_BYTES).saturating_add(1).saturating_mul(READ_STEP_BYTES).clamp(least, most)
    }

    /// After so many bytes nothing is read for as long as they should take.
    fn rest_for(&mut self, size: usize) {
        if let Some(delay_ms) = (size as u64).saturating_mul(1000).checked_div(self.relay.rate) {
            let timer = Timer::new(self.home);
            timer.arm(self.home.now_ms() + delay_ms);
            self.relay.rests = Some(timer);
        }
    }

    /// How much may be read now (`…_limit_rate`): nginx's arithmetic, which counts whole seconds.
    fn poll_allowed(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        let relay = &mut self.relay;
        if relay.rate == 0 {
            return Poll::Ready(usize::MAX);
        }
        loop {
            if let Some(timer) = &relay.rests {
                std::task::ready!(timer.poll_expired(cx));
                relay.rests = None;
            }
            let seconds = (self.home.unix_ms() / 1000).saturating_sub(relay.began_s) + 1;
            let due = relay.rate.saturating_mul(seconds);
            if let Some(allowed @ 1..) = due.checked_sub(relay.length) {
                return Poll::Ready(usize::try_from(allowed).unwrap_or(usize::MAX));
            }
            debug_assert!(due <= relay.length, "more has come than the rate allows");
            debug_assert!(relay.rests.is_none(), "one rest at a time");
            let delay_ms = (relay.length - due).saturating_mul(1000) / relay.rate + 1;
            let timer = Timer::new(self.home);
            timer.arm(self.home.now_ms() + delay_ms);
            relay.rests = Some(timer);
        }
    }

    /// Sends what the client takes, and goes on with what was put aside. Ready when nothing lies there, and
    /// the client takes more.
    fn poll_flush(
        &mut self,
        exchange: &mut Exchange<'_, 'c>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Over>> {
        loop {
            exchange.request.set_action(TO_CLIENT);
            let flushed = exchange.output.poll_ready(exchange.request, cx).map_err(|_| Over::Client)?;
            let Some(aside) = &mut self.relay.aside else { return flushed.map(Ok) };
            let has_room = exchange.output.queued_bytes() < self.relay.memory_bytes / 2;
            exchange.request.set_action(READING);
            let room = if has_room || flushed.is_ready() { Room::Some } else { Room::None };
            match aside.poll(exchange, room, cx).map_err(|Lost| Over::Lost)? {
                Progress::Moved => {}
                Progress::Waits => return Poll::Pending,
                Progress::Rests if aside.is_empty() => {
                    if !aside.has_file() {
                        self.relay.aside = None;
                    }
                    return flushed.map(Ok);
                }
                Progress::Rests => return Poll::Pending,
            }
        }
    }

    /// Whether there is room for more although the client has not taken what is there.
    fn may_read(&mut self, exchange: &Exchange<'_, 'c>) -> bool {
        if self.relay.buffering == Buffering::Off {
            return false;
        }
        let is_in_memory = self.relay.aside.as_ref().is_none_or(|aside| aside.is_empty());
        if is_in_memory && exchange.output.queued_bytes() < self.relay.memory_bytes {
            return true;
        }
        if self.relay.aside.is_none() {
            self.relay.aside = Aside::new(exchange.request, self.asked.pass);
        }
        self.relay.aside.as_ref().is_some_and(|aside| aside.has_room())
    }

    /// Everything has come, and the client has not taken all of it.
    pub(super) fn poll_draining(&mut self, exchange: &mut Exchange<'_, 'c>, cx: &mut Context<'_>) -> Flow {
        self.poll_keeping(exchange, cx);
        match self.poll_flush(exchange, cx) {
            Poll::Pending => Flow::Wait,
            Poll::Ready(Ok(())) => self.finish(exchange),
            Poll::Ready(Err(over)) => self.give_up(exchange, over),
        }
    }

    /// Sends what there is of a response that cannot be completed.
    pub(super) fn poll_cutting(&mut self, exchange: &mut Exchange<'_, 'c>, cx: &mut Context<'_>) -> Flow {
        match self.poll_flush(exchange, cx) {
            Poll::Pending => Flow::Wait,
            Poll::Ready(_) => Flow::End(Step::Respond(Answer::Status(502))),
        }
    }

    fn give_up(&mut self, exchange: &mut Exchange<'_, 'c>, over: Over) -> Flow {
        match over {
            Over::Client if self.relay.keeping.is_some() => {
                self.relay.aside = None;
                exchange.output.abandon(exchange.request);
                Flow::On
            }
            // The connection says why, and closes.
            Over::Client => Flow::End(Step::Done),
            Over::Lost => {
                self.relay.aside = None;
                self.cut(exchange)
            }
        }
    }

    /// Passes on a body that has come in one piece; `None` where it turns out not to be one.
    fn take_whole(&mut self, exchange: &mut Exchange<'_, 'c>, body: Bytes) -> Option<Flow> {
        let step = self.protocol.body(&body);
        let is_all = |step: &Decoded| step.event == BodyEvent::Data(0..body.len());
        if !step.as_ref().is_ok_and(is_all) || !self.protocol.is_done() {
            debug_assert!(step.is_ok_and(|step| step.event == BodyEvent::End), "it has this length");
            self.input.extend_from_slice(&body);
            return None;
        }
        debug_assert!(self.input.is_empty(), "a body that came in one piece is all that came");
        debug_assert_eq!(self.relay.length, 0, "a whole body is the first that comes");
        self.relay.length += body.len() as u64;
        if let Some(keeping) = &mut self.relay.keeping {
            keeping.put(body.clone());
        }
        let _ = exchange.output.write(exchange.request, Chunk::Shared(body), Mark::More);
        Some(self.complete(exchange))
    }

    /// Passes on what was received; `Some` when that is the end.
    fn take_input(&mut self, exchange: &mut Exchange<'_, 'c>) -> Option<Flow> {
        let (mut at, mut kept) = (0, 0);
        loop {
            match self.protocol.body(&self.input[at..]) {
                Ok(step) => {
                    let is_data = matches!(step.event, BodyEvent::Data(_));
                    if let BodyEvent::Data(range) = step.event {
                        let (start, end) = (at + range.start, at + range.end);
                        if start != kept {
                            self.input.copy_within(start..end, kept);
                        }
                        kept += end - start;
                    }
                    at += step.consumed;
                    if !is_data {
                        break;
                    }
                }
                Err(fault) => {
                    exchange.request.set_action(READING);
                    let text = self.protocol.describe_body(fault);
                    exchange.request.log(Level::Error, format_args!("{text}"));
                    drop(text);
                    self.push(exchange, kept);
                    return Some(self.cut(exchange));
                }
            }
        }
        self.note_excess(exchange, at);
        self.push(exchange, kept);
        self.protocol.is_done().then(|| self.complete(exchange))
    }

    /// Whether something was received behind the end, which is at `end`: what it belongs to nobody knows.
    fn note_excess(&mut self, exchange: &mut Exchange<'_, 'c>, end: usize) {
        debug_assert!(end <= self.input.len(), "a body ends within what was received");
        if end < self.input.len() {
            exchange.request.set_action(READING);
            let (level, text) = self.protocol.excess();
            exchange.request.log(level, format_args!("{text}"));
            self.relay.excess = Excess::Some;
        }
    }

    /// Hands the first bytes of what was received over.
    fn push(&mut self, exchange: &mut Exchange<'_, 'c>, len: usize) {
        assert!(len <= self.input.len(), "what is passed on was received");
        self.relay.length += len as u64;
        if len == 0 {
            self.input.clear();
            return;
        }
        let mut data = std::mem::take(&mut self.input);
        data.truncate(len);
        debug_assert!(self.input.is_empty(), "what is behind the end is dropped");
        if data.capacity() > 2 * len.max(READ_STEP_BYTES) {
            // What waits counts by its length.
            data.shrink_to_fit();
        }
        let is_full = exchange.output.queued_bytes() >= self.relay.memory_bytes;
        if let Some(aside) = self.relay.aside.as_mut().filter(|aside| is_full || !aside.is_empty()) {
            if let Some(keeping) = &mut self.relay.keeping {
                keeping.put(Bytes::copy_from_slice(&data));
            }
            aside.put(data);
            return;
        }
        let mark = match self.relay.buffering {
            Buffering::On => Mark::More,
            Buffering::Off => Mark::Flush,
        };
        let chunk = match &mut self.relay.keeping {
            None => Chunk::Owned(data),
            // Both have the same memory.
            Some(keeping) => {
                let data = Bytes::from(data);
                keeping.put(data.clone());
                Chunk::Shared(data)
            }
        };
        // How much may wait is asked for before more is read.
        let _ = exchange.output.write(exchange.request, chunk, mark);
    }

    /// The server has closed the connection.
    fn take_end(&mut self, exchange: &mut Exchange<'_, 'c>) -> Flow {
        debug_assert!(self.input.is_empty(), "what came before the end is passed on");
        self.relay.excess = Excess::Some;
        if self.protocol.eof() == Eof::Complete {
            return self.complete(exchange);
        }
        exchange.request.set_action(READING);
        exchange.request.log(Level::Error, format_args!("upstream prematurely closed connection"));
        self.cut(exchange)
    }

    /// The response is complete.
    fn complete(&mut self, exchange: &mut Exchange<'_, 'c>) -> Flow {
        debug_assert!(matches!(self.stage, Stage::Relaying), "a body is complete once");
        debug_assert!(self.whole_body.is_none() || !exchange.output.wants_body(), "all of it is passed on");
        let mut trailers = Headers::default();
        if self.protocol.is_done() {
            self.protocol.trailers(&mut |name, value| trailers.add(name, value));
        }
        if *self.asked.pass.pass_trailers && !trailers.is_empty() {
            exchange.output.pass_trailers(&trailers);
        }
        Attempts::of_mut(exchange.request).trailers = trailers;
        if let Some(lease) = &self.lease {
            self.asked.choice.learn(&exchange.view(), lease, LearnWhen::AtEnd);
        }
        self.release(exchange);
        self.begin_storing(exchange);
        if self.relay.aside.as_ref().is_none_or(|aside| aside.is_empty()) {
            return self.finish(exchange);
        }
        self.drop_connection();
        self.clocks.clear();
        self.finish_lease(exchange, AttemptOutcome::Answered);
        self.stage = Stage::Draining;
        Flow::On
    }

    /// The body of the response is complete.
    fn finish(&mut self, exchange: &mut Exchange<'_, 'c>) -> Flow {
        debug_assert!(
            self.relay.aside.as_ref().is_none_or(|aside| aside.is_empty()),
            "what was put aside has gone on"
        );
        let _ = exchange.output.write(exchange.request, Chunk::EMPTY, Mark::Last);
        if self.relay.keeping.is_none() {
            return Flow::End(Step::Done);
        }
        self.drop_connection();
        self.clocks.clear();
        self.stage = Stage::Storing;
        Flow::On
    }

    /// The connection has done what it could for this request: another one may use it, or it is closed.
    pub(super) fn release(&mut self, exchange: &mut Exchange<'_, 'c>) {
        self.note_end(exchange);
        let is_reusable = self.protocol.is_done()
            && self.relay.excess == Excess::None
            && self.input.is_empty()
            && self.whole_body.is_none()
            && self.sending.is_done()
            && !self.asked.proxy.is_some_and(frames_itself)
            && self.protocol.persistence() == Persistence::Stays;
        if let Some(mut connection) = self.outbound.take().filter(|_| is_reusable) {
            debug_assert!(self.input.is_empty(), "nothing of this response is left for another request");
            connection.note_sent(self.sending.sent_bytes);
            self.put_idle(connection);
        }
        debug_assert!(self.outbound.is_none(), "the connection is kept, or closed");
    }
}
