//! `client_body_early_read`: bodies that are read before anything else is done with their requests. Runs in
//! the request's task.

use clearway_site::{Cost, Phase};

use crate::config::body_directives::BODY_CONF;
use crate::phases::read_body::Store;
use crate::phases::{Exchange, Step};
use crate::tables::{Module, PhaseHandler};

/// The engine's own part of the tables, as far as early bodies go.
pub(crate) static EARLY_READ: Module = Module { name: "core early bodies", phases: PHASES, ..Module::EMPTY };

static PHASES: &[PhaseHandler] = &[PhaseHandler {
    phase: Phase::PostRead,
    cost: Cost::Cheap,
    enabled: |enabling| !enabling.confs.of(&BODY_CONF).early_read.is_empty(),
    handler: read_early,
}];

/// `client_body_early_read`.
fn read_early<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    let view = exchange.view();
    let values = &exchange.request.conf(&BODY_CONF).early_read;
    let is_wanted = values.iter().any(|value| !matches!(&*value.eval(&view), b"" | b"0"));
    if !is_wanted {
        return Step::Declined;
    }
    exchange.request.set_action("reading client request headers");
    if let Err(answer) = exchange.body.state.check_size(exchange.request) {
        return Step::Respond(answer);
    }
    Step::Wait(Box::pin(async move {
        if let Err(answer) = exchange.read_body(Store::Early).await {
            return Step::Respond(answer);
        }
        exchange.request.set_action("");
        Step::Declined
    }))
}
