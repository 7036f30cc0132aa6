//! The headers-more module: header lines of responses, also those that the server writes by itself, are set
//! and removed (a header filter), and lines of requests (`input`). Microseconds on the loop of the request.

mod input;

use std::sync::Arc;

use bytes::Bytes;
use clearway_conf::error::message;
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};
use clearway_http::{
    BodyFilter, ConfKey, Cost, Enabling, FilterSpec, Filtering, HeaderName, Level, Load, Merge, Module,
    Phase, PhaseHandler, Ranges, ResponseHead, Value, context,
};
use clearway_message::Known;

/// The module. Its filter sees what others have added.
pub static HEADERS_MORE: Module = Module {
    name: "headers_more",
    directives: DIRECTIVES,
    confs: &[&MORE_CONF, &input::INPUT_CONF],
    phases: &[PhaseHandler {
        phase: Phase::Rewrite,
        cost: Cost::Cheap,
        enabled: input::is_enabled,
        handler: input::handler,
    }],
    filters: &[FilterSpec { enabled: is_enabled, filter }],
    ..Module::EMPTY
};

const ANYWHERE: Contexts = context::ALL.or(context::LOCATION_IF);

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "more_set_headers",
        contexts: ANYWHERE,
        args: Args::ONE_MORE,
        syntax: "more_set_headers [-s CODES] [-t TYPES] [-a] 'NAME: VALUE' …",
        default: "",
        doc: "Gives header lines of responses a value, whatever their status, or adds them; an empty value \
              removes them. `-s` names the codes and `-t` the types of responses that it is for, `-a` adds a \
              line beside those that are there. Values may have variables in them; a name that ends in `*` \
              is all that begin so. Those of the enclosing level are carried out first.",
        example: "
            more_set_headers 'Server: mine';

            server {
                location /api/ {
                    more_set_headers -s '404 500' -t text/plain 'X-Error: yes' 'Cache-Control: no-store';
                }
            }",
        see: &["more_clear_headers", "add_header"],
        handler: |scope, directive| read(scope, directive, Opcode::Set),
    },
    Spec {
        name: "more_clear_headers",
        contexts: ANYWHERE,
        args: Args::ONE_MORE,
        syntax: "more_clear_headers [-s CODES] [-t TYPES] NAME …",
        default: "",
        doc: "Removes header lines of responses, also `Server` and `Date`; a name that ends in `*` is all \
              that begin so. `-s` names the codes and `-t` the types of responses that it is for.",
        example: "
            location /quiet/ {
                more_clear_headers Server 'X-Internal-*';
            }",
        see: &["more_set_headers", "server_tokens"],
        handler: |scope, directive| read(scope, directive, Opcode::Clear),
    },
    Spec {
        name: "more_set_input_headers",
        contexts: ANYWHERE,
        args: Args::ONE_MORE,
        syntax: "more_set_input_headers [-r] [-t TYPES] 'NAME: VALUE' …",
        default: "",
        doc: "Gives header lines of requests a value, or adds them, behind the directives of the rewrite \
              module; an empty value removes them. With `-r` only lines that are there get it; `-t` names \
              the types of requests that it is for.",
        example: "
            location /api/ {
                more_set_input_headers 'X-Client: $remote_addr';
            }",
        see: &["more_clear_input_headers", "proxy_set_header"],
        handler: |scope, directive| input::read(scope, directive, Opcode::Set),
    },
    Spec {
        name: "more_clear_input_headers",
        contexts: ANYWHERE,
        args: Args::ONE_MORE,
        syntax: "more_clear_input_headers [-t TYPES] NAME …",
        default: "",
        doc: "Removes header lines of requests, behind the directives of the rewrite module; a name that \
              ends in `*` is all that begin so.",
        example: "
            more_clear_input_headers Accept-Encoding 'X-Internal-*';",
        see: &["more_set_input_headers"],
        handler: |scope, directive| input::read(scope, directive, Opcode::Clear),
    },
];

static MORE_CONF: ConfKey<MoreConf> = ConfKey::new(Level::Location);

/// The commands of a level, those of the levels around it first.
#[derive(Default)]
struct MoreConf(Arc<Vec<Command>>);

impl Merge for MoreConf {
    fn merge(&mut self, parent: &Self) {
        if self.0.is_empty() {
            self.0.clone_from(&parent.0);
        } else if !parent.0.is_empty() {
            self.0 = Arc::new(parent.0.iter().chain(self.0.iter()).cloned().collect());
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Opcode {
    Set,
    Clear,
}

/// One directive.
#[derive(Clone)]
struct Command {
    lines: Vec<Line>,
    /// None: all.
    types: Vec<Bytes>,
    /// None: all.
    statuses: Vec<u16>,
    effect: Effect,
}

/// The effect on existing lines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Replace,
    Append,
}

#[derive(Clone)]
struct Line {
    name: Bytes,
    /// `None`: it is removed.
    value: Option<Value>,
}

/// Names that `-a` cannot be used with, as the server has a place of their own for them.
const BUILT_IN: [&[u8]; 14] = [
    b"Server",
    b"Date",
    b"Content-Encoding",
    b"Location",
    b"Refresh",
    b"Last-Modified",
    b"Content-Range",
    b"Accept-Ranges",
    b"WWW-Authenticate",
    b"Expires",
    b"E-Tag",
    b"Content-Length",
    b"Content-Type",
    b"Cache-Control",
];

fn read(scope: &mut Scope<'_, Load>, directive: &Directive, opcode: Opcode) -> Result<(), Error> {
    let (mut lines, mut types, mut statuses) = (Vec::new(), Vec::new(), Vec::new());
    let mut effect = Effect::Replace;
    let mut arguments = directive.args.iter().filter(|argument| !argument.is_empty());
    while let Some(argument) = arguments.next() {
        let mut parameter = || {
            arguments.next().ok_or_else(|| {
                directive.error(message(&[&directive.name, &": option ", argument, &" takes an argument."]))
            })
        };
        match &argument[..] {
            b"-t" => {
                let list = parameter()?;
                let names = list.split(|byte| byte.is_ascii_whitespace() || *byte == b';');
                types.extend(names.filter(|name| !name.is_empty()).map(|name| list.slice_ref(name)));
            }
            b"-s" => statuses.extend(read_statuses(directive, parameter()?)?),
            b"-a" if opcode == Opcode::Set => effect = Effect::Append,
            [b'-', ..] => {
                let text = message(&[&directive.name, &": invalid option name: \"", argument, &"\""]);
                return Err(directive.error(text));
            }
            _ => lines.push(read_line(scope.conf, directive, argument, opcode)?),
        }
    }
    let is_built_in = |line: &&Line| BUILT_IN.iter().any(|name| line.name.eq_ignore_ascii_case(name));
    if effect == Effect::Append
        && let Some(line) = lines.iter().find(is_built_in)
    {
        let parts: [&dyn AsRef<[u8]>; 4] =
            [&directive.name, &": can not append builtin headers \"", &line.name, &"\""];
        return Err(directive.error(message(&parts)));
    }
    let command = Command { lines, types, statuses, effect };
    Arc::make_mut(&mut scope.conf.location(&MORE_CONF).0).push(command);
    Ok(())
}

fn read_statuses(directive: &Directive, list: &Bytes) -> Result<Vec<u16>, Error> {
    let words = list.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let read = |word: &[u8]| {
        if let Some(wrong) = word.iter().find(|byte| !byte.is_ascii_digit()) {
            let wrong = char::from(*wrong).to_string();
            let parts: [&dyn AsRef<[u8]>; 6] = [
                &directive.name,
                &": invalid digit \"",
                &wrong,
                &"\" found in the status code list \"",
                list,
                &"\"",
            ];
            return Err(directive.error(message(&parts)));
        }
        let number = std::str::from_utf8(word).ok().and_then(|digits| digits.parse().ok());
        Ok(number.unwrap_or(u16::MAX))
    };
    words.map(read).collect()
}

/// `NAME: VALUE`; without a colon the name ends at white space.
fn read_line(
    load: &mut Load,
    directive: &Directive,
    argument: &Bytes,
    opcode: Opcode,
) -> Result<Line, Error> {
    let text = argument.trim_ascii_start();
    let is_end = |byte: &u8| *byte == b':' || byte.is_ascii_whitespace();
    let (name, behind) = text.split_at(text.iter().position(is_end).unwrap_or(text.len()));
    if name.is_empty() {
        let parts: [&dyn AsRef<[u8]>; 3] =
            [&directive.name, &": no key found in the header argument: ", argument];
        return Err(directive.error(message(&parts)));
    }
    if name == b"*" {
        let parts: [&dyn AsRef<[u8]>; 3] = [&directive.name, &": wildcard key too short: ", argument];
        return Err(directive.error(message(&parts)));
    }
    let value = &behind[behind.iter().take_while(|byte| is_end(byte)).count()..];
    let value = if opcode == Opcode::Clear || value.is_empty() {
        None
    } else {
        Some(load.variables.compile(&argument.slice_ref(value), &directive.pos)?)
    };
    Ok(Line { name: argument.slice_ref(name), value })
}

fn is_enabled(enabling: &Enabling<'_>) -> bool {
    !enabling.confs.of(&MORE_CONF).0.is_empty()
}

fn filter<'c>(filtering: &mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>> {
    for command in filtering.request.conf(&MORE_CONF).0.iter() {
        let head = filtering.head();
        let content_type = head.content_type.as_deref().unwrap_or_default();
        let is_of_type = || command.types.iter().any(|name| **name == *content_type);
        let is_of_status = || command.statuses.contains(&head.status);
        if !command.types.is_empty() && !is_of_type() || !command.statuses.is_empty() && !is_of_status() {
            continue;
        }
        for line in &command.lines {
            let value = line.value.as_ref().map(|value| value.eval(&filtering.view()).into_owned());
            let value = value.filter(|value| !value.is_empty());
            let known = Known::find(&line.name);
            if matches!(known, Known::Server | Known::Date) {
                filtering.replace_own_line(known);
            }
            if apply(filtering.head(), &line.name, value, command.effect).is_err() {
                filtering.abandon();
                return None;
            }
        }
    }
    None
}

/// A length that is no number.
struct NoLength;

fn apply(
    head: &mut ResponseHead<'_>,
    name: &[u8],
    value: Option<Vec<u8>>,
    effect: Effect,
) -> Result<(), NoLength> {
    match Known::find(name) {
        Known::ContentLength => {
            head.content_length = match value {
                None => None,
                Some(digits) => Some(clearway_base::units::parse_number(&digits).ok_or(NoLength)?),
            };
        }
        Known::ContentType => set_type(head, value),
        Known::ContentEncoding => {
            head.headers.remove(HeaderName::new(name));
            head.content_encoding = value.map(Into::into);
        }
        Known::ETag => {
            head.headers.remove(HeaderName::new(name));
            head.etag = value.map(Into::into);
        }
        _ if name.eq_ignore_ascii_case(b"Location") => head.location = value.map(Into::into),
        _ if name.eq_ignore_ascii_case(b"Last-Modified") => {
            if value.is_none() {
                head.last_modified = None;
            }
            set_line(head, name, value.as_deref());
        }
        _ if name.eq_ignore_ascii_case(b"Accept-Ranges") => {
            head.ranges = Ranges::Refused;
            set_line(head, name, value.as_deref());
        }
        // A name of the module's own for the tag.
        _ if name.eq_ignore_ascii_case(b"E-Tag") => {
            head.etag = None;
            set_line(head, name, value.as_deref());
        }
        _ if name.ends_with(b"*") => set_all(head, &name[..name.len() - 1], value.as_deref()),
        _ if effect == Effect::Append => {
            if let Some(value) = value {
                head.headers.add(name, &value);
            }
        }
        _ => set_line(head, name, value.as_deref()),
    }
    Ok(())
}

fn set_line(head: &mut ResponseHead<'_>, name: &[u8], value: Option<&[u8]>) {
    match value {
        Some(value) => head.headers.set(HeaderName::new(name), value),
        None => {
            head.headers.remove(HeaderName::new(name));
        }
    }
}

/// The type, and the charset that stands behind it.
fn set_type(head: &mut ResponseHead<'_>, value: Option<Vec<u8>>) {
    const CHARSET: &[u8] = b"charset=";
    head.headers.remove(HeaderName::new(b"Content-Type"));
    let Some(value) = value else {
        head.content_type = None;
        return;
    };
    for (at, _) in value.iter().enumerate().filter(|(_, byte)| **byte == b';') {
        let parameter = value[at + 1..].trim_ascii_start();
        let Some((name, charset)) = parameter.split_at_checked(CHARSET.len()) else { continue };
        if name.eq_ignore_ascii_case(CHARSET) {
            let charset = charset.strip_prefix(b"\"").unwrap_or(charset);
            let charset = charset.strip_suffix(b"\"").unwrap_or(charset);
            head.charset = Some(charset.to_vec().into());
            head.content_type = Some(value[..at].to_vec().into());
            return;
        }
    }
    head.content_type = Some(value.into());
}

/// All lines whose names begin so: the first one of each name gets the value.
fn set_all(head: &mut ResponseHead<'_>, prefix: &[u8], value: Option<&[u8]>) {
    let begins =
        |name: &[u8]| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    let names: Vec<Vec<u8>> = head.headers.iter().map(|line| line.name.to_vec()).collect();
    let mut names = names.into_iter().filter(|name| begins(name));
    if let Some(value) = value {
        let Some(first) = names.next() else { return };
        head.headers.set(HeaderName::new(&first), value);
        names.filter(|name| !name.eq_ignore_ascii_case(&first)).for_each(|name| {
            head.headers.remove(HeaderName::new(&name));
        });
        return;
    }
    names.for_each(|name| {
        head.headers.remove(HeaderName::new(&name));
    });
    for (name, place) in [
        (&b"ETag"[..], &mut head.etag),
        (b"Location", &mut head.location),
        (b"Content-Encoding", &mut head.content_encoding),
    ] {
        if begins(name) {
            *place = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(lines: &[(&str, Option<&str>)]) -> ResponseHead<'static> {
        let mut head = ResponseHead::default();
        head.headers.add(b"X-A", b"1");
        head.headers.add(b"X-A", b"2");
        head.headers.add(b"X-B", b"3");
        head.content_type = Some(b"text/html"[..].into());
        for (name, value) in lines {
            let value = value.map(|value| value.as_bytes().to_vec());
            assert!(apply(&mut head, name.as_bytes(), value, Effect::Replace).is_ok());
        }
        head
    }

    fn named(head: &ResponseHead<'_>, name: &str) -> Vec<String> {
        let values = head.headers.named(HeaderName::new(name.as_bytes()));
        values.map(|value| String::from_utf8_lossy(value).into_owned()).collect()
    }

    #[test]
    fn lines_are_replaced_and_removed() {
        let head = changed(&[("x-a", Some("new")), ("X-C", Some("4")), ("X-B", None)]);
        assert_eq!((named(&head, "X-A"), named(&head, "X-B")), (vec!["new".to_owned()], vec![]));
        assert_eq!(named(&head, "X-C"), ["4"]);
        let head = changed(&[("X-*", None)]);
        assert!(head.headers.is_empty());
    }

    #[test]
    fn what_has_a_place_of_its_own_is_replaced_as_well() {
        let head = changed(&[("Server", Some("mine")), ("Date", None)]);
        assert_eq!(named(&head, "Server"), ["mine"]);
        let head = changed(&[("Content-Type", Some("text/plain; charset=\"utf-8\""))]);
        assert_eq!(head.content_type.as_deref(), Some(&b"text/plain"[..]));
        assert_eq!(head.charset.as_deref(), Some(&b"utf-8"[..]));
        assert_eq!(changed(&[("Content-Type", None)]).content_type, None);
        assert_eq!(changed(&[("Content-Length", Some("12"))]).content_length, Some(12));
    }
}
