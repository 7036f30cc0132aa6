//! `stub_status`: how many connections and requests there are and were, as nginx's page, and the variables
//! of the same numbers. Reloads change nothing in them. Where several processes serve (`worker_groups`) the
//! page asks the others, and the variables show what those have said within the last second. Runs on a loop.

use std::borrow::Cow;
use std::sync::Arc;

use clearway_conf::{Args, Spec};
use clearway_http::metrics::{self, Connections, Numbers};
use clearway_http::{
    Answers, Chunk, ConfKey, Cost, Exchange, Level, Load, Mark, Module, Phase, PhaseHandler, Presence, Step,
    VariableKind, VariableSpec, context, put_decimal,
};
use clearway_message::Method;
use clearway_metrics::MetricSource;

use crate::content::status::wait_for;

/// The module. Its locations are answered before files are looked for, so it comes before `index`.
pub static STUB_STATUS: Module = Module {
    name: "stub_status",
    directives: DIRECTIVES,
    confs: &[&STUB_STATUS_CONF],
    variables: VARIABLES,
    phases: PHASES,
    ..Module::EMPTY
};

static DIRECTIVES: &[Spec<Load>] = &[Spec {
    name: "stub_status",
    contexts: context::SERVER.or(context::LOCATION),
    args: Args::NOARGS.or(Args::TAKE1),
    syntax: "stub_status",
    default: "",
    doc: "Answers every GET with the numbers of connections and requests, in nginx's form. \
          `docs/metrics.md` says how it counts; `status` tells more. An argument, as in old files, means \
          nothing.",
    example: "
        location = /basic_status {
            stub_status;
            allow 127.0.0.1;
            deny all;
        }",
    see: &["status"],
    handler: |scope, _| {
        let source = scope.conf.environment().services.find::<Arc<dyn MetricSource>>().cloned();
        scope.conf.location(&STUB_STATUS_CONF).set(Page::Shown(source));
        Ok(())
    },
}];

/// A variable that is one of the numbers.
macro_rules! variable {
    ($name:literal, $field:ident, $doc:literal) => {
        VariableSpec {
            name: $name,
            kind: VariableKind::Exact,
            doc: $doc,
            eval: |_, _, out| {
                put_decimal(out, metrics::numbers().connections.$field);
                Presence::Found
            },
        }
    };
}

static VARIABLES: &[VariableSpec] = &[
    variable!("connections_active", active, "Connections of clients."),
    variable!("connections_reading", reading, "Connections in which the head of a request is read."),
    variable!("connections_writing", writing, "Connections in which a request is answered."),
    variable!("connections_waiting", waiting, "Connections that wait for a request."),
];

static PHASES: &[PhaseHandler] = &[PhaseHandler {
    phase: Phase::Content,
    cost: Cost::Cheap,
    enabled: |enabling| matches!(**enabling.confs.of(&STUB_STATUS_CONF), Page::Shown(_)),
    handler,
}];

static STUB_STATUS_CONF: ConfKey<Answers<Page>> = ConfKey::new(Level::Location);

#[derive(Clone, Default)]
enum Page {
    #[default]
    Absent,
    /// With what knows other processes.
    Shown(Option<Arc<dyn MetricSource>>),
}

fn handler<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    if !matches!(exchange.request.method(), Method::Get | Method::Head) {
        return Step::status(405);
    }
    if let Err(answer) = exchange.discard_body() {
        return Step::Respond(answer);
    }
    let asking = match &**exchange.request.conf(&STUB_STATUS_CONF) {
        Page::Shown(Some(source)) => source.ask(),
        _ => None,
    };
    match asking {
        None => {
            show(&mut exchange);
            Step::Done
        }
        Some(asking) => Step::Wait(Box::pin(async move {
            if let Err(answer) = wait_for(&mut exchange, &*asking).await {
                return Step::Respond(answer);
            }
            show(&mut exchange);
            Step::Done
        })),
    }
}

fn show(exchange: &mut Exchange<'_, '_>) {
    let Numbers { connections, accepted, handled, requests } = metrics::numbers();
    let text = page(connections, [accepted, handled, requests]);
    let head = exchange.output.head();
    head.status = 200;
    head.content_length = Some(text.len() as u64);
    head.content_type = Some(Cow::Borrowed(b"text/plain"));
    // This chunk is the whole body, so that nothing has to wait for room.
    let _ = exchange.output.write(exchange.request, Chunk::Owned(text.into()), Mark::Last);
}

/// In nginx's form, with its spaces at the ends of lines; people parse it.
fn page(connections: Connections, [accepts, handled, requests]: [u64; 3]) -> String {
    let Connections { active, reading, writing, waiting } = connections;
    format!(
        "Active connections: {active} \nserver accepts handled requests\n {accepts} {handled} {requests} \n\
         Reading: {reading} Writing: {writing} Waiting: {waiting} \n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_nginx_s() {
        let connections = Connections { active: 4, reading: 1, writing: 2, waiting: 3 };
        let wanted = "Active connections: 4 \nserver accepts handled requests\n 7 6 50 \n\
                      Reading: 1 Writing: 2 Waiting: 3 \n";
        assert_eq!(page(connections, [7, 6, 50]), wanted);
    }
}
