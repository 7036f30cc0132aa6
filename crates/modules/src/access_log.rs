//! `access_log`: one line per request in the combined format, handed to the writer thread. Runs in the
//! log phase and never waits; what the writer cannot take it counts and reports itself.

use std::path::PathBuf;
use std::sync::Arc;

use clearway_base::date;
use clearway_base::log::Level as LogLevel;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_h1::Known;
use clearway_http::uri::escape_log;
use clearway_http::{
    Conf, ConfKey, Cost, Exchange, Level, Load, Module, Phase, PhaseHandler, Setting, Step, View, context,
    put_decimal,
};
use clearway_log::{LogFile, Writer};

use crate::files::to_path;

/// The module. It wants among the services of the environment the writer, as `Arc<Writer>`, and where
/// nothing is configured the path to write to, as `DefaultAccessLog`.
pub static ACCESS_LOG: Module = Module {
    name: "log",
    directives: DIRECTIVES,
    confs: &[&LOG_CONF],
    phases: PHASES,
    finish: Some(open_default),
    ..Module::EMPTY
};

/// Where lines go if no `access_log` says otherwise.
#[derive(Clone, Debug)]
pub enum DefaultAccessLog {
    /// To this file.
    File(PathBuf),
    /// Nowhere.
    Off,
}

static DIRECTIVES: &[Spec<Load>] = &[Spec {
    name: "access_log",
    contexts: context::ALL,
    args: Args::ONE_MORE,
    syntax: "access_log PATH [combined]\naccess_log off",
    default: "access_log /var/log/nginx/access.log combined",
    doc: "Where a line about each request goes. Several at one level all get it; `off` ends what the level \
          around has.",
    handler: read_access_log,
}];

static PHASES: &[PhaseHandler] = &[PhaseHandler {
    phase: Phase::Log,
    cost: Cost::Cheap,
    enabled: |enabling| !enabling.confs.of(&LOG_CONF).targets().is_empty(),
    handler,
}];

static LOG_CONF: ConfKey<LogConf> = ConfKey::new(Level::Location);

#[derive(Default)]
struct LogConf {
    logs: Setting<Logs>,
}

#[derive(Clone, Default)]
struct Logs {
    state: State,
    targets: Vec<LogFile>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    On,
    Off,
}

impl Conf for LogConf {
    fn merge(&mut self, parent: &Self) {
        self.logs.merge(&parent.logs);
    }
}

impl LogConf {
    /// `off` wins over other logs of its level.
    fn targets(&self) -> &[LogFile] {
        if self.logs.state == State::Off { &[] } else { &self.logs.targets }
    }
}

fn read_access_log(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let first = &directive.args[0];
    let invalid = |at: usize| {
        let text = String::from_utf8_lossy(&directive.args[at]);
        directive.error(format!("invalid parameter \"{text}\""))
    };
    if &first[..] == b"off" {
        if directive.args.len() > 1 {
            return Err(invalid(1));
        }
        scope.conf.location(&LOG_CONF).logs.here().state = State::Off;
        return Ok(());
    }
    if let Some(format) = directive.args.get(1)
        && !format.eq_ignore_ascii_case(b"combined")
    {
        let text = String::from_utf8_lossy(format);
        return Err(directive.error(format!("unknown log format \"{text}\"")));
    }
    if directive.args.len() > 2 {
        return Err(invalid(2));
    }
    let path = to_path(&scope.conf.full_name(first));
    let file = writer(scope.conf)?.open(&path).map_err(|error| directive.error(error.to_string()))?;
    scope.conf.location(&LOG_CONF).logs.here().targets.push(file);
    Ok(())
}

fn writer(load: &Load) -> Result<Arc<Writer>, Error> {
    let writer = load.environment().services.find::<Arc<Writer>>().cloned();
    writer.ok_or_else(|| Error::unplaced("no log writer"))
}

/// Opens the default log if some server or location writes to it.
fn open_default(load: &mut Load) -> Result<(), Error> {
    if load.all_locations(&LOG_CONF).all(|conf| conf.logs.is_set()) {
        return Ok(());
    }
    let default = load.environment().services.find::<DefaultAccessLog>().cloned();
    let file = match default.unwrap_or(DefaultAccessLog::Off) {
        DefaultAccessLog::Off => return Ok(()),
        DefaultAccessLog::File(path) => match writer(load)?.open(&path) {
            Ok(file) => file,
            Err(error) => {
                // Nobody asked for this file: a server without the right to it, or on a machine that has
                // no such directory, runs all the same and says what is missing.
                let message = format_args!("{error}, requests without an \"access_log\" are not logged");
                load.environment().error_log.log(LogLevel::Error, message);
                return Ok(());
            }
        },
    };
    for conf in load.all_locations(&LOG_CONF).filter(|conf| !conf.logs.is_set()) {
        conf.logs.here().targets.push(file.clone());
    }
    Ok(())
}

fn handler<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    let line = combined(&exchange.view());
    if let Some((last, others)) = exchange.request.conf(&LOG_CONF).targets().split_last() {
        others.iter().for_each(|file| file.write(line.clone()));
        last.write(line);
    }
    Step::Declined
}

/// A line of the combined format.
fn combined(view: &View<'_, '_>) -> Vec<u8> {
    let request = view.request;
    let text = |name| request.header(name);
    let mut line = Vec::with_capacity(256);
    line.extend_from_slice(request.peer().to_string().as_bytes());
    line.extend_from_slice(b" - - [");
    line.extend_from_slice(&date::access_log_time(request.now_unix_s(), request.utc_offset_minutes()));
    line.extend_from_slice(b"] \"");
    put(&mut line, request.request_line());
    line.extend_from_slice(b"\" ");
    let status = view.status();
    let digit = |number: u16| b'0' + (number % 10) as u8;
    line.extend_from_slice(&[digit(status / 100), digit(status / 10), digit(status), b' ']);
    put_decimal(&mut line, view.body_sent_bytes());
    line.extend_from_slice(b" \"");
    put(&mut line, text(Known::Referer));
    line.extend_from_slice(b"\" \"");
    put(&mut line, text(Known::UserAgent));
    line.extend_from_slice(b"\"\n");
    line
}

/// A value as it may stand between quotes; a dash for none.
fn put(line: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        Some(value) => escape_log(value, line),
        None => line.push(b'-'),
    }
}
