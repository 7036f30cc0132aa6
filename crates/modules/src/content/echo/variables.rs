//! Variables of the echo module.

use std::sync::atomic::{AtomicU64, Ordering};

use clearway_http::{ContextKey, Lasts, Presence, VariableKind, VariableSpec, View, put_decimal, uri};

use super::STATE;

/// How often `$echo_incr` was asked for by a request and its subrequests.
static COUNTER: ContextKey<Counter> = ContextKey::new(Lasts::Common);

#[derive(Default)]
struct Counter(AtomicU64);

pub(super) static VARIABLES: &[VariableSpec] = &[
    VariableSpec {
        name: "echo_timer_elapsed",
        kind: VariableKind::Exact,
        doc: "Seconds since the request began, or since `echo_reset_timer`, with three decimal places.",
        eval: |view, _, out| {
            let began_ms = view.request.context(&STATE).map_or(0, |state| state.timer_began_ms);
            let ms = view.request.elapsed_ms().saturating_sub(began_ms);
            out.extend_from_slice(format!("{}.{:03}", ms / 1000, ms % 1000).as_bytes());
            Presence::Found
        },
    },
    VariableSpec {
        name: "echo_request_method",
        kind: VariableKind::Exact,
        doc: "The method of the request, or of the subrequest.",
        eval: |view, _, out| Presence::put(Some(view.request.method_name()), out),
    },
    VariableSpec {
        name: "echo_client_request_method",
        kind: VariableKind::Exact,
        doc: "The method of the client's request, also in a subrequest.",
        eval: |view, _, out| {
            let line = view.request.request_line();
            Presence::put(line.and_then(|line| line.split(|&byte| byte == b' ').next()), out)
        },
    },
    VariableSpec {
        name: "echo_request_uri",
        kind: VariableKind::Exact,
        doc: "The path of the request or subrequest, encoded, with its arguments.",
        eval: |view, _, out| put_uri(view, out),
    },
    VariableSpec {
        name: "echo_cacheable_request_uri",
        kind: VariableKind::Exact,
        doc: "The same as `$echo_request_uri`.",
        eval: |view, _, out| put_uri(view, out),
    },
    VariableSpec {
        name: "echo_request_body",
        kind: VariableKind::Exact,
        doc: "The body of the request, if it was read and is in memory.",
        eval: |view, _, out| {
            let body = view.request.stored_body().and_then(|body| body.in_memory());
            Presence::put(body.filter(|body| !body.is_empty()).map(|body| &body[..]), out)
        },
    },
    VariableSpec {
        name: "echo_client_request_headers",
        kind: VariableKind::Exact,
        doc: "The head of the client's request as it came: first line, all header lines, and an empty line.",
        eval: |view, _, out| {
            let Some(line) = view.request.request_line() else { return Presence::NotFound };
            // As it came, with lines that are skipped.
            let head = view.request.raw_head();
            if let Some(begin) = head.iter().position(|byte| !matches!(byte, b'\r' | b'\n')) {
                out.extend_from_slice(&head[begin..]);
                return Presence::Found;
            }
            out.extend_from_slice(line);
            out.extend_from_slice(b"\r\n");
            for line in view.request.headers() {
                for part in [line.name, b": ", line.value, b"\r\n"] {
                    out.extend_from_slice(part);
                }
            }
            out.extend_from_slice(b"\r\n");
            Presence::Found
        },
    },
    VariableSpec {
        name: "echo_it",
        kind: VariableKind::Exact,
        doc: "The piece that the commands of `echo_foreach_split` are carried out for.",
        eval: |view, _, out| {
            let item = view.request.context(&STATE).and_then(|state| state.item.as_deref());
            Presence::put(item, out)
        },
    },
    VariableSpec {
        name: "echo_incr",
        kind: VariableKind::Exact,
        doc: "A number that is one more each time it is asked for, by the request and its subrequests.",
        eval: |view, _, out| {
            let counter = view.request.common_context(&COUNTER);
            put_decimal(out, counter.0.fetch_add(1, Ordering::Relaxed) + 1);
            Presence::Found
        },
    },
    VariableSpec {
        name: "echo_response_status",
        kind: VariableKind::Exact,
        doc: "The status of the response, once there is one.",
        eval: |view, _, out| match view.status() {
            0 => Presence::NotFound,
            status => {
                put_decimal(out, u64::from(status));
                Presence::Found
            }
        },
    },
];

fn put_uri(view: &View<'_, '_>, out: &mut Vec<u8>) -> Presence {
    out.extend_from_slice(&uri::escape_uri(view.request.path(), uri::Escape::Uri));
    let args = view.request.args();
    if !args.is_empty() {
        out.push(b'?');
        out.extend_from_slice(args);
    }
    Presence::Found
}
