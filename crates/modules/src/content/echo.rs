//! The echo module: a location answers with texts, what other locations answer, the request's own body, and
//! pauses between them. In the task of the request.
//!
//! Commands run one after the other in the content phase. What other locations answer stands in the body
//! where it was asked for: a body filter puts it there when the next chunk comes by.

mod commands;
mod directives;
mod subrequests;
mod variables;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use clearway_http::{
    BodyFilter, Chunk, ConfKey, ContextKey, Cost, Enabling, Exchange, FilterSpec, Filtering, Input, Lasts,
    Level, Mark, Merge, Module, Next, Phase, PhaseHandler, Ranges, Setting, Step, Subrequest, Value, View,
};

/// The module. Its locations are answered before files are looked for.
pub static ECHO: Module = Module {
    name: "echo",
    directives: directives::DIRECTIVES,
    confs: &[&ECHO_CONF],
    variables: variables::VARIABLES,
    phases: PHASES,
    filters: &[FilterSpec { enabled: filters_something, filter }],
    ..Module::EMPTY
};

static PHASES: &[PhaseHandler] = &[PhaseHandler {
    phase: Phase::Content,
    cost: Cost::Cheap,
    enabled: |enabling| !enabling.confs.of(&ECHO_CONF).commands.is_empty(),
    handler,
}];

static ECHO_CONF: ConfKey<EchoConf> = ConfKey::new(Level::Location);

/// The state of a request while its commands run.
static STATE: ContextKey<EchoState> = ContextKey::new(Lasts::UntilRedirect);

/// Subrequests that the filter is to put into the body.
static PENDING: ContextKey<Pending> = ContextKey::new(Lasts::ToTheEnd);

#[derive(Default)]
struct EchoState {
    /// The value of `$echo_it`.
    item: Option<Vec<u8>>,
    /// Milliseconds to be subtracted from the time since the request began.
    timer_began_ms: u64,
}

#[derive(Default)]
struct Pending(Mutex<VecDeque<(Subrequest, Verb)>>);

/// The settings of a location.
struct EchoConf {
    /// Shared with the blocks of its `if`s.
    commands: Arc<Vec<Command>>,
    before: Arc<Vec<Arguments>>,
    after: Arc<Vec<Arguments>>,
    status: Setting<u16>,
}

impl Default for EchoConf {
    fn default() -> Self {
        let (commands, before, after) = (Arc::default(), Arc::default(), Arc::default());
        Self { commands, before, after, status: Setting::new(200) }
    }
}

impl Merge for EchoConf {
    /// A location answers with its own commands only.
    fn merge(&mut self, parent: &Self) {
        let Self { commands: _, before, after, status } = self;
        for (own, parent) in [(before, &parent.before), (after, &parent.after)] {
            if own.is_empty() {
                own.clone_from(parent);
            }
        }
        status.merge(&parent.status);
    }

    fn merge_if(&mut self, parent: &Self) {
        if self.commands.is_empty() {
            self.commands.clone_from(&parent.commands);
        }
        self.merge(parent);
    }
}

/// One directive of the content phase.
#[derive(Clone)]
struct Command {
    verb: Verb,
    arguments: Arguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Echo,
    Duplicate,
    Flush,
    Sleep,
    ResetTimer,
    Location,
    LocationAsync,
    Subrequest,
    SubrequestAsync,
    RequestBody,
    ReadRequestBody,
    ForeachSplit,
    End,
    AbortParent,
    Exec,
}

impl Verb {
    /// Whether the request's body is read first.
    fn needs_body(self) -> bool {
        self == Self::ReadRequestBody || self.asks()
    }

    /// Whether the filter puts what another location answers into the body.
    fn asks(self) -> bool {
        matches!(self, Self::Location | Self::LocationAsync | Self::Subrequest | Self::SubrequestAsync)
    }

    /// Whether that has ended before the next command begins.
    fn is_waited_for(self) -> bool {
        matches!(self, Self::Location | Self::Subrequest)
    }
}

/// The words behind a directive: options, which have no variables in them, and then arguments.
#[derive(Clone)]
struct Arguments {
    line: LineEnd,
    values: Vec<Value>,
}

/// Whether a line ends with a newline (`-n`: it does not).
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineEnd {
    Newline,
    None,
}

impl Arguments {
    /// With spaces in between, as `echo` says them.
    fn line(&self, view: &View<'_, '_>) -> Bytes {
        let mut out = Vec::new();
        for (number, value) in self.values.iter().enumerate() {
            if number > 0 {
                out.push(b' ');
            }
            value.append(view, &mut out);
        }
        if self.line == LineEnd::Newline {
            out.push(b'\n');
        }
        out.into()
    }

    /// Their values now.
    fn eval(&self, view: &View<'_, '_>) -> Vec<Vec<u8>> {
        let eval = |value: &Value| {
            let mut out = Vec::new();
            value.append(view, &mut out);
            out
        };
        self.values.iter().map(eval).collect()
    }
}

fn handler<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    Step::Wait(Box::pin(commands::run(exchange)))
}

fn filters_something(enabling: &Enabling<'_>) -> bool {
    let conf = enabling.confs.of(&ECHO_CONF);
    let asks = conf.commands.iter().any(|command| command.verb.asks());
    asks || !conf.before.is_empty() || !conf.after.is_empty()
}

fn filter<'c>(filtering: &mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>> {
    let conf = filtering.request.conf(&ECHO_CONF);
    if !conf.before.is_empty() || !conf.after.is_empty() {
        let head = filtering.head();
        head.content_length = None;
        head.ranges = Ranges::Refused;
    }
    Some(Box::new(Surrounding { before: &conf.before, after: &conf.after }))
}

/// The text that is still to be put around a body.
struct Surrounding<'a> {
    before: &'a [Arguments],
    after: &'a [Arguments],
}

impl BodyFilter for Surrounding<'_> {
    fn input(&self) -> Input {
        Input::Anything
    }

    fn push<'c>(&mut self, chunk: Chunk<'c>, mark: Mark, next: &mut Next<'_, 'c>) {
        say(std::mem::take(&mut self.before), next);
        put_pending(next);
        if mark != Mark::Last || self.after.is_empty() {
            return next.push(chunk, mark);
        }
        next.push(chunk, Mark::More);
        say(std::mem::take(&mut self.after), next);
        next.push(Chunk::EMPTY, Mark::Last);
    }
}

fn say(lines: &[Arguments], next: &mut Next<'_, '_>) {
    for line in lines {
        let text = line.line(&next.view());
        next.push(Chunk::Shared(text), Mark::More);
    }
}

/// Puts what was asked for since the last chunk in front of this one.
fn put_pending(next: &mut Next<'_, '_>) {
    loop {
        let pending = next.request().context(&PENDING);
        let wanted = pending.and_then(|pending| pending.lock().pop_front());
        let Some((wanted, verb)) = wanted else { return };
        let Ok(outcome) = next.subrequest(wanted) else { return next.terminate() };
        if verb.is_waited_for() {
            next.wait_for(&outcome);
        }
    }
}

impl Pending {
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(Subrequest, Verb)>> {
        // Only the request's task is ever here.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
