//! Where request bodies are put that are too large for memory. None is yet: the directory is what a
//! configuration can ask for.

use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::temp_paths::{TempPath, TempPaths};
use clearway_http::{Conf, ConfKey, Level, Load, Module, context};

/// The module. Finds [`TempPaths`] among the services of the environment.
pub static CLIENT_BODY: Module =
    Module { name: "client body", directives: DIRECTIVES, confs: &[&BODY_CONF], ..Module::EMPTY };

static DIRECTIVES: &[Spec<Load>] = &[Spec {
    name: "client_body_temp_path",
    contexts: context::ALL,
    args: Args::TAKE1234,
    syntax: "client_body_temp_path DIRECTORY [LEVEL1 [LEVEL2 [LEVEL3]]]",
    default: "",
    doc: "The directory for request bodies that are too large for memory, and how many characters the names \
          of its subdirectories have. It is made when the server starts, and belongs to the user that the \
          worker process runs as. Bodies are not put there yet: they stay in memory.",
    handler: read_temp_path,
}];

static BODY_CONF: ConfKey<BodyConf> = ConfKey::new(Level::Location);

/// What was said at one level.
#[derive(Default)]
struct BodyConf {
    temp_path: Option<()>,
}

impl Conf for BodyConf {
    fn merge(&mut self, _: &Self) {}
}

fn read_temp_path(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    directive.set(&mut scope.conf.location(&BODY_CONF).temp_path, |_| Ok(()))?;
    let environment = scope.conf.environment();
    let path = TempPath::read(&environment.prefix, directive)?;
    environment.services.find::<TempPaths>().map_or(Ok(()), |paths| paths.declare(path))
}
