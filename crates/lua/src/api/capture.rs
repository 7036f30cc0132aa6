//! `ngx.location.capture` and `ngx.location.capture_multi`: subrequests whose whole responses Lua gets. They
//! are answered beside the threads of the run, which go on meanwhile; each has a head and variables of its
//! own and runs its code in the VM of its parent, so that tables can be handed to it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use clearway_base::log::{Level, Verbatim};
use clearway_http::{
    Asking, Capture, CapturedVariables, Delivery, Request, ResponseHead, Subrequest, SubrequestOutcome,
    Written,
};
use clearway_luajit::{Call, Fault, Raise, Reference, Returns, Stack, Value};
use clearway_message::{Method, uri};
use clearway_runtime::TaskCell;

use super::header::each_line;
use super::request::METHODS;
use super::room::{Install, put};
use super::{args, output::ANSWERING};
use crate::current::{Pause, Scene, allow, pause, scene};
use crate::request_state::RequestState;
use crate::threads::{Answers, Captured, Operation};
use crate::vm::net_settings::NET_CONF;
use crate::vm::of_loop::Slot;

/// Subrequests of one call.
const CAPTURES_MAX: usize = 4096;

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("location", |stack| {
        put(stack, "capture", capture);
        put(stack, "capture_multi", capture_multi);
    });
    Ok(())
}

/// The parameters of one subrequest.
struct Wanted {
    path: Vec<u8>,
    args: Vec<u8>,
    method: Method,
    body: Option<Vec<u8>>,
    variables: CapturedVariables,
    changes: Changes,
}

/// The differences between a subrequest and its parent.
#[derive(Default)]
struct Changes {
    values: Pairs,
    headers: Pairs,
    ctx: Option<Reference>,
    forwards_body: bool,
}

/// The head of the response of a subrequest that has ended.
type Lines = Arc<TaskCell<Head>>;

/// The lines of a head, one behind the other.
#[derive(Default)]
struct Head {
    bytes: Vec<u8>,
    /// The lengths of each name and value.
    lens: Vec<(usize, usize)>,
}

impl Head {
    fn of(head: &ResponseHead<'_>) -> Self {
        let mut lines = Self::default();
        each_line(head, |name, value| {
            lines.bytes.extend_from_slice(name);
            lines.bytes.extend_from_slice(value);
            lines.lens.push((name.len(), value.len()));
        });
        lines
    }

    fn each(&self, mut take: impl FnMut(&[u8], &[u8])) {
        let mut rest = &self.bytes[..];
        for &(name, value) in &self.lens {
            let (line, behind) = rest.split_at(name + value);
            let (name, value) = line.split_at(name);
            take(name, value);
            rest = behind;
        }
        debug_assert!(rest.is_empty(), "all bytes belong to lines");
    }
}

/// Names and values.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn capture(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let count = call.arguments();
    if !(1..=2).contains(&count) {
        return Err(call.raise("expecting one or two arguments"));
    }
    allow(call, ANSWERING)?;
    let wanted = read(call, 1, (count == 2).then_some(2), 0)?;
    begin(call, vec![wanted])
}

fn capture_multi(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let count = call.arguments();
    if count != 1 {
        return Err(call.raise(&*format!("only one argument is expected, but got {count}")));
    }
    if call.stack.get(1) != Value::Table {
        return Err(call.expected(1, "table"));
    }
    let len = call.stack.raw_len(1);
    if len == 0 {
        return Err(call.raise("at least one subrequest should be specified"));
    }
    if len > CAPTURES_MAX {
        return Err(call.raise("too many subrequests"));
    }
    allow(call, ANSWERING)?;
    let mut all = Vec::with_capacity(len);
    for index in 0..len {
        call.stack.raw_item(1, index as i32 + 1);
        let query = call.stack.len();
        match call.stack.get(query) {
            Value::Table => {}
            Value::Nil => return Err(call.raise("only array-like tables are allowed")),
            other => {
                let text = format!("the query argument {index} is not a table, but a {}", other.type_name());
                return Err(call.raise(&*text));
            }
        }
        let count = call.stack.raw_len(query);
        if !(1..=2).contains(&count) {
            return Err(call.raise(&*format!("query argument {index} expecting one or two arguments")));
        }
        call.stack.raw_item(query, 1);
        call.stack.raw_item(query, 2);
        all.push(read(call, query + 1, (count == 2).then_some(query + 2), index)?);
        let above = call.stack.len() - query + 1;
        call.stack.pop(above);
    }
    begin(call, all)
}

/// Reads what one subrequest is to be.
fn read(call: &mut Call<'_>, uri: i32, options: Option<i32>, index: usize) -> Result<Wanted, Raise> {
    let mut wanted = Wanted {
        path: Vec::new(),
        args: Vec::new(),
        method: Method::Get,
        body: None,
        variables: CapturedVariables::Own,
        changes: Changes::default(),
    };
    let mut extra = None;
    if let Some(options) = options {
        if call.stack.get(options) != Value::Table {
            let got = call.stack.get(options).type_name();
            let text = format!("expecting table as the 2nd argument for subrequest {index}, but got {got}");
            return Err(call.raise(&*text));
        }
        extra = read_args(call, options)?;
        read_options(call, options, &mut wanted)?;
    }
    let text = call.text(uri)?.to_vec();
    let Ok((path, own)) = uri::split_foreign(&text) else {
        let parts: [&[u8]; 2] = [b"unsafe uri in argument #1: ", &text];
        return Err(call.raise(&parts.concat()[..]));
    };
    wanted.args = match extra {
        Some(extra) if own.is_empty() => extra,
        Some(extra) if !extra.is_empty() => [own, b"&", &extra].concat(),
        _ => own.to_vec(),
    };
    wanted.path = path;
    Ok(wanted)
}

/// Reads a field of the options, which is on top until `work` is over.
fn field<R>(
    call: &mut Call<'_>,
    options: i32,
    name: &str,
    work: impl FnOnce(&mut Call<'_>, i32) -> Result<R, Raise>,
) -> Result<R, Raise> {
    call.stack.raw_field(options, name);
    let at = call.stack.len();
    let result = work(call, at)?;
    debug_assert_eq!(call.stack.len(), at, "the field is on top again");
    call.stack.pop(1);
    Ok(result)
}

fn read_args(call: &mut Call<'_>, options: i32) -> Result<Option<Vec<u8>>, Raise> {
    field(call, options, "args", |call, at| match call.stack.get(at) {
        Value::Nil => Ok(None),
        Value::Table => args::encode(call, at).map(Some),
        Value::Text(_) | Value::Number(_) => Ok(Some(call.text(at)?.to_vec())),
        _ => Err(call.raise("Bad args option value")),
    })
}

fn read_options(call: &mut Call<'_>, options: i32, wanted: &mut Wanted) -> Result<(), Raise> {
    wanted.changes.values = read_pairs(call, options, "vars")?;
    wanted.changes.headers = read_pairs(call, options, "headers")?;
    if read_flag(call, options, "copy_all_vars")? {
        wanted.variables = CapturedVariables::Copied;
    }
    if read_flag(call, options, "share_all_vars")? {
        wanted.variables = CapturedVariables::Shared;
    }
    wanted.changes.forwards_body =
        field(call, options, "always_forward_body", |call, at| Ok(call.stack.is_true(at)))?;
    wanted.method = field(call, options, "method", |call, at| match call.stack.get(at) {
        Value::Nil => Ok(Method::Get),
        Value::Number(number) => {
            let found = METHODS.iter().find(|(_, its)| f64::from(*its) == number);
            found.map(|(method, _)| *method).ok_or(number)
        }
        .map_err(|number| call.raise(&*format!("unsupported HTTP method: {number}"))),
        _ => Err(call.raise("Bad http request method")),
    })?;
    wanted.changes.ctx = field(call, options, "ctx", |call, at| match call.stack.get(at) {
        Value::Nil => Ok(None),
        Value::Table => {
            call.stack.push_slot(at);
            Ok(Some(call.stack.take_shelved()))
        }
        other => {
            let text = format!("Bad ctx option value type {}, expected a Lua table", other.type_name());
            Err(call.raise(&*text))
        }
    })?;
    wanted.body = field(call, options, "body", |call, at| match call.stack.get(at) {
        Value::Nil => Ok(None),
        Value::Text(_) | Value::Number(_) => Ok(Some(call.text(at)?.to_vec())),
        _ => Err(call.raise("Bad http request body")),
    })?;
    Ok(())
}

fn read_flag(call: &mut Call<'_>, options: i32, name: &str) -> Result<bool, Raise> {
    field(call, options, name, |call, at| match call.stack.get(at) {
        Value::Nil => Ok(false),
        Value::Boolean(value) => Ok(value),
        _ => Err(call.raise(&*format!("Bad {name} option value"))),
    })
}

fn read_pairs(call: &mut Call<'_>, options: i32, name: &str) -> Result<Pairs, Raise> {
    field(call, options, name, |call, table| {
        match call.stack.get(table) {
            Value::Nil => return Ok(Vec::new()),
            Value::Table => {}
            _ => return Err(call.raise(&*format!("Bad {name} option value"))),
        }
        let mut pairs = Vec::new();
        call.stack.push(());
        while call.stack.next(table).unwrap_or(false) {
            let Value::Text(key) = call.stack.get(-2) else {
                let text = format!("attempt to use a non-string key in the \"{name}\" option table");
                return Err(call.raise(&*text));
            };
            let key = key.to_vec();
            if !matches!(call.stack.get(-1), Value::Text(_) | Value::Number(_)) {
                let got = call.stack.get(-1).type_name();
                return Err(call.raise(&*format!("attempt to use bad variable value type {got}")));
            }
            call.stack.push_slot(-1);
            let value = call.stack.text(-1).unwrap_or_default().to_vec();
            call.stack.pop(2);
            pairs.push((key, value));
        }
        Ok(pairs)
    })
}

/// Has them answered, and waits for all.
fn begin(call: &mut Call<'_>, all: Vec<Wanted>) -> Result<Returns, Raise> {
    let count = all.len();
    debug_assert!((1..=CAPTURES_MAX).contains(&count), "a call has as many as it may");
    let begun = scene(call, |scene| {
        let Scene::Handler(exchange) = scene else { return None };
        let most_bytes = *exchange.request.conf(&NET_CONF).capture_max_bytes;
        let slot = RequestState::of(exchange.request).and_then(RequestState::usable_slot);
        let mut begun: Vec<(SubrequestOutcome, Lines)> = Vec::with_capacity(all.len());
        if all.iter().any(|wanted| !are_writable(exchange.request, &wanted.changes.values)) {
            return None;
        }
        for wanted in all {
            let (path, args) = (Verbatim(&wanted.path), Verbatim(&wanted.args));
            let line = format_args!("lua http subrequest \"{path}?{args}\"");
            exchange.request.log(Level::Debug, line);
            let lines = Lines::default();
            let subrequest = subrequest(wanted, most_bytes, slot.clone(), Arc::clone(&lines));
            begun.push((exchange.capture(subrequest).ok()?, lines));
        }
        debug_assert_eq!(begun.len(), count, "each has begun");
        Some(begun)
    })?;
    let Some(begun) = begun else { return Err(call.raise("failed to adjust the subrequest: -1")) };
    let operation = Operation::new(async move {
        poll_fn(|_| match begun.iter().all(|(outcome, _)| outcome.ended().is_some()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        let action = begun.last().map_or("", |(outcome, _)| outcome.action());
        let push = move |stack: &mut Stack<'_>| {
            begun.into_iter().for_each(|(outcome, lines)| push_response(stack, &outcome, &lines));
        };
        Answers::Captured(Box::new(Captured { push: Box::new(push), action }))
    });
    pause(call, Pause::Captures(operation))
}

fn subrequest(wanted: Wanted, most_bytes: u64, slot: Option<Arc<Slot>>, lines: Lines) -> Subrequest {
    let Wanted { path, args, method, body, variables, changes } = wanted;
    let keeps_body = changes.forwards_body || matches!(method, Method::Post | Method::Put);
    let prepare = move |request: &mut Request<'_>| {
        prepare(request, changes, slot.as_ref());
        match body {
            // The head is its own.
            Some(body) => drop(request.set_stored_body(body.into())),
            None if keeps_body && request.stored_body().is_some() => {}
            None => request.leave_out_body(),
        }
    };
    let conclude = move |head: &ResponseHead<'_>| *lines.enter() = Head::of(head);
    Subrequest {
        asking: Asking::With(method),
        delivery: Delivery::Captured { most_bytes },
        capture: Some(Box::new(Capture {
            variables,
            prepare: Box::new(prepare),
            conclude: Box::new(conclude),
        })),
        ..Subrequest::in_order(path, args)
    }
}

fn prepare(request: &mut Request<'_>, changes: Changes, slot: Option<&Arc<Slot>>) {
    RequestState::begin(request);
    debug_assert!(RequestState::of(request).is_some(), "what Lua keeps of the subrequest has its place");
    if let (Some(state), Some(slot)) = (RequestState::of(request), slot) {
        state.choose(slot);
        state.kept.enter().ctx = changes.ctx;
    }
    for (name, value) in &changes.headers {
        // The head is its own.
        let _ = request.set_header(name, value);
    }
    for (name, value) in &changes.values {
        // It was looked at before.
        let _ = request.write_variable(&name.to_ascii_lowercase(), Some(value));
    }
}

/// Whether all of these variables can be written to; else the log has the first that cannot.
fn are_writable(request: &Request<'_>, values: &Pairs) -> bool {
    values.iter().all(|(name, _)| {
        let written = request.writable(&name.to_ascii_lowercase());
        let name = Verbatim(name);
        match written {
            Written::Kept => return true,
            Written::Fixed => {
                request.log(Level::Error, format_args!("variable \"{name}\" not changeable"));
            }
            Written::Unknown => {
                let line = format_args!(
                    "variable \"{name}\" cannot be assigned a value (maybe you forgot to define it first?) "
                );
                request.log(Level::Error, line);
            }
        }
        false
    })
}

/// Pushes the table of one response.
fn push_response(stack: &mut Stack<'_>, outcome: &SubrequestOutcome, lines: &Lines) {
    debug_assert!(outcome.ended().is_some(), "a subrequest is waited for");
    let height = stack.len();
    let ended = outcome.ended().unwrap_or(Err(500));
    let status = match ended {
        Ok(0) | Err(0) => 500,
        Ok(status) | Err(status) => status,
    };
    stack.push_table(0, 4);
    stack.push(f64::from(status));
    stack.raw_set_field(-2, "status");
    stack.push(&outcome.take_body()[..]);
    stack.raw_set_field(-2, "body");
    stack.push(ended.is_err());
    stack.raw_set_field(-2, "truncated");
    let lines = lines.enter();
    stack.push_table(0, lines.lens.len());
    lines.each(|name, value| {
        stack.push(name);
        stack.push(value);
        args::add(stack);
    });
    stack.raw_set_field(-2, "header");
    debug_assert_eq!(stack.len(), height + 1, "a response is one table");
}
