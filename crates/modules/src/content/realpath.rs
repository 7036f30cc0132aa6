//! `$realpath_root`: the directory of `root` without symbolic links. It takes system calls that may
//! block, so where the configuration uses it, it is found on the pool before the handlers that may ask
//! for it, and kept with the request.

use std::os::unix::ffi::OsStringExt;

use clearway_base::log::Level as LogLevel;
use clearway_http::{
    ContextKey, Cost, Enabling, Exchange, Lasts, Module, Phase, PhaseHandler, Presence, Step, VariableKind,
    VariableSpec, View, paths,
};
use clearway_offload::file;

use crate::content::files::{Failure, log_failure, on_pool, to_path};

/// The module. It comes before all modules that evaluate variables.
pub static REALPATH: Module =
    Module { name: "realpath", variables: VARIABLES, phases: PHASES, ..Module::EMPTY };

const NAME: &str = "realpath_root";

static VARIABLES: &[VariableSpec] = &[VariableSpec {
    name: NAME,
    kind: VariableKind::Exact,
    doc: "Directory of `root` or `alias` without symbolic links.",
    eval: |view, _, out| Presence::put(found(view), out),
}];

static PHASES: &[PhaseHandler] = &[
    PhaseHandler { phase: Phase::PostRead, cost: Cost::Cheap, enabled: is_used, handler },
    PhaseHandler { phase: Phase::Rewrite, cost: Cost::Cheap, enabled: is_used, handler },
];

static REALPATH_ROOT: ContextKey<RealpathRoot> = ContextKey::new(Lasts::UntilRedirect);

/// The directory of the location that the request is in, or empty if there is none.
struct RealpathRoot {
    root: Vec<u8>,
    real: Vec<u8>,
}

fn is_used(enabling: &Enabling<'_>) -> bool {
    enabling.variables.is_used(NAME.as_bytes())
}

fn found<'a>(view: &View<'a, '_>) -> Option<&'a [u8]> {
    view.request.context(&REALPATH_ROOT).map(|context| &context.real[..])
}

fn handler<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    let root = paths::document_root(&exchange.view()).into_owned();
    if exchange.request.context(&REALPATH_ROOT).is_some_and(|context| context.root == root) {
        return Step::Declined;
    }
    Step::Wait(Box::pin(resolve(exchange, root)))
}

async fn resolve(exchange: Exchange<'_, '_>, root: Vec<u8>) -> Step<'static> {
    let request = exchange.request;
    let path = to_path(&root);
    match on_pool(request, &root, move |blocking| file::realpath(blocking, &path)).await {
        Err(status) => Step::status(status),
        Ok(Err(error)) => {
            log_failure(request, LogLevel::Crit, Failure { call: "realpath()", path: &root, error: &error });
            Step::status(500)
        }
        Ok(Ok(real)) => {
            request
                .set_context(&REALPATH_ROOT, RealpathRoot { root, real: real.into_os_string().into_vec() });
            Step::Declined
        }
    }
}
