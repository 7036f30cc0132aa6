//! `more_set_input_headers` and `more_clear_input_headers`: header lines of requests, changed at the end of
//! the rewrite phase.

use std::sync::Arc;

use bytes::Bytes;
use clearway_conf::error::message;
use clearway_conf::{Directive, Error, Scope};
use clearway_http::{ConfKey, Enabling, Exchange, Level, Load, Merge, Request, SharedHead, Step};
use clearway_message::Known;

use super::{Line, Opcode, read_line};

pub(super) static INPUT_CONF: ConfKey<InputConf> = ConfKey::new(Level::Location);

/// The commands of a level, those of the levels around it first.
#[derive(Default)]
pub(super) struct InputConf(Arc<Vec<Command>>);

impl Merge for InputConf {
    fn merge(&mut self, parent: &Self) {
        if self.0.is_empty() {
            self.0.clone_from(&parent.0);
        } else if !parent.0.is_empty() {
            self.0 = Arc::new(parent.0.iter().chain(self.0.iter()).cloned().collect());
        }
    }
}

/// One directive.
#[derive(Clone)]
struct Command {
    lines: Vec<Line>,
    /// None: all.
    types: Vec<Bytes>,
    lacking: Lacking,
}

/// The treatment of a line that the request does not have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lacking {
    Added,
    LeftOut,
}

pub(super) fn read(scope: &mut Scope<'_, Load>, directive: &Directive, opcode: Opcode) -> Result<(), Error> {
    let (mut lines, mut types, mut lacking) = (Vec::new(), Vec::new(), Lacking::Added);
    let mut arguments = directive.args.iter().filter(|argument| !argument.is_empty());
    while let Some(argument) = arguments.next() {
        match &argument[..] {
            b"-t" => {
                let list = arguments.next().ok_or_else(|| {
                    directive.error(message(&[&directive.name, &": option -t takes an argument."]))
                })?;
                let names = list.split(|byte| byte.is_ascii_whitespace() || *byte == b';');
                types.extend(names.filter(|name| !name.is_empty()).map(|name| list.slice_ref(name)));
            }
            b"-r" if opcode == Opcode::Set => lacking = Lacking::LeftOut,
            [b'-', ..] => {
                let text = message(&[&directive.name, &": invalid option name: \"", argument, &"\""]);
                return Err(directive.error(text));
            }
            _ => lines.push(read_line(scope.conf, directive, argument, opcode)?),
        }
    }
    let command = Command { lines, types, lacking };
    Arc::make_mut(&mut scope.conf.location(&INPUT_CONF).0).push(command);
    Ok(())
}

pub(super) fn is_enabled(enabling: &Enabling<'_>) -> bool {
    !enabling.confs.of(&INPUT_CONF).0.is_empty()
}

pub(super) fn handler<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    for command in exchange.request.conf(&INPUT_CONF).0.iter() {
        if !command.types.is_empty() {
            let content_type = exchange.request.header(Known::ContentType).unwrap_or_default();
            let end = content_type.iter().position(|&byte| byte == b';').unwrap_or(content_type.len());
            let content_type = content_type[..end].trim_ascii();
            if !command.types.iter().any(|name| name.eq_ignore_ascii_case(content_type)) {
                continue;
            }
        }
        for line in &command.lines {
            let value = line.value.as_ref().map(|value| value.eval(&exchange.view()).into_owned());
            let value = value.filter(|value| !value.is_empty());
            // The head of a subrequest is that of the request that the client has made.
            let _: Result<(), SharedHead> = change(exchange.request, &line.name, value, command.lacking);
        }
    }
    Step::Declined
}

fn change(
    request: &mut Request<'_>,
    name: &[u8],
    value: Option<Vec<u8>>,
    lacking: Lacking,
) -> Result<(), SharedHead> {
    match (value, name.strip_suffix(b"*")) {
        (None, Some(prefix)) => {
            let begins = |name: &&[u8]| {
                name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
            };
            let found: Vec<Vec<u8>> =
                request.headers().map(|line| line.name).filter(begins).map(<[u8]>::to_vec).collect();
            found.iter().try_for_each(|name| request.remove_header(name))
        }
        (None, None) => request.remove_header(name),
        (Some(value), _) => {
            let is_there = request.headers().any(|line| line.name.eq_ignore_ascii_case(name));
            if !is_there && lacking == Lacking::LeftOut {
                return Ok(());
            }
            request.set_header(name, &value)
        }
    }
}
