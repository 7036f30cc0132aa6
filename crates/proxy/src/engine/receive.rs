//! The request goes out and the head of the response comes in, in whatever order; then it is decided what
//! becomes of the response.

use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use clearway_base::log::Level;
use clearway_http::{Answer, Chunk, Exchange, HeaderName, Mark, Request, Step, View};
use clearway_message::{Headers, Known};

use crate::attempts::{Attempts, KeptHead, Lines};
use crate::engine::by_code::Timeout;
use crate::engine::keep::adapt_head;
use crate::engine::mend::may_be_asked;
use crate::engine::protocol::{HeadProgress, Protocol, TrailerUse, Wanted};
use crate::engine::send::Unsent;
use crate::engine::session::{BrokenBy, Flow, READING_HEAD, SENDING, Session, Stage};
use crate::heads::accel::{self, Accel, Buffering};
use crate::heads::fill::{Received, Rewritten, fill};
use crate::settings::masks::Failures;
use crate::upstreams::{LearnWhen, RESOLVER_CONF};

const CHALLENGE: HeaderName<'_> = HeaderName::new(b"WWW-Authenticate");

impl<'c, P: Protocol> Session<'c, P> {
    pub(super) fn poll_asking(&mut self, exchange: &mut Exchange<'_, 'c>, cx: &mut Context<'_>) -> Flow {
        let broken = match self.poll_send(exchange, cx) {
            Poll::Ready(Err(Unsent::Body(answer))) => return Flow::End(Step::Respond(answer)),
            Poll::Ready(Err(Unsent::Server(error))) => Some(error),
            Poll::Ready(Ok(())) => {
                if self.clocks.read_until_ms.is_none() {
                    self.restart_read_clock();
                }
                None
            }
            Poll::Pending => None,
        };
        if !P::ANSWERS {
            return self.take_head(exchange);
        }
        let flow = self.poll_head(exchange, cx);
        match (flow, broken) {
            // Servers that refuse a body answer before they close; one that is just gone does not.
            (Flow::Wait, Some(error)) => {
                exchange.request.set_action(SENDING);
                exchange.request.log(Level::Error, format_args!("{}", BrokenBy("writev()", &error)));
                self.fail(exchange, Failures::ERROR)
            }
            (flow, _) => flow,
        }
    }

    pub(super) fn restart_read_clock(&mut self) {
        self.clocks.read_until_ms = Some(self.home.now_ms() + self.timeout_ms(Timeout::Receive));
    }

    fn poll_head(&mut self, exchange: &mut Exchange<'_, 'c>, cx: &mut Context<'_>) -> Flow {
        let most = usize::try_from(*self.asked.pass.buffer_bytes).unwrap_or(usize::MAX).max(1);
        // One that was connected to at once (a unix socket) is not watched yet, and has not answered: a read
        // would be in vain.
        let outbound = self.outbound.as_ref();
        if outbound.is_some_and(|outbound| outbound.transport.poll_readable(cx).is_pending()) {
            return self.poll_early_hints(exchange, cx);
        }
        loop {
            match self.poll_read(most, cx) {
                Poll::Pending => return self.poll_early_hints(exchange, cx),
                Poll::Ready(Ok(0)) => {
                    exchange.request.set_action(READING_HEAD);
                    let message = "upstream prematurely closed connection";
                    if self.was_closed_unasked(exchange) {
                        exchange.request.log(Level::Info, format_args!("{message} before it was asked"));
                        return self.ask_again(exchange);
                    }
                    exchange.request.log(Level::Error, format_args!("{message}"));
                    return self.fail(exchange, Failures::ERROR);
                }
                Poll::Ready(Err(error)) => {
                    exchange.request.set_action(READING_HEAD);
                    exchange.request.log(Level::Error, format_args!("{}", BrokenBy("recv()", &error)));
                    return self.fail(exchange, Failures::ERROR);
                }
                Poll::Ready(Ok(size)) => {
                    exchange.request.set_action(READING_HEAD);
                    // As in nginx `…_read_timeout` is for all of a head: one that comes byte by byte holds
                    // the request no longer.
                    self.attempt(exchange).received_bytes += size as u64;
                    self.unframe(exchange, size);
                }
            }
            if let Some(flow) = self.parse_head(exchange, most) {
                return flow;
            }
        }
    }

    /// Early hints that were put into the queue leave although the response has not come.
    fn poll_early_hints(&mut self, exchange: &mut Exchange<'_, 'c>, cx: &mut Context<'_>) -> Flow {
        if exchange.output.queued_bytes() > 0 {
            let _ = exchange.output.poll_ready(exchange.request, cx);
        }
        Flow::Wait
    }

    /// Reads more behind what was received, into a buffer of so many bytes.
    pub(super) fn poll_read(&mut self, most: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Some(outbound) = &mut self.outbound else { return Poll::Ready(Ok(0)) };
        let before = self.input.len();
        self.input.reserve_exact(most.saturating_sub(before).max(1));
        let read = std::task::ready!(outbound.transport.poll_read_vec(cx, &mut self.input));
        debug_assert_eq!(
            self.input.len(),
            before + read.as_ref().unwrap_or(&0),
            "what was read stands behind the rest"
        );
        Poll::Ready(read)
    }

    /// Takes off what frames the last bytes that were received.
    pub(super) fn unframe(&mut self, exchange: &mut Exchange<'_, 'c>, size: usize) {
        let most = usize::try_from(*self.asked.pass.buffer_bytes).unwrap_or(usize::MAX).max(1);
        assert!(size <= self.input.len(), "what was read stands in the input");
        let from = self.input.len() - size;
        self.protocol
            .unframe(&mut self.input, from, most, &mut |level, text| exchange.request.log(level, text));
        debug_assert!(
            (from..=from + size).contains(&self.input.len()),
            "framing takes bytes out of what has come"
        );
    }

    /// Goes on with the head; `None`: more of it has to come.
    fn parse_head(&mut self, exchange: &mut Exchange<'_, 'c>, most: usize) -> Option<Flow> {
        loop {
            match self.protocol.head(&self.input, most) {
                Ok(HeadProgress::Incomplete) => return None,
                Ok(HeadProgress::Interim) => {
                    self.pass_early_hints(exchange);
                    let len = self.protocol.next_head();
                    assert!(0 < len && len <= self.input.len(), "an interim head lies in what was received");
                    self.input.drain(..len);
                }
                Ok(HeadProgress::Final) => return Some(self.take_head(exchange)),
                Ok(HeadProgress::Headless) => {
                    let message = "upstream sent no valid HTTP/1.0 header";
                    exchange.request.log(Level::Error, format_args!("{message}"));
                    return Some(self.take_head(exchange));
                }
                Err(fault) => {
                    if let Some(text) = self.protocol.describe_head(fault, &self.input) {
                        exchange.request.log(Level::Error, format_args!("{text}"));
                    }
                    return Some(self.fail(exchange, Failures::INVALID_HEADER));
                }
            }
        }
    }

    /// Passes an interim head on where it is one of early hints, and the location wants that.
    fn pass_early_hints(&mut self, exchange: &mut Exchange<'_, 'c>) {
        if self.protocol.status() != 103 || !passes_early_hints(&exchange.view()) {
            return;
        }
        self.relay.hints_bytes += self.protocol.head_len() as u64;
        if self.relay.hints_bytes > *self.asked.pass.buffer_bytes {
            exchange.request.log(Level::Info, format_args!("upstream sent too big early hints"));
            return;
        }
        let mut lines = Headers::default();
        for line in self.protocol.lines() {
            let (name, value) = (line.name.of(&self.input), line.value.of(&self.input));
            if !self.asked.pass.hidden.has(line.known, name) {
                lines.add(name, value);
            }
        }
        exchange.output.interim(exchange.request, 103, &lines);
    }

    /// The head is complete.
    fn take_head(&mut self, exchange: &mut Exchange<'_, 'c>) -> Flow {
        debug_assert!(matches!(self.stage, Stage::Asking), "a head answers what was asked");
        debug_assert!(may_be_asked(exchange), "one response is passed on");
        let (status, elapsed_ms) = (self.protocol.status(), self.elapsed_ms());
        self.clocks.read_until_ms = None;
        self.protocol.remark(&self.input, &mut |level, text| exchange.request.log(level, text));
        let attempt = self.attempt(exchange);
        (attempt.status, attempt.header_ms) = (status, Some(elapsed_ms));
        if let Some(lease) = &mut self.lease {
            lease.head_came(elapsed_ms, self.home.now_ms());
        }
        if let Some(flow) = self.take_missing(exchange, status) {
            return flow;
        }
        let buffering = self.heed_accel(exchange);
        if status >= 300 {
            if let Some(failure) = self.passes_over(exchange, status) {
                return self.fail(exchange, failure);
            }
            if let Some(flow) = self.prefer_cached(exchange, status) {
                return flow;
            }
            let is_miss = P::INTERCEPTS_404 && status == 404;
            let is_replaced = *self.asked.pass.intercept_errors && exchange.request.has_error_page(status);
            if is_miss || is_replaced {
                self.keep_head(exchange);
                self.remember_intercepted(exchange, status);
                return self.intercept(exchange, status);
            }
        }
        self.keep_head(exchange);
        let received = self.received(exchange.request);
        if let Some(answer) = accel::redirect(exchange.request, self.asked.pass, &received) {
            accel::keep_for_redirect(exchange.output.head(), &received);
            exchange.request.use_get();
            self.begin_body();
            self.release(exchange);
            return Flow::End(Step::Respond(answer));
        }
        self.respond(exchange, buffering)
    }

    /// Does what the server asks for, of this response or what takes its place.
    fn heed_accel(&self, exchange: &mut Exchange<'_, 'c>) -> Option<Buffering> {
        let accel = Accel::read(self.asked.pass, self.protocol.lines(), &self.input);
        if let Some(rate) = accel.limit_rate {
            exchange.request.set_limit_rate(rate);
        }
        if let Some(charset) = accel.charset {
            exchange.request.set_charset_override(charset);
        }
        accel.buffering
    }

    /// Takes the head out of what was received, and keeps it for variables. Where the body has come with it
    /// and nothing else, both stay where they are.
    pub(super) fn keep_head(&mut self, exchange: &mut Exchange<'_, 'c>) {
        let len = self.protocol.head_len();
        assert!(len <= self.input.len(), "a head lies in what was received");
        debug_assert!(self.whole_body.is_none(), "a body comes behind its head");
        let body_len = self.input.len() - len;
        let is_whole = P::ENDS_WITH_BODY
            && body_len > 0
            && self.asked.wanted == Wanted::Whole
            && self.protocol.content_length() == Some(body_len as u64);
        let bytes = if is_whole {
            let mut all = Bytes::from(std::mem::take(&mut self.input));
            self.whole_body = Some(all.split_off(len));
            debug_assert_eq!(all.len(), len, "the head is in front of the body");
            all
        } else {
            let bytes = if P::HAS_LINES { Bytes::copy_from_slice(&self.input[..len]) } else { Bytes::new() };
            self.input.drain(..len);
            bytes
        };
        let head = KeptHead { bytes, lines: Lines::Own(self.protocol.take_lines()) };
        Attempts::of_mut(exchange.request).head = Some(head);
    }

    fn received<'a>(&'a self, request: &'a Request<'_>) -> Received<'a> {
        static NONE: Bytes = Bytes::new();
        let head = Attempts::of(request).and_then(|attempts| attempts.head.as_ref());
        let (bytes, lines) = head.map_or((&NONE, &[][..]), |head| (&head.bytes, &*head.lines));
        Received {
            status_line: self.protocol.status_line(bytes),
            bytes,
            lines,
            content_length: self.protocol.content_length(),
        }
    }

    /// The error page of this server takes the place of the response. What asks for a password stays.
    fn intercept(&mut self, exchange: &mut Exchange<'_, 'c>, status: u16) -> Flow {
        if status == 401 {
            let received = self.received(exchange.request);
            for line in received.lines.iter().filter(|line| CHALLENGE.is(line.name.of(received.bytes))) {
                let value = line.value.of(received.bytes);
                exchange.output.head().headers.add(CHALLENGE.text(), value);
            }
        }
        self.begin_body();
        self.release(exchange);
        Flow::End(Step::Respond(Answer::Status(status)))
    }

    fn respond(&mut self, exchange: &mut Exchange<'_, 'c>, buffering: Option<Buffering>) -> Flow {
        let cookie = self.lease.as_ref().and_then(|lease| {
            let view = exchange.view();
            self.asked.choice.learn(&view, lease, LearnWhen::AtHead);
            self.asked.choice.cookie(&view, lease)
        });
        let kept = self.judge(exchange);
        let received = self.received(exchange.request);
        let pass = self.asked.pass;
        let rewritten =
            self.asked.proxy.map(|proxy| Rewritten::new(&exchange.view(), (pass, proxy), &received));
        fill(&mut exchange.output, pass, rewritten.unwrap_or_default(), &received);
        if !P::HAS_LINES {
            let kind = exchange.request.content_type();
            exchange.output.head().content_type = kind.map(Into::into);
        }
        self.protocol.complete_head(exchange.output.head());
        if kept.is_some() {
            adapt_head(exchange.output.head());
        }
        if let Some(cookie) = cookie {
            exchange.output.head().headers.add(b"Set-Cookie", &cookie);
        }
        debug_assert!(!exchange.output.head_sent(), "one response is passed on");
        self.begin_body();
        self.relay.begin(exchange, self.asked.pass, buffering);
        self.begin_keeping(exchange, kept);
        exchange.output.send_head(exchange.request);
        if !exchange.output.wants_body() && self.relay.keeping.is_some() {
            // Its client need not wait for what it does not get.
            let _ = exchange.output.write(exchange.request, Chunk::EMPTY, Mark::Flush);
        }
        let is_wanted = || !P::ANSWERS || exchange.request.header(Known::Upgrade).is_some();
        if self.protocol.switches_protocols() && is_wanted() {
            return Flow::Tunnel;
        }
        self.stage = Stage::Relaying;
        Flow::On
    }

    pub(super) fn begin_body(&mut self) {
        let keeps = *self.asked.pass.pass_trailers || self.relay.wants_trailers;
        let max_bytes = usize::try_from(*self.asked.pass.buffer_bytes).unwrap_or(usize::MAX);
        let trailers = if keeps { TrailerUse::Kept { max_bytes } } else { TrailerUse::Dropped };
        let wanted = self.asked.wanted;
        self.protocol.begin_body(wanted, trailers);
    }
}

/// Whether one of the texts of `early_hints` is neither empty nor `0`.
fn passes_early_hints(view: &View<'_, '_>) -> bool {
    let texts = &view.request.conf(&RESOLVER_CONF).early_hints;
    texts.iter().map(|text| text.eval(view)).any(|text| !text.is_empty() && &text[..] != b"0")
}
