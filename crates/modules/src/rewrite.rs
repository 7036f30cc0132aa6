//! `rewrite`, `return`, `set`, `if` and `break`: what is decided about a request before and after its
//! location is known. The directives of a level become a flat list of instructions at load (`code`), which
//! a request runs through (`machine`); nothing is parsed by then. Waits only for a pool where `if` asks
//! about a file, and for code that scripts put among the instructions.

mod code;
mod condition;
mod machine;
mod redirect;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use clearway_base::log::Level as LogLevel;
use clearway_base::units;
use clearway_conf::error::{message, printed};
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};
use clearway_http::regex::{Case, Regex};
use clearway_http::{
    Computed, ConfKey, Cost, Enabling, Exchange, Level, Load, Module, Own, Phase, PhaseHandler, Script,
    Setting, Step, Target, Text, Verbatim, View, context, set, settings,
};

use code::{Assign, Code, If, Op, Return, Rewrite, Set, Turn};

/// The module.
pub static REWRITE: Module = Module {
    name: "rewrite",
    directives: DIRECTIVES,
    confs: &[&REWRITE_CONF],
    phases: PHASES,
    ..Module::EMPTY
};

/// Where the instructions stand.
const CODE: Contexts = context::SERVER.or(context::SERVER_IF).or(context::LOCATION).or(context::LOCATION_IF);

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "rewrite",
        contexts: CODE,
        args: Args::TAKE23,
        syntax: "rewrite REGEX REPLACEMENT [last | break | redirect | permanent]",
        default: "",
        doc: "Replaces the path if the expression matches it. Text behind a `?` in the replacement becomes \
              the arguments, to which those of the request are added unless it ends in a `?`. Directives \
              that follow see the new path; `last` ends them and has a location looked for, `break` ends \
              them and stays. `redirect` (302), `permanent` (301) and a replacement that begins with \
              `http://`, `https://` or `$scheme` send the client elsewhere. A request whose path was \
              replaced ten times gets 500.",
        example: r"
            location /download/ {
                rewrite ^(/download/.*)/media/(\w+)\.?.*$ $1/mp3/$2.mp3 last;
                return 403;
            }",
        see: &["return", "if", "set", "break", "rewrite_log"],
        handler: read_rewrite,
    },
    Spec {
        name: "return",
        contexts: CODE,
        args: Args::TAKE12,
        syntax: "return CODE [TEXT]\nreturn CODE URL\nreturn URL",
        default: "",
        doc: "Answers at once with a code: with a text, or for 301, 302, 303, 307 and 308 with another URL, \
              both of which may have variables. A URL alone is a 302. The code 444 closes the connection \
              without an answer.",
        example: "
            server {
                server_name example.com;
                return 301 https://www.example.com$request_uri;
            }",
        see: &["rewrite", "error_page"],
        handler: read_return,
    },
    Spec {
        name: "break",
        contexts: CODE,
        args: Args::NOARGS,
        syntax: "break",
        default: "",
        doc: "Ends `rewrite`, `return`, `set` and `if` of the level; the request stays in its location.",
        example: "
            location /legacy/ {
                if ($arg_raw) {
                    break;
                }
                rewrite ^/legacy/(.*)$ /$1 last;
            }",
        see: &["rewrite", "if"],
        handler: |scope, _| {
            conf(scope).code.push(Op::Break);
            Ok(())
        },
    },
    Spec {
        name: "if",
        contexts: context::SERVER.or(context::LOCATION),
        args: Args::BLOCK.or(Args::ONE_MORE),
        syntax: "if (CONDITION) { … }",
        default: "",
        doc: "Applies the block's directives to requests that meet a condition. In a location the block is \
              a location of its own, which answers from then on. Conditions: a variable (false when empty \
              or `0`), `$x = text`, `$x != text`, `$x ~ regex` (`~*` in any case, `!~` and `!~*` for no \
              match), and for files `-f` (regular), `-d` (directory), `-e` (either) and `-x` (executable), \
              each with `!` before it for the contrary.",
        example: "
            location / {
                if ($request_method = PUT) {
                    return 405;
                }
                if (-f $document_root/maintenance.html) {
                    return 503;
                }
            }",
        see: &["set", "map", "rewrite", "return"],
        handler: read_if,
    },
    Spec {
        name: "set",
        contexts: CODE,
        args: Args::TAKE2,
        syntax: "set $VARIABLE VALUE",
        default: "",
        doc: "Gives a variable a value, which may have variables in it.",
        example: "
            set $bucket main;
            if ($http_user_agent ~* bot) {
                set $bucket crawlers;
            }",
        see: &["map", "if"],
        handler: read_set,
    },
    Spec {
        name: "rewrite_log",
        contexts: ANYWHERE,
        args: Args::FLAG,
        syntax: "rewrite_log on | off",
        default: "rewrite_log off;",
        doc: "Writes what `rewrite` and the expressions of `if` do into the error log, at level `notice`.",
        example: "
            location /moved/ {
                error_log logs/rewrites.log notice;
                rewrite_log on;
                rewrite ^/moved/(.*)$ /new/$1;
            }",
        see: &["rewrite", "error_log"],
        handler: |scope, directive| set(directive, &mut conf(scope).log, |directive| directive.flag(0)),
    },
    Spec {
        name: "uninitialized_variable_warn",
        contexts: ANYWHERE,
        args: Args::FLAG,
        syntax: "uninitialized_variable_warn on | off",
        default: "uninitialized_variable_warn on;",
        doc: "Whether a variable that is used before `set` gave it a value is worth a line in the error log.",
        example: "
            uninitialized_variable_warn off;",
        see: &["set"],
        handler: |scope, directive| set(directive, &mut conf(scope).warn, |directive| directive.flag(0)),
    },
];

const ANYWHERE: Contexts = CODE.or(context::HTTP);

static PHASES: &[PhaseHandler] = &[
    PhaseHandler {
        phase: Phase::ServerRewrite,
        cost: Cost::Cheap,
        enabled: |enabling| has_code(enabling, RewritePhase::Server, Runs::Nothing),
        handler,
    },
    PhaseHandler {
        phase: Phase::ServerRewrite,
        cost: Cost::MayBlock,
        enabled: |enabling| has_code(enabling, RewritePhase::Server, Runs::Scripts),
        handler,
    },
    PhaseHandler {
        phase: Phase::Rewrite,
        cost: Cost::Cheap,
        enabled: |enabling| has_code(enabling, RewritePhase::Location, Runs::Nothing),
        handler,
    },
    PhaseHandler {
        phase: Phase::Rewrite,
        cost: Cost::MayBlock,
        enabled: |enabling| has_code(enabling, RewritePhase::Location, Runs::Scripts),
        handler,
    },
];

static REWRITE_CONF: ConfKey<RewriteConf> = ConfKey::new(Level::Location);

settings! {
    struct RewriteConf {
        /// The code is not inherited: a server's code runs before a location is looked for.
        code: Own<Code>,
        place: Own<RewritePhase> = RewritePhase::Location,
        log: Setting<bool> = false,
        warn: Setting<bool> = true,
    }
}

/// Whether there is code among the instructions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runs {
    Scripts,
    Nothing,
}

/// Which phase the instructions belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RewritePhase {
    Server,
    Location,
}

fn has_code(enabling: &Enabling<'_>, place: RewritePhase, runs: Runs) -> bool {
    let conf = enabling.confs.of(&REWRITE_CONF);
    let is_of_kind = conf.code.has_scripts() == (runs == Runs::Scripts);
    *conf.place == place && !conf.code.is_empty() && is_of_kind
}

/// Appends code to the directives of the level that is being read ([`clearway_http::Scripts`]).
///
/// # Errors
/// A name that cannot be set.
pub fn append_script(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    name: &[u8],
    script: Box<dyn Script>,
) -> Result<(), Error> {
    let target = target(scope, directive, name)?;
    conf(scope).code.push(Op::Script(Assign { target, script }));
    Ok(())
}

fn handler<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    let conf = exchange.request.conf(&REWRITE_CONF);
    let log = if *conf.log { machine::Log::Notices } else { machine::Log::Nothing };
    machine::run(exchange, &conf.code, log)
}

/// The settings of the level that is being read.
fn conf<'a>(scope: &'a mut Scope<'_, Load>) -> &'a mut RewriteConf {
    let is_server = scope.context.meets(context::SERVER);
    let conf = scope.conf.location(&REWRITE_CONF);
    if is_server {
        *conf.place = RewritePhase::Server;
    }
    conf
}

/// A text that makes a redirect of what it is given to.
fn is_url(text: &[u8]) -> bool {
    text.starts_with(b"http://") || text.starts_with(b"https://") || text.starts_with(b"$scheme")
}

fn read_rewrite(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let mut replacement = directive.args[1].clone();
    if replacement.is_empty() {
        return Err(directive.error("empty replacement"));
    }
    let regex = compile(scope.conf, directive, &directive.args[0], Case::Sensitive)?;
    let keeps_args = !replacement.ends_with(b"?");
    if !keeps_args {
        replacement.truncate(replacement.len() - 1);
    }
    let turn = match (read_flag(directive)?, is_url(&replacement)) {
        (redirect @ Turn::Redirect(_), _) => redirect,
        (_, true) => Turn::Redirect(302),
        (turn, false) => turn,
    };
    let query = memchr::memchr(b'?', &replacement);
    let is_path = !matches!(turn, Turn::Redirect(_));
    let (path, args) = match query {
        Some(at) if is_path => (replacement.slice(..at), Some(replacement.slice(at + 1..))),
        _ => (replacement, None),
    };
    let variables = &mut scope.conf.variables;
    let path = variables.compile(&path, &directive.pos)?;
    let args = args.map(|args| variables.compile(&args, &directive.pos)).transpose()?;
    let rewrite = Rewrite { regex, path, args, has_query: query.is_some(), keeps_args, turn };
    conf(scope).code.push(Op::Rewrite(Box::new(rewrite)));
    Ok(())
}

fn read_flag(directive: &Directive) -> Result<Turn, Error> {
    let Some(flag) = directive.args.get(2) else { return Ok(Turn::Next) };
    match printed(flag) {
        b"last" => Ok(Turn::Last),
        b"break" => Ok(Turn::Break),
        b"redirect" => Ok(Turn::Redirect(302)),
        b"permanent" => Ok(Turn::Redirect(301)),
        _ => Err(directive.error(message(&[&"invalid parameter \"", flag, &"\""]))),
    }
}

/// An expression of a directive, whose named groups become variables.
fn compile(load: &mut Load, directive: &Directive, pattern: &Bytes, case: Case) -> Result<Regex, Error> {
    let mut regex = Regex::compile(pattern, case).map_err(|error| directive.error(error.to_string()))?;
    load.bind_names(&mut regex).map_err(|message| directive.error(message))?;
    Ok(regex)
}

fn read_return(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let first = &directive.args[0];
    let invalid = || directive.error(message(&[&"invalid return code \"", first, &"\""]));
    let (code, text) = match units::parse_number(first) {
        Some(code @ 0..=999) => (code as u16, directive.args.get(1)),
        Some(_) => return Err(invalid()),
        None if directive.args.len() == 1 && is_url(first) => (302, Some(first)),
        None => return Err(invalid()),
    };
    let text = text.map(|text| scope.conf.variables.compile(text, &directive.pos)).transpose()?;
    conf(scope).code.push(Op::Return(Box::new(Return { code, text })));
    Ok(())
}

fn read_set(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let Some(name) = directive.args[0].strip_prefix(b"$") else {
        return Err(directive.error(message(&[&"invalid variable name \"", &directive.args[0], &"\""])));
    };
    let target = target(scope, directive, name)?;
    let value = scope.conf.variables.compile(&directive.args[1], &directive.pos)?;
    conf(scope).code.push(Op::Set(Set { target, value }));
    Ok(())
}

/// The variable of this name, which has no value before it is set.
fn target(scope: &mut Scope<'_, Load>, directive: &Directive, name: &[u8]) -> Result<Target, Error> {
    let unset = || -> Arc<dyn Computed> { Arc::new(Unset { name: name.to_ascii_lowercase().into() }) };
    scope.conf.variable_to_set(name, unset).map_err(|message| directive.error(message))
}

fn read_if(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let condition = condition::read(scope.conf, directive)?;
    let is_server = scope.context.meets(context::SERVER);
    let inner = if is_server { context::SERVER_IF } else { context::LOCATION_IF };
    let id = Load::read_nested(scope, directive, inner)?;
    let body = std::mem::take(&mut *scope.conf.nested(id, &REWRITE_CONF).code);
    let location = (!is_server).then_some(id);
    let code = &mut conf(scope).code;
    code.push(Op::If(Box::new(If { condition, location, body_len: body.len() })));
    code.append(body);
    Ok(())
}

/// A variable that `set` has not reached yet.
struct Unset {
    name: Box<[u8]>,
}

impl Computed for Unset {
    fn eval<'c>(&'c self, view: &View<'_, 'c>) -> Option<Text<'c>> {
        if *view.request.conf(&REWRITE_CONF).warn {
            let message = format_args!("using uninitialized \"{}\" variable", Verbatim(&self.name));
            view.request.log(LogLevel::Warn, message);
        }
        Some(Cow::Borrowed(b""))
    }
}
