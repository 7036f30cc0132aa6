//! Runs the instructions of a level for a request. They are executed in one go; only a question about a
//! file that the loop cannot answer without blocking stops the machine, which goes on when a pool has, and
//! code of a script, which may have to wait for its turn.

use std::borrow::Cow;

use clearway_base::log::Level as LogLevel;
use clearway_conf::error::printed;
use clearway_http::{
    Answer, Chunk, Exchange, GivenUp, Mark, Request, Rewritten, Step, Target, Text, Value, VariableId,
    Verbatim,
};
use clearway_offload::files::Attempt;
use clearway_os::stat::Stat;
use rustix::fs::FileType;

use super::code::{Assign, Code, Condition, FileTest, If, Op, Property, Return, Rewrite, Set, Turn};
use super::redirect;
use crate::content::files::{ABSENT, Failure, is_any, log_failure, on_pool};
use crate::content::lookup::Failed;
use crate::content::names::Names;

/// Room beside the path and the arguments of a request that are written into others, bytes.
const ADDED_BYTES: usize = 32;

/// Executes the code of a level.
pub(super) fn run<'a, 'c>(mut exchange: Exchange<'a, 'c>, code: &'c Code, log: Log) -> Step<'a> {
    let mut machine = Machine { code, at: 0, groups: Groups::AsSent, log };
    match machine.run(&mut exchange) {
        Pause::End(step) => step,
        Pause::File(question) => Step::Wait(Box::pin(resume(exchange, machine, Waits::File(question)))),
        // As code of other phases, it does not end when the client leaves.
        Pause::Script(assign) => {
            Step::WaitRegardless(Box::pin(resume(exchange, machine, Waits::Script(assign))))
        }
    }
}

struct Machine<'c> {
    code: &'c Code,
    /// The next instruction.
    at: usize,
    groups: Groups,
    log: Log,
}

/// How `$1` to `$9` are written into values that are no part of a `rewrite`. As in nginx that changes
/// with the first one that matches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Groups {
    /// Percent-encoded, if the client sent the path so.
    AsSent,
    /// As they are.
    Decoded,
}

/// Whether matches are logged (`rewrite_log`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Log {
    Nothing,
    Notices,
}

/// Why the machine does not run.
enum Pause<'c> {
    End(Step<'static>),
    File(Question<'c>),
    Script(&'c Assign),
}

/// The wait before it goes on.
enum Waits<'c> {
    File(Question<'c>),
    Script(&'c Assign),
}

/// A condition's question about a file, which only a pool can answer without blocking the loop.
struct Question<'c> {
    path: Vec<u8>,
    names: Names,
    test: FileTest,
    of: &'c If,
}

async fn resume<'c>(
    mut exchange: Exchange<'_, 'c>,
    mut machine: Machine<'c>,
    mut waits: Waits<'c>,
) -> Step<'static> {
    loop {
        match waits {
            Waits::File(Question { path, names, test, of }) => {
                let asked = path.clone();
                let job = move |blocking: &_| (names.stat_blocking(blocking, &asked), asked);
                let (found, path) = match on_pool(exchange.request, &path, job).await {
                    Ok(found) => found,
                    Err(status) => return Step::status(status),
                };
                if passes(exchange.request, &path, test, found) {
                    enter(&mut exchange, of);
                } else {
                    machine.skip(of);
                }
            }
            Waits::Script(assign) => match assign.script.run(&mut exchange).await {
                Ok(value) => assign_to(&mut exchange, assign.target, value.into()),
                Err(step) => return step,
            },
        }
        waits = match machine.run(&mut exchange) {
            Pause::End(step) => return step,
            Pause::File(question) => Waits::File(question),
            Pause::Script(assign) => Waits::Script(assign),
        };
    }
}

/// Whether a file is what a condition wants it to be.
fn passes(request: &Request<'_>, path: &[u8], test: FileTest, found: Result<Stat, Failed>) -> bool {
    let has_property = match found {
        Ok(stat) => {
            let kind = FileType::from_raw_mode(stat.mode);
            match test.property {
                Property::Regular => kind.is_file(),
                Property::Directory => kind.is_dir(),
                Property::Exists => kind.is_file() || kind.is_dir(),
                Property::Executable => stat.mode & 0o100 != 0,
            }
        }
        Err(Failed { call, error }) => {
            if !is_any(&error, &ABSENT) {
                log_failure(request, LogLevel::Crit, Failure { call, path, error: &error });
            }
            false
        }
    };
    test.wanted.fact() == has_property
}

impl<'c> Machine<'c> {
    fn run(&mut self, exchange: &mut Exchange<'_, 'c>) -> Pause<'c> {
        while let Some(op) = self.code.op(self.at) {
            self.at += 1;
            let done = match op {
                Op::Rewrite(rewrite) => self.rewrite(exchange, rewrite),
                Op::Return(answer) => Err(respond(exchange, answer)),
                Op::Set(set) => {
                    self.set(exchange, set);
                    Ok(())
                }
                Op::If(if_) => match self.judge(exchange, if_) {
                    Ok(Verdict::Holds(true)) => {
                        enter(exchange, if_);
                        Ok(())
                    }
                    Ok(Verdict::Holds(false)) => {
                        self.skip(if_);
                        Ok(())
                    }
                    Ok(Verdict::Ask(question)) => return Pause::File(question),
                    Err(GivenUp) => Err(Step::status(500)),
                },
                Op::Script(assign) => return Pause::Script(assign),
                Op::Break => {
                    exchange.request.stay_in_location();
                    Err(Step::Declined)
                }
            };
            if let Err(end) = done {
                return Pause::End(end);
            }
        }
        Pause::End(Step::Declined)
    }

    /// A value outside of a `rewrite`.
    fn value(&self, exchange: &Exchange<'_, 'c>, value: &'c Value) -> Text<'c> {
        let view = exchange.view();
        if self.groups == Groups::AsSent && value.has_captures() && exchange.request.has_escapes() {
            let mut out = Vec::new();
            value.append_quoted(&view, &mut out);
            return Cow::Owned(out);
        }
        value.eval(&view)
    }

    fn set(&self, exchange: &mut Exchange<'_, 'c>, set: &'c Set) {
        let value = self.value(exchange, &set.value);
        assign_to(exchange, set.target, value);
    }

    fn matches(
        &self,
        exchange: &Exchange<'_, 'c>,
        regex: &clearway_http::regex::Regex,
        subject: &[u8],
    ) -> Result<bool, GivenUp> {
        let request = &*exchange.request;
        let found = request.matches(regex, subject)?;
        if self.log == Log::Notices {
            let verb = if found { "matches" } else { "does not match" };
            let (pattern, subject) = (Verbatim(regex.pattern()), Verbatim(subject));
            request.log(LogLevel::Notice, format_args!("\"{pattern}\" {verb} \"{subject}\""));
        }
        if !found {
            request.clear_captures();
        }
        Ok(found)
    }
}

fn assign_to<'c>(exchange: &mut Exchange<'_, 'c>, target: Target, value: Text<'c>) {
    match target {
        Target::Kept(variable) => exchange.request.set_variable(variable, value),
        Target::Request(assign) => assign(exchange.request, value.into_owned()),
    }
}

/// `if`
impl<'c> Machine<'c> {
    fn judge(&self, exchange: &Exchange<'_, 'c>, if_: &'c If) -> Result<Verdict<'c>, GivenUp> {
        let variable = |id: VariableId| exchange.view().variable(id).unwrap_or_default();
        Ok(match &if_.condition {
            Condition::True(id) => Verdict::Holds(!matches!(&*variable(*id), b"" | b"0")),
            Condition::Equal(id, value, wanted) => {
                let left = variable(*id);
                Verdict::Holds(wanted.fact() == (left == self.value(exchange, value)))
            }
            Condition::Match(id, regex, wanted) => {
                Verdict::Holds(wanted.fact() == self.matches(exchange, regex, &variable(*id))?)
            }
            Condition::File(path, test) => {
                // The system takes a NUL for the end of it.
                let path = printed(&self.value(exchange, path)).to_vec();
                let names = Names::of(&exchange.view(), &path);
                match names.stat(&path) {
                    Attempt::Done(found) => Verdict::Holds(passes(exchange.request, &path, *test, found)),
                    Attempt::Cold => Verdict::Ask(Question { path, names, test: *test, of: if_ }),
                }
            }
        })
    }

    /// Goes on behind the block of an `if` that does not hold.
    fn skip(&mut self, if_: &If) {
        self.at += if_.body_len;
    }
}

/// Goes on in the block of an `if` that holds, and in its location.
fn enter(exchange: &mut Exchange<'_, '_>, if_: &If) {
    if let Some(location) = if_.location {
        exchange.request.enter_nested(location);
    }
}

/// The answer to a condition, as far as it is known.
enum Verdict<'c> {
    Holds(bool),
    Ask(Question<'c>),
}

/// `rewrite`
impl<'c> Machine<'c> {
    fn rewrite(
        &mut self,
        exchange: &mut Exchange<'_, 'c>,
        rewrite: &'c Rewrite,
    ) -> Result<(), Step<'static>> {
        match self.matches(exchange, &rewrite.regex, exchange.request.path()) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(GivenUp) => return Err(Step::status(500)),
        }
        self.groups = Groups::Decoded;
        let rewritten = if rewrite.turn == Turn::Break { Rewritten::Stay } else { Rewritten::Search };
        exchange.request.mark_rewritten(rewritten);
        if let Turn::Redirect(code) = rewrite.turn {
            self.redirect(exchange, rewrite);
            return Err(Step::status(code));
        }
        self.replace_path(exchange, rewrite)?;
        match rewrite.turn {
            Turn::Next => Ok(()),
            _ => Err(Step::Declined),
        }
    }

    fn redirect(&self, exchange: &mut Exchange<'_, 'c>, rewrite: &'c Rewrite) {
        let mut url = redirect::unescape(quoted(exchange, &rewrite.path));
        add_args(exchange, rewrite, if rewrite.has_query { b"&" } else { b"?" }, &mut url);
        if self.log == Log::Notices {
            let message = format_args!("rewritten redirect: \"{}\"", Verbatim(&url));
            exchange.request.log(LogLevel::Notice, message);
        }
        exchange.output.head().location = Some(url.into());
    }

    fn replace_path(
        &self,
        exchange: &mut Exchange<'_, 'c>,
        rewrite: &'c Rewrite,
    ) -> Result<(), Step<'static>> {
        let mut path = Vec::with_capacity(exchange.request.path().len() + ADDED_BYTES);
        rewrite.path.append(&exchange.view(), &mut path);
        let args = match &rewrite.args {
            Some(args) => {
                let mut args = quoted(exchange, args);
                add_args(exchange, rewrite, b"&", &mut args);
                Some(args)
            }
            // Arguments that are missing do not become empty ones.
            None => (!rewrite.keeps_args && exchange.request.args_found().is_some()).then(Vec::new),
        };
        let request = &mut *exchange.request;
        if let Some(args) = args {
            request.set_args(args);
        }
        if self.log == Log::Notices {
            let (path, args) = (Verbatim(&path), Verbatim(request.args()));
            request.log(LogLevel::Notice, format_args!("rewritten data: \"{path}\", args: \"{args}\""));
        }
        if path.is_empty() {
            request.log(LogLevel::Error, format_args!("the rewritten URI has a zero length"));
            return Err(Step::status(500));
        }
        request.set_path(path);
        Ok(())
    }
}

/// A value in which captured parts of a path that the client sent encoded are encoded again.
fn quoted(exchange: &Exchange<'_, '_>, value: &Value) -> Vec<u8> {
    let request = &*exchange.request;
    let mut out = Vec::with_capacity(request.path().len() + request.args().len() + ADDED_BYTES);
    if value.has_captures() && exchange.request.has_escapes() {
        value.append_quoted(&exchange.view(), &mut out);
    } else {
        value.append(&exchange.view(), &mut out);
    }
    out
}

fn add_args(exchange: &Exchange<'_, '_>, rewrite: &Rewrite, separator: &[u8], out: &mut Vec<u8>) {
    let args = exchange.request.args();
    if rewrite.keeps_args && !args.is_empty() {
        out.extend_from_slice(separator);
        out.extend_from_slice(args);
    }
}

/// `return`
fn respond<'c>(exchange: &mut Exchange<'_, 'c>, answer: &'c Return) -> Step<'static> {
    let has_text = answer.text.as_ref().is_some_and(|text| text.as_literal() != Some(b""));
    if answer.code == 444 && !has_text {
        return Step::Respond(Answer::Close);
    }
    if answer.code >= 400 && !has_text {
        return Step::status(answer.code);
    }
    if let Err(answer) = exchange.discard_body() {
        return Step::Respond(answer);
    }
    exchange.output.head().status = answer.code;
    let text = match &answer.text {
        Some(text) => text.eval(&exchange.view()),
        None => Cow::Borrowed(&b""[..]),
    };
    if matches!(answer.code, 301 | 302 | 303 | 307 | 308) {
        exchange.output.head().location = Some(text);
        return Step::status(answer.code);
    }
    let content_type = exchange.request.content_type();
    let head = exchange.output.head();
    head.content_length = Some(text.len() as u64);
    // One that a redirect was answered with before stays.
    if head.content_type.is_none() {
        head.content_type = content_type.map(Cow::Borrowed);
    }
    let chunk = match text {
        Cow::Borrowed(text) => Chunk::Borrowed(text),
        Cow::Owned(text) => Chunk::Owned(text),
    };
    // This chunk is the whole body, so that nothing has to wait for room.
    let _ = exchange.output.write(exchange.request, chunk, Mark::Last);
    Step::Done
}
