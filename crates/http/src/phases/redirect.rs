//! Where a request goes when it is not answered from the path that the client asked for: internal
//! redirects, named locations, and the pages for errors. Runs in the request's task.

use std::borrow::Cow;

use clearway_base::log::Level;

use crate::config::request_directives::refresh_page;
use crate::output::OutputState;
use crate::output::view::View;
use crate::phases::engine::{Start, Turn};
use crate::request::answer::{Answer, Redirect, Wanted};
use crate::request::{
    AliasTail, ErrorPages, KeepAlive, LocationState, Origin, Pass, Request, Rewriting, SentTarget, Text,
};
use crate::response::chunk::{Chunk, Mark};
use crate::tables::Location;
use clearway_base::log::Verbatim;
use clearway_message::{Method, Text as HeadText, status, status::Padding, uri};
use clearway_site::{ErrorPage, LocationId, Overwrite, RootKind};

/// The fate of a request whose path was rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewritten {
    /// Its location is looked for at the end of the phase.
    Search,
    /// The request stays in its location (`break`).
    Stay,
}

/// Gives up; the status is for the access log.
fn close(output: &mut OutputState<'_>, status: u16) -> Turn {
    if !output.head_sent() {
        output.head.status = status;
    }
    Turn::Close
}

impl<'c> Request<'c> {
    /// Takes the settings of a location into account that hold for the whole connection.
    #[inline]
    pub(crate) fn enter_location(&mut self, location: &'c Location) {
        let limited = location.core.limit_except.filter(|limit| limit.holds_for(self.method));
        let location = limited.map_or(location, |limit| self.snapshot.location(limit.location));
        self.node_mut().location = location;
        if self.keep_alive == KeepAlive::Yes && !self.may_keep_alive(location) {
            self.keep_alive = KeepAlive::No;
        }
    }

    fn may_keep_alive(&self, location: &Location) -> bool {
        let core = &location.core;
        let age_ms = self.client.home.now_ms().saturating_sub(self.client.start_ms);
        core.keepalive_timeout.timeout_ms > 0
            && self.number < *core.keepalive_requests
            && age_ms <= *core.keepalive_time_ms
            && !crate::request::browser::is_refused_keep_alive(self, *core.keepalive_disable)
    }

    /// Says that the path is no longer what the client asked for; `set_path` says what it is.
    pub fn mark_rewritten(&mut self, rewritten: Rewritten) {
        let node = self.node_mut();
        node.sent = SentTarget::Replaced;
        node.origin = Origin::Internal;
        match rewritten {
            Rewritten::Search => node.rewriting.wanted = Wanted::Location,
            Rewritten::Stay => {
                node.rewriting.wanted = Wanted::Nothing;
                node.rewriting.place = LocationState::Lost;
            }
        }
    }

    /// Stays in the location although the path was rewritten (`break`).
    pub fn stay_in_location(&mut self) {
        if self.node().rewriting.wanted == Wanted::Location {
            self.mark_rewritten(Rewritten::Stay);
        }
    }

    /// Goes on as if the client had asked with `GET`, unless that was `HEAD`.
    pub fn use_get(&mut self) {
        if self.method != Method::Head {
            self.method = Method::Get;
        }
    }

    /// Says that the target as it was sent does not name what is asked for any more.
    pub(crate) fn forget_sent_target(&mut self) {
        self.node_mut().sent = SentTarget::Replaced;
    }

    /// The target as sent, unless another path or other arguments have taken its place.
    pub fn untouched_target(&self) -> Option<&[u8]> {
        (self.node().sent == SentTarget::Valid).then(|| self.raw_target())
    }

    /// Whether a location is to be looked for again, as the path was rewritten.
    pub fn is_to_search(&self) -> bool {
        self.node().rewriting.wanted == Wanted::Location
    }

    /// Whether the path was rewritten in its location, and need not begin with its name any more (`break`).
    pub fn is_rewritten_in_place(&self) -> bool {
        self.node().rewriting.place == LocationState::Lost
    }

    /// Goes on in a location without a name that belongs to the present one (`if`).
    pub fn enter_nested(&mut self, id: LocationId) {
        let passed_on = self.location().phases.passes_on();
        self.enter_location(self.snapshot.location(id));
        if self.location().phases.passes_on() {
            self.node_mut().rewriting.pass = Pass::AsSaid;
        } else if passed_on {
            self.node_mut().rewriting.pass = Pass::Nowhere;
        }
    }

    /// Before the location answers: whether it is known where the request is passed on, if it is to be.
    #[inline]
    pub(crate) fn check_pass(&self) -> Result<(), Answer> {
        if self.node().rewriting.pass == Pass::AsSaid {
            return Ok(());
        }
        self.log(Level::Alert, format_args!("no upstream configuration"));
        Err(Answer::Status(500))
    }

    /// A location is about to be looked for.
    #[inline]
    pub(crate) fn begin_search(&mut self) {
        let rewriting = &mut self.node_mut().rewriting;
        rewriting.wanted = Wanted::Nothing;
        rewriting.pass = Pass::AsSaid;
    }

    /// After the rewrite phase: whether the path has changed, and so a location is to be looked for again.
    pub(crate) fn post_rewrite(&mut self) -> Result<Wanted, u16> {
        let rewriting = self.node().rewriting;
        if rewriting.wanted == Wanted::Location {
            debug_assert!(self.redirects_left > 0, "a request that has used its redirects up has ended");
            self.redirects_left -= 1;
            if self.redirects_left == 0 {
                let path = Verbatim(self.path());
                let cycle = format_args!("rewrite or internal redirection cycle while processing \"{path}\"");
                self.log(Level::Error, cycle);
                return Err(500);
            }
            self.node_mut().location = self.snapshot.location(self.server.base);
        } else if rewriting.place == LocationState::Lost && self.location().root().kind != RootKind::Root {
            let name = Verbatim(self.location().name());
            let lost =
                format_args!("\"alias\" cannot be used in location \"{name}\" where URI was rewritten");
            self.log(Level::Alert, lost);
            return Err(500);
        }
        Ok(rewriting.wanted)
    }

    /// Goes on with another path from the beginning.
    fn redirect(&mut self, redirect: Redirect) -> Result<Turn, u16> {
        self.redirects_left -= 1;
        if self.redirects_left == 0 {
            self.log(
                Level::Error,
                format_args!(
                    "rewrite or internal redirection cycle while internally redirecting to \"{}\"",
                    Verbatim(&redirect.path)
                ),
            );
            return Err(500);
        }
        let base = self.snapshot.location(self.server.base);
        let node = self.node_mut();
        node.path = Text::Made(redirect.path.into());
        node.args = Text::args(redirect.args);
        node.sent = SentTarget::Replaced;
        node.origin = Origin::Internal;
        node.alias_tail = AliasTail::Nothing;
        node.rewriting = Rewriting::NONE;
        self.clear_contexts();
        self.enter_location(base);
        Ok(Turn::Ask(Start::Server))
    }

    /// Goes on in a named location with the same path.
    fn redirect_named(&mut self, name: &[u8]) -> Result<Turn, u16> {
        self.redirects_left -= 1;
        let problem = if self.redirects_left == 0 {
            "rewrite or internal redirection cycle while redirect to named location"
        } else if self.path().is_empty() {
            "empty URI in redirect to named location"
        } else if let Some(id) = self.server.tree.find_named(name) {
            let location = self.snapshot.location(id);
            let node = self.node_mut();
            node.origin = Origin::Internal;
            node.rewriting.wanted = Wanted::Nothing;
            node.rewriting.pass = Pass::AsSaid;
            self.clear_contexts();
            self.enter_location(location);
            return Ok(Turn::Ask(Start::Location));
        } else {
            "could not find named location"
        };
        self.log(Level::Error, format_args!("{problem} \"{}\"", Verbatim(name)));
        Err(500)
    }

    /// Acts on what a handler answered. The error is that the built-in page for this code is the answer, once
    /// the caller has seen to the body of the request.
    pub(crate) fn answer(&mut self, output: &mut OutputState<'c>, answer: Answer) -> Result<Turn, u16> {
        let turn = match answer {
            Answer::Close => return Ok(close(output, 444)),
            Answer::Abandon(code) => return Ok(close(output, code)),
            // 408, 444 and 499 are never sent: the client has gone or gets no answer.
            Answer::Status(code @ (408 | 444 | 499)) => return Ok(close(output, code)),
            Answer::Status(code @ (201 | 204)) => return self.answer_status(output, code),
            // As in nginx, these say that a response was sent; there is none.
            Answer::Status(0..=299) if !output.head_sent() => {
                output.skip(self);
                return Ok(Turn::Send);
            }
            Answer::Status(code) => return self.answer_status(output, code),
            Answer::Redirect(redirect) => self.redirect(*redirect),
            Answer::Named(name) => self.redirect_named(&name),
        };
        turn.or_else(|code| self.answer_status(output, code))
    }

    /// Answers with the page for a code: a configured one, else the built-in one.
    fn answer_status(&mut self, output: &mut OutputState<'c>, code: u16) -> Result<Turn, u16> {
        if output.head_sent() {
            // Too late for a page: the client sees that the response is cut.
            return Ok(Turn::Close);
        }
        self.error_status = Some(code);
        if clearway_h1::closes_connection(code) {
            self.keep_alive = KeepAlive::No;
        }
        output.head.content_type = None;
        if self.error_pages == ErrorPages::Used && self.redirects_left > 0 {
            if !self.has_recursive_error_pages() {
                self.error_pages = ErrorPages::BuiltIn;
            }
            if let Some(page) = self.error_page(code) {
                return self.answer_page(output, page);
            }
        }
        Err(code)
    }

    fn answer_page(&mut self, output: &mut OutputState<'c>, page: &'c ErrorPage) -> Result<Turn, u16> {
        match page.overwrite {
            Overwrite::Keep => {}
            Overwrite::FromPage => self.error_status = None,
            Overwrite::With(code) => self.error_status = Some(code),
        }
        let uri = page.uri.eval(&View::new(self, output));
        let turn = match uri.first() {
            Some(b'/') => {
                self.use_get();
                let (path, args) = uri::split_args(&uri);
                let args = (!args.is_empty()).then(|| args.to_vec());
                self.redirect(Redirect { path: path.to_vec(), args })
            }
            Some(b'@') => self.redirect_named(&uri),
            _ => return Err(self.answer_elsewhere(output, page.overwrite, uri)),
        };
        turn.inspect_err(|&code| {
            self.error_status = Some(code);
            self.keep_alive = KeepAlive::No;
        })
    }

    fn answer_elsewhere(
        &mut self,
        output: &mut OutputState<'c>,
        overwrite: Overwrite,
        url: HeadText<'c>,
    ) -> u16 {
        let code = match overwrite {
            // Which redirect a page takes the place of does not matter.
            _ if self.wants_refresh() => 302,
            Overwrite::With(code @ (301 | 302 | 303 | 307 | 308)) => code,
            _ => 302,
        };
        self.error_status = Some(code);
        output.head.location = Some(url);
        code
    }

    /// Answers with the built-in page for a code.
    pub(crate) fn answer_builtin(&mut self, output: &mut OutputState<'c>, code: u16) {
        if matches!(code, 301 | 302)
            && self.wants_refresh()
            && let Some(url) = output.head.location.take()
        {
            return self.answer_refresh(output, &url);
        }
        self.error_status = Some(status::sent_status(code));
        let tokens = *self.location().core.server_tokens;
        let page = self.snapshot.product.signature(tokens).pages.find(code, self.padding());
        let head = &mut output.head;
        head.clear_entity();
        head.status = status::sent_status(code);
        head.content_length = Some(page.map_or(0, |page| page.len() as u64));
        if page.is_some() {
            head.content_type = Some(Cow::Borrowed(b"text/html"));
        }
        let chunk = page.map_or(Chunk::EMPTY, |page| Chunk::Borrowed(page));
        // A page fits in any buffer.
        let _ = output.write(self, chunk, Mark::Last);
    }

    /// Answers with a page that leads elsewhere (`msie_refresh`).
    fn answer_refresh(&mut self, output: &mut OutputState<'c>, url: &[u8]) {
        let page = refresh_page(url);
        self.error_status = Some(200);
        let head = &mut output.head;
        head.clear_entity();
        head.status = 200;
        head.content_length = Some(page.len() as u64);
        head.content_type = Some(Cow::Borrowed(b"text/html"));
        let _ = output.write(self, Chunk::Owned(page), Mark::Last);
    }

    fn padding(&self) -> Padding {
        if self.wants_padding() { Padding::On } else { Padding::Off }
    }
}
