//! `ngx.header` and `ngx.resp.get_headers`: lines of the response's head.

use std::borrow::Cow;

use clearway_base::date::{http_date, parse_http_date};
use clearway_base::log::Level;
use clearway_http::{HeaderName, ResponseHead};
use clearway_luajit::{Call, Fault, Raise, Returns, Value};
use clearway_message::Version;

use super::args;
use super::room::{Install, put, put_virtual};
use crate::current::{LuaPhase, Phases, Scene, allow, current, scene};
use crate::request_state::{ContentType, RequestState};
use crate::vm::settings::LUA_CONF;

/// Where a response has a head.
pub(super) const WITH_HEAD: Phases = Phases::of(&[
    LuaPhase::ServerRewrite,
    LuaPhase::Rewrite,
    LuaPhase::Access,
    LuaPhase::Precontent,
    LuaPhase::Content,
    LuaPhase::HeaderFilter,
    LuaPhase::BodyFilter,
    LuaPhase::Log,
    LuaPhase::Balancer,
]);

/// Lines that `get_headers` gives unless it is asked for more.
const LINES_MAX: usize = 100;

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("", |stack| {
        put_virtual(stack, "header", index, new_index);
    });
    install.table("resp", |stack| put(stack, "_get_headers", list));
    install.run(include_str!("header.lua"), c"=header")
}

/// The name as it is written in a head.
fn name_of(call: &mut Call<'_>, argument: i32) -> Result<Vec<u8>, Raise> {
    let name = call.text(argument)?.to_vec();
    scene(call, |scene| written_name(&scene, name))
}

/// The name as it is written in a head.
pub(super) fn written_name(scene: &Scene<'_, '_, '_>, mut name: Vec<u8>) -> Vec<u8> {
    if *scene.request().conf(&LUA_CONF).transform_underscores {
        name.iter_mut().filter(|byte| **byte == b'_').for_each(|byte| *byte = b'-');
    }
    args::escape_header_name(&name)
}

fn index(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, WITH_HEAD)?;
    let name = name_of(call, 2)?;
    let values = scene(call, |scene| {
        let view = scene.view();
        values_of(view.head(), &name)
    })?;
    let height = call.stack.len();
    match &values[..] {
        [] => call.stack.push(()),
        [value] => call.stack.push(&value[..]),
        values => {
            call.stack.push_table(values.len(), 0);
            for (value, at) in values.iter().zip(1..) {
                call.stack.push(&value[..]);
                call.stack.raw_set_item(-2, at);
            }
        }
    }
    debug_assert_eq!(call.stack.len(), height + 1, "a line is one value");
    Ok(Returns::Values(1))
}

/// The values of a line of the head, in any case.
pub(super) fn values_of(head: &ResponseHead<'_>, name: &[u8]) -> Vec<Vec<u8>> {
    match apart(head, &name.to_ascii_lowercase()) {
        Some(value) => vec![value.into_owned()],
        None => head.headers.named(HeaderName::new(name)).map(<[u8]>::to_vec).collect(),
    }
}

/// The value of a line that the head has apart from its list, by its name in lower case.
fn apart<'h>(head: &'h ResponseHead<'_>, name: &[u8]) -> Option<Cow<'h, [u8]>> {
    let text = |text: &'h Option<clearway_http::Text<'_>>| text.as_ref().map(|text| Cow::Borrowed(&text[..]));
    match name {
        b"content-type" => match (&head.content_type, &head.charset) {
            (Some(kind), Some(charset)) => Some([kind, &b"; charset="[..], charset].concat().into()),
            (kind, _) => text(kind),
        },
        b"content-length" => head.content_length.map(|len| len.to_string().into_bytes().into()),
        b"last-modified" => head.last_modified.map(|time| http_date(time).to_vec().into()),
        b"location" => text(&head.location),
        b"etag" => text(&head.etag),
        b"content-encoding" => text(&head.content_encoding),
        _ => None,
    }
}

fn new_index(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let phase = allow(call, WITH_HEAD)?;
    let name = name_of(call, 2)?;
    let mut values = values_at(call, 3, &name)?;
    values.iter_mut().for_each(|value| *value = args::escape_header_value(value));
    if !scene(call, |scene| assign(scene, phase, &name, &values))? {
        return Err(call.raise("failed to set header"));
    }
    Ok(Returns::Values(0))
}

/// Gives a line of the head these values, or logs that it is too late; whether the values can be such a
/// line's.
pub(super) fn assign(mut scene: Scene<'_, '_, '_>, phase: LuaPhase, name: &[u8], values: &[Vec<u8>]) -> bool {
    let is_open = scene.head_mut().is_some() && !matches!(phase, LuaPhase::BodyFilter | LuaPhase::Log);
    if is_open {
        if name.eq_ignore_ascii_case(b"content-type")
            && let Some(state) = RequestState::of(scene.request())
        {
            state.kept.enter().content_type = ContentType::Chosen;
        }
        // What answers now makes all of the head; what is passed on comes with a head of its own.
        if let Scene::Handler(exchange) = &mut scene
            && phase != LuaPhase::Content
        {
            exchange.output.keep_lines();
        }
        if let Some(head) = scene.head_mut() {
            return set(head, name, values);
        }
    }
    scene.request().log(Level::Error, format_args!("{LATE}"));
    true
}

/// Lines that stand in a head once.
pub(super) const ONCE: [&[u8]; 8] = [
    b"content-type",
    b"content-length",
    b"last-modified",
    b"location",
    b"etag",
    b"content-encoding",
    b"date",
    b"server",
];

/// The error for a change of a head that is on its way.
const LATE: &str = "attempt to set ngx.header.HEADER after sending out response headers";

/// (name, text or table of texts): lines beside those that there are, where one may stand there often.
pub(super) fn add_header(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let name = call.text(1)?.to_ascii_lowercase();
    if ONCE.contains(&&name[..]) {
        // As an assignment has it: a table, a name, a value.
        call.stack.push_slot(1);
        call.stack.insert(1);
        return new_index(call);
    }
    let phase = allow(call, WITH_HEAD)?;
    let name = name_of(call, 1)?;
    let values = values_at(call, 2, &name)?;
    scene(call, |scene| append(scene, phase, &name, &values))?;
    Ok(Returns::Values(0))
}

/// Puts lines beside those that there are, or logs that it is too late.
pub(super) fn append(mut scene: Scene<'_, '_, '_>, phase: LuaPhase, name: &[u8], values: &[Vec<u8>]) {
    if let Scene::Handler(exchange) = &mut scene
        && phase != LuaPhase::Content
    {
        exchange.output.keep_lines();
    }
    let is_late = matches!(phase, LuaPhase::BodyFilter | LuaPhase::Log);
    match scene.head_mut().filter(|_| !is_late) {
        Some(head) => {
            values.iter().for_each(|value| head.headers.add(name, &args::escape_header_value(value)))
        }
        None => scene.request().log(Level::Error, format_args!("{LATE}")),
    }
}

/// The values that are to be set; none to remove the line.
fn values_at(call: &mut Call<'_>, argument: i32, name: &[u8]) -> Result<Vec<Vec<u8>>, Raise> {
    match call.stack.get(argument) {
        Value::Nil => Ok(Vec::new()),
        Value::Table => {
            let (mut values, height) = (Vec::new(), call.stack.len());
            for at in 1..=call.stack.raw_len(argument) as i32 {
                call.stack.raw_item(argument, at);
                let Some(value) = call.stack.text(-1).map(<[u8]>::to_vec) else {
                    return Err(bad_value(call, name));
                };
                call.stack.pop(1);
                values.push(value);
            }
            debug_assert_eq!(call.stack.len(), height, "the arguments are as they were");
            Ok(values)
        }
        Value::Boolean(true) => Ok(vec![b"true".to_vec()]),
        Value::Boolean(false) => Ok(vec![b"false".to_vec()]),
        Value::Text(_) | Value::Number(_) => Ok(vec![call.text(argument)?.to_vec()]),
        _ => Err(bad_value(call, name)),
    }
}

fn bad_value(call: &mut Call<'_>, _: &[u8]) -> Raise {
    let got = call.stack.get(-1).type_name();
    call.raise(&*format!("bad header value: string, number, or table expected, but got {got}"))
}

/// Whether the values can be set.
fn set(head: &mut ResponseHead<'_>, name: &[u8], values: &[Vec<u8>]) -> bool {
    let last = || values.last().cloned().map(Cow::Owned);
    match &name.to_ascii_lowercase()[..] {
        b"content-type" => set_content_type(head, values.last()),
        b"content-length" => match values.last() {
            None => head.content_length = None,
            Some(value) => match std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()) {
                Some(len) => head.content_length = Some(len),
                None => return false,
            },
        },
        // One that is relative is sent as it is.
        b"location" if values.last().is_some_and(|value| value.first() == Some(&b'/')) => {
            head.location = None;
            head.headers.remove(HeaderName::new(name));
            values.iter().for_each(|value| head.headers.add(name, value));
        }
        b"location" => {
            head.headers.remove(HeaderName::new(name));
            head.location = last();
        }
        b"etag" => head.etag = last(),
        b"content-encoding" => head.content_encoding = last(),
        lower => {
            if lower == b"last-modified" {
                head.last_modified = values.last().and_then(|value| parse_http_date(value));
                if head.last_modified.is_some() {
                    return true;
                }
            }
            head.headers.remove(HeaderName::new(name));
            values.iter().for_each(|value| head.headers.add(name, value));
        }
    }
    true
}

/// The type, and the charset that stands behind it.
fn set_content_type(head: &mut ResponseHead<'_>, value: Option<&Vec<u8>>) {
    const CHARSET: &[u8] = b"charset=";
    (head.content_type, head.charset) = (None, None);
    let Some(value) = value else { return };
    if let Some(at) = value.iter().position(|&byte| byte == b';')
        && let Some((name, charset)) = value[at + 1..].trim_ascii().split_at_checked(CHARSET.len())
        && name.eq_ignore_ascii_case(CHARSET)
        && !charset.contains(&b';')
        && value[at + 1..].starts_with(b" ")
    {
        head.charset = Some(charset.to_vec().into());
        head.content_type = Some(value[..at].to_vec().into());
        return;
    }
    head.content_type = Some(value.clone().into());
}

/// Gives out the lines of a head, by name and value.
pub(super) fn each_line(head: &ResponseHead<'_>, mut take: impl FnMut(&[u8], &[u8])) {
    const APART: [(&[u8], &[u8]); 6] = [
        (b"content-type", b"Content-Type"),
        (b"content-length", b"Content-Length"),
        (b"last-modified", b"Last-Modified"),
        (b"location", b"Location"),
        (b"etag", b"ETag"),
        (b"content-encoding", b"Content-Encoding"),
    ];
    for (lower, name) in APART {
        if let Some(value) = apart(head, lower) {
            take(name, &value);
        }
    }
    head.headers.iter().for_each(|line| take(line.name, line.value));
}

/// The lines of a head, by name and value.
fn lines_of(head: &ResponseHead<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut lines = Vec::new();
    each_line(head, |name, value| lines.push((name.to_vec(), value.to_vec())));
    lines
}

/// Adds the lines that the connection has in the head.
fn add_connection(scene: &Scene<'_, '_, '_>, lines: &mut Vec<(Vec<u8>, Vec<u8>)>) {
    let request = scene.request();
    let connection: &[u8] = if request.is_persistent() { b"keep-alive" } else { b"close" };
    lines.push((b"Connection".to_vec(), connection.to_vec()));
    let is_chunked = matches!(scene, Scene::Body(_))
        && request.version() >= Version::HTTP_11
        && scene.view().head().content_length.is_none();
    if is_chunked {
        lines.push((b"Transfer-Encoding".to_vec(), b"chunked".to_vec()));
    }
}

/// (max) → table, whether it is truncated. The names are as `raw` says: lower case where that is not true.
fn list(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, WITH_HEAD)?;
    let max = match call.stack.get(1) {
        Value::Nil => LINES_MAX,
        _ => call.number(1)? as usize,
    };
    let lines = scene(call, |scene| {
        let view = scene.view();
        let head = view.head();
        let mut lines = lines_of(head);
        add_connection(&scene, &mut lines);
        lines
    })?;
    return_lines(call, "response", &lines, max)
}

/// Returns a table of the lines of a head, at most `max` of them unless that is 0, and whether it is
/// `truncated`. Names are in lower case unless argument 2 is true.
pub(super) fn return_lines(
    call: &mut Call<'_>,
    of: &str,
    lines: &[(Vec<u8>, Vec<u8>)],
    max: usize,
) -> Result<Returns, Raise> {
    let is_raw = call.arguments() > 1 && call.stack.is_true(2);
    let is_truncated = max > 0 && lines.len() > max;
    let count = if is_truncated { max } else { lines.len() };
    debug_assert!(max == 0 || count <= max, "no more are shown than are wanted");
    call.stack.push_table(0, count);
    for (name, value) in &lines[..count] {
        if is_raw {
            call.stack.push(&name[..]);
        } else {
            call.stack.push(&name.to_ascii_lowercase()[..]);
        }
        call.stack.push(&value[..]);
        args::add(&mut call.stack);
    }
    if is_truncated {
        let line = format_args!("lua exceeding {of} header limit {} > {max}", lines.len());
        current(call, |current| current.log(Level::Debug, line))?;
        call.stack.push("truncated");
        return Ok(Returns::Values(2));
    }
    Ok(Returns::Values(1))
}
