//! `ssi`: commands in a document are executed on its way out. A filter; it parses what is pushed to it, asks
//! for subrequests where something is included, and stops where a command has to wait for one: the rest of
//! what it was given is kept then, and the document's producer is told to wait as well.

mod commands;
mod date;
#[cfg(fuzzing)]
pub mod fuzzing;
mod parser;
mod values;

use std::sync::Arc;

use clearway_base::log::Level as LogLevel;
use clearway_conf::{Args, Spec};
use clearway_http::{
    BodyFilter, Chunk, ConfKey, ContextKey, FilterSpec, Filtering, HeaderName, Lasts, Level, Load, Mark,
    Module, Next, Presence, Ranges, Request, Setting, SubrequestOutcome, VariableKind, VariableSpec,
    Verbatim, View, context, set, settings,
};

use crate::filters::type_set::TypeSet;
use date::Clock;
use parser::{Parsed, Parser};
use values::{Common, Encoding};

/// The module. What it includes stands behind its own filter, which each document passes by itself.
pub static SSI: Module = Module {
    name: "ssi",
    directives: DIRECTIVES,
    confs: &[&SSI_CONF],
    variables: VARIABLES,
    filters: &[FilterSpec { enabled: |enabling| *enabling.confs.of(&SSI_CONF).enabled, filter }],
    ..Module::EMPTY
};

const DEFAULT_TYPE: &str = "text/html";

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "ssi",
        contexts: context::ALL.or(context::LOCATION_IF),
        args: Args::FLAG,
        syntax: "ssi on | off",
        default: "ssi off;",
        doc: "Whether SSI commands in responses are executed.",
        example: EXAMPLE_OF_INCLUDES,
        see: &[
            "ssi_types",
            "ssi_silent_errors",
            "ssi_value_length",
            "ssi_last_modified",
            "sub_filter",
            "subrequest_output_buffer_size",
        ],
        handler: |scope, d| set(d, &mut scope.conf.location(&SSI_CONF).enabled, |d| d.flag(0)),
    },
    Spec {
        name: "ssi_silent_errors",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "ssi_silent_errors on | off",
        default: "ssi_silent_errors off;",
        doc: "Whether nothing is shown in place of a command that has failed.",
        example: EXAMPLE_OF_INCLUDES,
        see: &[
            "ssi",
            "ssi_types",
            "ssi_value_length",
            "ssi_last_modified",
            "sub_filter",
            "subrequest_output_buffer_size",
        ],
        handler: |scope, d| set(d, &mut scope.conf.location(&SSI_CONF).silent_errors, |d| d.flag(0)),
    },
    Spec {
        name: "ssi_ignore_recycled_buffers",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "ssi_ignore_recycled_buffers on | off",
        default: "ssi_ignore_recycled_buffers off;",
        doc: "Whether nginx sends buffers on that may be used again.",
        example: "",
        see: &[],
        handler: |scope, d| set(d, &mut scope.conf.location(&SSI_CONF).ignore_recycled, |d| d.flag(0)),
    },
    Spec {
        name: "ssi_min_file_chunk",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "ssi_min_file_chunk SIZE",
        default: "ssi_min_file_chunk 1k;",
        doc: "From which size on nginx sends parts of the document from its file.",
        example: "",
        see: &[],
        handler: |scope, d| set(d, &mut scope.conf.location(&SSI_CONF).min_file_chunk_bytes, |d| d.size(0)),
    },
    Spec {
        name: "ssi_value_length",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "ssi_value_length SIZE",
        default: "ssi_value_length 255;",
        doc: "Longest value of a parameter of a command.",
        example: EXAMPLE_OF_INCLUDES,
        see: &[
            "ssi",
            "ssi_types",
            "ssi_silent_errors",
            "ssi_last_modified",
            "sub_filter",
            "subrequest_output_buffer_size",
        ],
        handler: |scope, d| set(d, &mut scope.conf.location(&SSI_CONF).value_bytes, |d| d.size(0)),
    },
    Spec {
        name: "ssi_types",
        contexts: context::ALL,
        args: Args::ONE_MORE,
        syntax: "ssi_types TYPE … | *",
        default: "ssi_types text/html;",
        doc: "In which types of responses commands are executed, besides `text/html`; `*` is all.",
        example: EXAMPLE_OF_INCLUDES,
        see: &[
            "ssi",
            "ssi_silent_errors",
            "ssi_value_length",
            "ssi_last_modified",
            "sub_filter",
            "subrequest_output_buffer_size",
        ],
        handler: |scope, directive| {
            let setting = &mut scope.conf.location(&SSI_CONF).types;
            for warning in TypeSet::read(directive, setting, DEFAULT_TYPE) {
                scope.warn(warning);
            }
            Ok(())
        },
    },
    Spec {
        name: "ssi_last_modified",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "ssi_last_modified on | off",
        default: "ssi_last_modified off;",
        doc: "Whether `Last-Modified` of the document is kept, and its `ETag` as a weak one.",
        example: EXAMPLE_OF_INCLUDES,
        see: &[
            "ssi",
            "ssi_types",
            "ssi_silent_errors",
            "ssi_value_length",
            "sub_filter",
            "subrequest_output_buffer_size",
        ],
        handler: |scope, d| set(d, &mut scope.conf.location(&SSI_CONF).last_modified, |d| d.flag(0)),
    },
];

/// The example of `ssi`, `ssi_silent_errors`, `ssi_value_length`, `ssi_types` and `ssi_last_modified`.
const EXAMPLE_OF_INCLUDES: &str = "
    location / {
        ssi on;
        ssi_types application/xhtml+xml;
        ssi_silent_errors on;
        ssi_value_length 1024;
        ssi_last_modified on;
    }";

static VARIABLES: &[VariableSpec] = &[
    VariableSpec {
        name: "date_local",
        kind: VariableKind::Exact,
        doc: "Local time, as `config timefmt` of SSI wants it.",
        eval: |view, _, out| put_date(view, Clock::Local(view.request.utc_offset_minutes()), out),
    },
    VariableSpec {
        name: "date_gmt",
        kind: VariableKind::Exact,
        doc: "Time in GMT, as `config timefmt` of SSI wants it.",
        eval: |view, _, out| put_date(view, Clock::Gmt, out),
    },
];

fn put_date(view: &View<'_, '_>, clock: Clock, out: &mut Vec<u8>) -> Presence {
    let common = view.request.find_common_context(&COMMON);
    let format = common.and_then(|common| common.time_format(view.request.node_number()));
    let format = format.as_deref().unwrap_or(date::DEFAULT);
    Presence::put(date::format(format, view.request.now_unix_s(), clock).as_deref(), out)
}

static SSI_CONF: ConfKey<SsiConf> = ConfKey::new(Level::Location);

settings! {
    struct SsiConf {
        enabled: Setting<bool> = false,
        silent_errors: Setting<bool> = false,
        ignore_recycled: Setting<bool> = false,
        min_file_chunk_bytes: Setting<u64> = 1024,
        value_bytes: Setting<u64> = 255,
        types: Setting<TypeSet> = TypeSet::of(&[DEFAULT_TYPE]),
        last_modified: Setting<bool> = false,
    }
}

fn filter<'c>(filtering: &mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>> {
    let request = filtering.request;
    let conf = request.conf(&SSI_CONF);
    let head = filtering.head();
    let is_of_type = head.content_type.as_deref().is_some_and(|name| conf.types.contains(name));
    if head.content_length == Some(0) || !is_of_type {
        return None;
    }
    if request.is_main() {
        head.content_length = None;
        head.ranges = Ranges::Refused;
        if *conf.last_modified {
            head.weaken_etag();
        } else {
            head.last_modified = None;
            head.headers.remove(HeaderName::new(b"Last-Modified"));
            head.etag = None;
        }
    }
    Some(Box::new(Ssi {
        conf,
        parser: Parser::new(usize::try_from(*conf.value_bytes).unwrap_or(usize::MAX)),
        common: None,
        shown: Where::Out,
        conditional: Conditional::Nothing,
        chosen: Chosen::No,
        encoding: Encoding::Entity,
        error_message: None,
        pause: Pause::None,
        held: Vec::new(),
        held_at: 0,
        held_mark: Mark::More,
    }))
}

/// The text in place of a command that has failed.
const ERROR_MESSAGE: &[u8] = b"[an error occurred while processing the directive]";

/// The most commands that are executed before other tasks of the loop have their turn: one takes a
/// microsecond or two.
const COMMANDS_MAX: usize = 64;

/// Where text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Out,
    /// The command is in the wrong part of an `if`.
    Nowhere,
    Block,
}

/// In which part of an `if` a document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Conditional {
    Nothing,
    If,
    Else,
}

/// Whether a part of an `if` was the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chosen {
    No,
    Yes,
}

static COMMON: ContextKey<Common> = ContextKey::new(Lasts::Common);

/// A subrequest that has to end before anything goes on.
struct Waiting {
    outcome: SubrequestOutcome,
    /// The variable that gets its body.
    variable: Option<Vec<u8>>,
}

/// Why a document does not go on.
enum Pause {
    /// It does.
    None,
    /// Other tasks have their turn.
    Turn,
    Subrequest(Waiting),
}

/// A document in the middle of its way.
struct Ssi<'a> {
    conf: &'a SsiConf,
    parser: Parser,
    /// The common state, from the first command on that needs it.
    common: Option<Arc<Common>>,
    shown: Where,
    conditional: Conditional,
    chosen: Chosen,
    encoding: Encoding,
    /// The error message, if it is not the default.
    error_message: Option<Vec<u8>>,
    pause: Pause,
    /// Input that was not read, from a position on.
    held: Vec<u8>,
    held_at: usize,
    held_mark: Mark,
}

impl BodyFilter for Ssi<'_> {
    fn push<'c>(&mut self, chunk: Chunk<'c>, mark: Mark, next: &mut Next<'_, 'c>) {
        let bytes = chunk.bytes();
        match self.pause {
            Pause::None => {
                let read = self.run(bytes, mark, next);
                self.held.extend_from_slice(&bytes[read..]);
            }
            _ => {
                self.held.extend_from_slice(bytes);
                if mark != Mark::More {
                    self.held_mark = mark;
                }
            }
        }
    }

    fn is_busy(&self) -> bool {
        match &self.pause {
            Pause::None => false,
            Pause::Turn => true,
            Pause::Subrequest(waiting) => waiting.outcome.status().is_some(),
        }
    }

    fn resume(&mut self, next: &mut Next<'_, '_>) {
        match std::mem::replace(&mut self.pause, Pause::None) {
            Pause::None => return,
            Pause::Subrequest(Waiting { outcome, variable: Some(variable) })
                if outcome.status().is_some_and(|status| status < 300) =>
            {
                self.common(next.request()).set(&variable, outcome.take_body());
            }
            Pause::Turn | Pause::Subrequest(_) => {}
        }
        let held = std::mem::take(&mut self.held);
        let mark = std::mem::replace(&mut self.held_mark, Mark::More);
        let at = std::mem::take(&mut self.held_at);
        let read = at + self.run(&held[at..], mark, next);
        if read < held.len() {
            (self.held, self.held_at) = (held, read);
        }
    }
}

impl Ssi<'_> {
    fn common(&mut self, request: &Request<'_>) -> Arc<Common> {
        Arc::clone(self.common.get_or_insert_with(|| request.common_context(&COMMON)))
    }

    /// Goes on with a document, up to where it has to wait. How much of it was read.
    fn run(&mut self, input: &[u8], mark: Mark, next: &mut Next<'_, '_>) -> usize {
        let mut out = Vec::new();
        let (mut rest, mut commands_left) = (input, COMMANDS_MAX);
        while let Some(parsed) = self.parse(&mut rest, &mut out, next.request()) {
            let done = match parsed {
                Parsed::Failed => Err(values::Failed),
                Parsed::Command(command) => self.execute(&command, next, &mut out),
            };
            if done.is_err() && !*self.conf.silent_errors {
                out.extend_from_slice(self.error_message.as_deref().unwrap_or(ERROR_MESSAGE));
            }
            commands_left -= 1;
            if commands_left == 0 && matches!(self.pause, Pause::None) {
                self.pause = Pause::Turn;
            }
            if !matches!(self.pause, Pause::None) {
                self.held_mark = mark;
                pass_on(&mut out, next);
                return input.len() - rest.len();
            }
        }
        if mark == Mark::More {
            pass_on(&mut out, next);
        } else {
            next.push(Chunk::Owned(out), mark);
        }
        input.len()
    }

    /// Takes what is there up to the end of the next command; text goes where it belongs.
    fn parse(&mut self, input: &mut &[u8], out: &mut Vec<u8>, request: &Request<'_>) -> Option<Parsed> {
        let mut complain =
            |parts: &[&[u8]]| request.log(LogLevel::Error, format_args!("{}", Verbatim(&parts.concat())));
        if self.shown == Where::Out {
            return self.parser.parse(input, out, &mut complain);
        }
        let mut hidden = Vec::new();
        let parsed = self.parser.parse(input, &mut hidden, &mut complain);
        if self.shown == Where::Block && !hidden.is_empty() {
            self.common(request).add_to_block(&hidden);
        }
        parsed
    }
}

/// Passes on what there is.
fn pass_on(out: &mut Vec<u8>, next: &mut Next<'_, '_>) {
    if !out.is_empty() {
        next.push(Chunk::Owned(std::mem::take(out)), Mark::More);
    }
}
