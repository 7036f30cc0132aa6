//! This engine's entries in the tables of a configuration: the types of `clearway_site` with its handlers,
//! filters and variables in them.

use clearway_site as site;

/// The engine of this crate, for the tables of `site`. `phases` fills them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Http;

/// A configuration while its directives are executed.
pub type Load = site::Load<Http>;
/// Loads configurations with a fixed list of modules.
pub type HttpLoader = site::HttpLoader<Http>;
/// An `http` block that can be loaded.
pub type Checked = site::Checked<Http>;
/// The result of a check that is kept.
pub type Remains = site::Remains<Http>;
/// The tables of one module. Always a `static`.
pub type Module = site::Module<Http>;
/// A header filter and where it takes part.
pub type FilterSpec = site::FilterSpec<Http>;
/// A module's part in a phase.
pub type PhaseHandler = site::PhaseHandler<Http>;
/// A handler in a location.
pub(crate) type PhaseEntry = site::PhaseEntry<Http>;
/// The facts that decide at load whether a handler or filter takes part in a location.
pub type Enabling<'a> = site::Enabling<'a, Http>;
/// A loaded configuration.
pub type Snapshot = site::Snapshot<Http>;
/// A `location` block, or what applies in a server outside of its locations.
pub type Location = site::Location<Http>;
/// A variable that a module offers.
pub type VariableSpec = site::VariableSpec<Http>;
/// The kind of a `VariableSpec`.
pub type VariableKind = site::VariableKind<Http>;
/// Names that the configuration uses, while it is read.
pub type VariableNames = site::VariableNames<Http>;
/// The meanings of a configuration's variables, by number.
pub(crate) type Variables = site::Variables<Http>;
/// The target of a `set`.
pub type Target = site::Target<Http>;

/// Stands in the list of modules where bodies of subrequests come in: what is before it filters the body of
/// each request by itself, what is behind it filters all of it together.
pub static POSTPONE: Module = Module { name: "postpone", role: site::Role::Postpone, ..Module::EMPTY };
