//! The SSI commands: their parameters, and the functions that execute them. In the request's task.

use clearway_base::log::Level as LogLevel;
use clearway_http::{Delivery, Next, Request, Subrequest, Verbatim};

use super::parser::Command;
use super::values::{Encoding, Failed, directory, split_uri};
use super::{Chosen, Conditional, Pause, Ssi, Waiting, Where};

/// Most parameters of a command.
const PARAMS_MAX: usize = 16;

/// The text that `echo` writes for a variable without a value.
const NONE: &[u8] = b"(none)";

/// The description of a command.
struct Known {
    name: &'static str,
    params: &'static [Param],
    /// The part of an `if` up to which the command may stand; `None` if it may stand anywhere.
    within: Option<Conditional>,
    /// Whether it is executed within a block as well.
    ends_block: bool,
    run: fn(&mut Ssi<'_>, &Params<'_>, &mut Next<'_, '_>, &mut Vec<u8>) -> Result<(), Failed>,
}

struct Param {
    name: &'static str,
    need: Need,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Optional,
    Mandatory,
}

const fn optional(name: &'static str) -> Param {
    Param { name, need: Need::Optional }
}

const fn mandatory(name: &'static str) -> Param {
    Param { name, need: Need::Mandatory }
}

const fn command(
    name: &'static str,
    params: &'static [Param],
    run: fn(&mut Ssi<'_>, &Params<'_>, &mut Next<'_, '_>, &mut Vec<u8>) -> Result<(), Failed>,
) -> Known {
    Known { name, params, within: None, ends_block: false, run }
}

const INCLUDE: &[Param] =
    &[optional("virtual"), optional("file"), optional("wait"), optional("set"), optional("stub")];
const EXPR: &[Param] = &[mandatory("expr")];

static COMMANDS: [Known; 10] = [
    command("include", INCLUDE, include),
    command("echo", &[mandatory("var"), optional("default"), optional("encoding")], echo),
    command("config", &[optional("errmsg"), optional("timefmt")], config),
    command("set", &[mandatory("var"), mandatory("value")], set),
    command("if", EXPR, begin_if),
    Known { within: Some(Conditional::If), ..command("elif", EXPR, choose) },
    Known { within: Some(Conditional::If), ..command("else", &[], or_else) },
    Known { within: Some(Conditional::Else), ..command("endif", &[], end_if) },
    command("block", &[mandatory("name")], begin_block),
    Known { ends_block: true, ..command("endblock", &[], end_block) },
];

/// The parameters of a command in a page.
struct Params<'a>(Vec<(&'static str, &'a [u8])>);

impl<'a> Params<'a> {
    fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.0.iter().find(|(other, _)| *other == name).map(|(_, value)| *value)
    }

    fn given(&self, name: &str) -> &'a [u8] {
        self.get(name).unwrap_or_default()
    }
}

fn complain(request: &Request<'_>, parts: &[&[u8]]) -> Failed {
    request.log(LogLevel::Error, format_args!("{}", Verbatim(&parts.concat())));
    Failed
}

impl Ssi<'_> {
    /// Executes a command.
    pub(super) fn execute(
        &mut self,
        command: &Command,
        next: &mut Next<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Failed> {
        let is_shown = self.shown == Where::Out;
        let Some(known) = COMMANDS.iter().find(|known| known.name.as_bytes() == command.name) else {
            if !is_shown {
                return Ok(());
            }
            return Err(complain(next.request(), &[b"invalid SSI command: \"", &command.name, b"\""]));
        };
        if !is_shown && !known.ends_block {
            if self.shown == Where::Block {
                let text = rewrite(command);
                self.common(next.request()).add_to_block(&text);
                return Ok(());
            }
            if known.within.is_none() {
                return Ok(());
            }
        }
        if known
            .within
            .is_some_and(|within| self.conditional == Conditional::Nothing || self.conditional > within)
        {
            let parts: [&[u8]; 3] = [b"invalid context of SSI command: \"", &command.name, b"\""];
            return Err(complain(next.request(), &parts));
        }
        let params = known.params_of(command, next.request())?;
        (known.run)(self, &params, next, out)
    }
}

impl Known {
    fn params_of<'a>(&self, command: &'a Command, request: &Request<'_>) -> Result<Params<'a>, Failed> {
        let name = &command.name[..];
        if command.params.len() > PARAMS_MAX {
            return Err(complain(request, &[b"too many SSI command parameters: \"", name, b"\""]));
        }
        let mut found: Vec<(&'static str, &[u8])> = Vec::with_capacity(command.params.len());
        for (key, value) in &command.params {
            let Some(param) = self.params.iter().find(|param| param.name.as_bytes() == key) else {
                let in_command: &[u8] = b"\" in \"";
                let parts = [b"invalid parameter name: \"", &key[..], in_command, name, b"\" SSI command"];
                return Err(complain(request, &parts));
            };
            if found.iter().any(|(other, _)| *other == param.name) {
                let in_command: &[u8] = b"\" parameter in \"";
                return Err(complain(request, &[b"duplicate \"", key, in_command, name, b"\" SSI command"]));
            }
            found.push((param.name, value));
        }
        let is_absent = |param: &&Param| {
            param.need == Need::Mandatory && !found.iter().any(|(other, _)| *other == param.name)
        };
        if let Some(absent) = self.params.iter().find(is_absent) {
            let in_command: &[u8] = b"\" parameter is absent in \"";
            let parts = [b"mandatory \"", absent.name.as_bytes(), in_command, name, b"\" SSI command"];
            return Err(complain(request, &parts));
        }
        Ok(Params(found))
    }
}

/// The text of a command, to be added to the block that is being collected.
fn rewrite(command: &Command) -> Vec<u8> {
    let mut text = [b"<!--#", &command.name[..]].concat();
    for (key, value) in &command.params {
        for part in [b" ", &key[..], b"=\"", value, b"\""] {
            text.extend_from_slice(part);
        }
    }
    text.extend_from_slice(b" -->");
    text
}

fn include(
    ssi: &mut Ssi<'_>,
    params: &Params<'_>,
    next: &mut Next<'_, '_>,
    out: &mut Vec<u8>,
) -> Result<(), Failed> {
    let request = next.request();
    let (uri, is_waited) = what_to_include(params, request)?;
    let common = ssi.common(request);
    let mut path = common.evaluate(uri, &next.view())?;
    if path.first().is_some_and(|&byte| byte != b'/') {
        path.splice(..0, directory(request.path()).iter().copied());
    }
    let (path, args) = split_uri(&path, request)?;
    let mut wanted = Subrequest::in_order(path, args);
    if let Some(stub) = params.get("stub") {
        let Some(block) = common.block(stub) else {
            return Err(complain(request, &[b"\"stub\"=\"", stub, b"\" for \"include\" not found"]));
        };
        wanted.stub = Some(block.into());
    }
    let variable = params.get("set");
    if let Some(variable) = variable {
        common.declare(variable);
        wanted.delivery = Delivery::InMemory;
    }
    super::pass_on(out, next);
    let Ok(outcome) = next.subrequest(wanted) else { return Err(Failed) };
    if is_waited || variable.is_some() {
        next.wait_for(&outcome);
        ssi.pause = Pause::Subrequest(Waiting { outcome, variable: variable.map(<[u8]>::to_vec) });
    }
    Ok(())
}

/// The URI to include, and whether the page waits until it was sent.
fn what_to_include<'a>(params: &Params<'a>, request: &Request<'_>) -> Result<(&'a [u8], bool), Failed> {
    let (uri, file) = match (params.get("virtual"), params.get("file")) {
        (Some(uri), Some(file)) => {
            let or_file: &[u8] = b"\" or file=\"";
            let parts = [b"inclusion may be either virtual=\"", uri, or_file, file, b"\""];
            return Err(complain(request, &parts));
        }
        (None, None) => return Err(complain(request, &[b"no parameter in \"include\" SSI command"])),
        found => found,
    };
    if params.get("set").is_some() && params.get("stub").is_some() {
        let text: &[u8] = b"\"set\" and \"stub\" cannot be used together in \"include\" SSI command";
        return Err(complain(request, &[text]));
    }
    let Some(uri) = uri else {
        let file = file.unwrap_or_default();
        return match params.get("wait") {
            Some(_) => Err(complain(request, &[b"\"wait\" cannot be used with file=\"", file, b"\""])),
            None => Ok((file, true)),
        };
    };
    match params.get("wait") {
        None => Ok((uri, false)),
        Some(wait) if wait.eq_ignore_ascii_case(b"no") => Ok((uri, false)),
        Some(wait) if wait.eq_ignore_ascii_case(b"yes") => Ok((uri, true)),
        Some(wait) => Err(complain(request, &[b"invalid value \"", wait, b"\" in the \"wait\" parameter"])),
    }
}

fn echo(
    ssi: &mut Ssi<'_>,
    params: &Params<'_>,
    next: &mut Next<'_, '_>,
    out: &mut Vec<u8>,
) -> Result<(), Failed> {
    let value = ssi.common(next.request()).variable(params.given("var"), &next.view());
    let value = value.as_deref().unwrap_or_else(|| params.get("default").unwrap_or(NONE));
    if value.is_empty() {
        return Ok(());
    }
    match params.get("encoding") {
        None => {}
        // As in nginx, the encoding also holds for later `echo` commands.
        Some(b"none") => ssi.encoding = Encoding::Nothing,
        Some(b"url") => ssi.encoding = Encoding::Url,
        Some(b"entity") => ssi.encoding = Encoding::Entity,
        Some(other) => {
            let parts: [&[u8]; 3] = [b"unknown encoding \"", other, b"\" in the \"echo\" command"];
            complain(next.request(), &parts);
        }
    }
    ssi.encoding.put(value, out);
    Ok(())
}

fn config(
    ssi: &mut Ssi<'_>,
    params: &Params<'_>,
    next: &mut Next<'_, '_>,
    _: &mut Vec<u8>,
) -> Result<(), Failed> {
    if let Some(format) = params.get("timefmt") {
        let node = next.request().node_number();
        ssi.common(next.request()).set_time_format(node, format.to_vec());
    }
    if let Some(message) = params.get("errmsg") {
        ssi.error_message = Some(message.to_vec());
    }
    Ok(())
}

fn set(
    ssi: &mut Ssi<'_>,
    params: &Params<'_>,
    next: &mut Next<'_, '_>,
    _: &mut Vec<u8>,
) -> Result<(), Failed> {
    let common = ssi.common(next.request());
    let value = common.evaluate(params.given("value"), &next.view())?;
    common.set(params.given("var"), value);
    Ok(())
}

fn begin_if(
    ssi: &mut Ssi<'_>,
    params: &Params<'_>,
    next: &mut Next<'_, '_>,
    out: &mut Vec<u8>,
) -> Result<(), Failed> {
    if ssi.conditional != Conditional::Nothing {
        return Err(complain(next.request(), &[b"the \"if\" command inside the \"if\" command"]));
    }
    choose(ssi, params, next, out)
}

/// `if` and `elif`.
fn choose(
    ssi: &mut Ssi<'_>,
    params: &Params<'_>,
    next: &mut Next<'_, '_>,
    _: &mut Vec<u8>,
) -> Result<(), Failed> {
    if ssi.chosen == Chosen::Yes {
        ssi.shown = Where::Nowhere;
        return Ok(());
    }
    if is_true(ssi, params.given("expr"), next)? {
        ssi.shown = Where::Out;
        ssi.chosen = Chosen::Yes;
    } else {
        ssi.shown = Where::Nowhere;
    }
    ssi.conditional = Conditional::If;
    Ok(())
}

/// `VALUE`, `VALUE = VALUE`, `VALUE != VALUE`, and with `/EXPRESSION/` on the right side.
fn is_true(ssi: &mut Ssi<'_>, expression: &[u8], next: &mut Next<'_, '_>) -> Result<bool, Failed> {
    let request = next.request();
    let common = ssi.common(request);
    let is_of_left = |byte: &u8| byte.is_ascii_alphanumeric() || b"${}_\"'".contains(byte);
    let invalid = || complain(request, &[b"invalid expression in \"", expression, b"\""]);
    let end = expression.iter().position(|byte| !is_of_left(byte)).unwrap_or(expression.len());
    let left = common.evaluate(&expression[..end].to_ascii_lowercase(), &next.view())?;
    let rest = trim_start(&expression[end..]);
    if rest.is_empty() {
        return Ok(!left.is_empty());
    }
    let (is_negated, right) = match rest {
        [b'=', right @ ..] => (false, trim_start(right)),
        [b'!', b'=', right @ ..] => (true, trim_start(right)),
        _ => return Err(invalid()),
    };
    let is_equal = match right {
        [b'/', pattern @ .., b'/'] => {
            let pattern = common.evaluate(pattern, &next.view())?;
            common.matches(&pattern, &left, request)?
        }
        [b'/', _, ..] => return Err(invalid()),
        [b'\\', text @ ..] if text.len() > 1 && text[0] == b'/' => {
            common.evaluate(text, &next.view())? == left
        }
        text => common.evaluate(text, &next.view())? == left,
    };
    Ok(is_equal != is_negated)
}

fn trim_start(text: &[u8]) -> &[u8] {
    &text[text.iter().position(|&byte| byte != b' ').unwrap_or(text.len())..]
}

fn or_else(ssi: &mut Ssi<'_>, _: &Params<'_>, _: &mut Next<'_, '_>, _: &mut Vec<u8>) -> Result<(), Failed> {
    ssi.shown = if ssi.chosen == Chosen::Yes { Where::Nowhere } else { Where::Out };
    ssi.conditional = Conditional::Else;
    Ok(())
}

fn end_if(ssi: &mut Ssi<'_>, _: &Params<'_>, _: &mut Next<'_, '_>, _: &mut Vec<u8>) -> Result<(), Failed> {
    ssi.shown = Where::Out;
    ssi.chosen = Chosen::No;
    ssi.conditional = Conditional::Nothing;
    Ok(())
}

fn begin_block(
    ssi: &mut Ssi<'_>,
    params: &Params<'_>,
    next: &mut Next<'_, '_>,
    _: &mut Vec<u8>,
) -> Result<(), Failed> {
    ssi.common(next.request()).begin_block(params.given("name").to_vec());
    ssi.shown = Where::Block;
    Ok(())
}

fn end_block(ssi: &mut Ssi<'_>, _: &Params<'_>, _: &mut Next<'_, '_>, _: &mut Vec<u8>) -> Result<(), Failed> {
    ssi.shown = Where::Out;
    Ok(())
}
