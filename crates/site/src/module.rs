//! A module as the engine sees it: its tables. The list of modules is given to the loader by the crate above;
//! nothing here knows any of them by name.

use clearway_conf::{Contexts, Error, Spec};
use clearway_metrics::Metric;

use crate::engine::Engine;
use crate::levels::ConfSlot;
use crate::load::Load;
use crate::phases::{Enabling, PhaseHandler};
use crate::variables::VariableSpec;

/// The tables of one module. Always a `static`.
pub struct Module<E: Engine> {
    /// For the reference, such as `rewrite`.
    pub name: &'static str,
    /// Its directives.
    pub directives: &'static [Spec<Load<E>>],
    /// Its configuration types.
    pub confs: &'static [&'static dyn ConfSlot],
    /// Its variables.
    pub variables: &'static [VariableSpec<E>],
    /// Its handlers in phases; within a phase, modules run in the order of the list.
    pub phases: &'static [PhaseHandler<E>],
    /// Its header filters; they run in the order of the list.
    pub filters: &'static [FilterSpec<E>],
    /// Its metrics, for the whole process: shown by `status`, and in the reference.
    pub metrics: &'static [Metric],
    /// Called once when all levels are merged: opens what no directive named, takes what it needs of
    /// the environment.
    pub finish: Option<Finish<E>>,
    /// Its role in the list.
    pub role: Role,
}

/// Completes a module's settings.
pub type Finish<E> = fn(&mut Load<E>) -> Result<(), Error>;

impl<E: Engine> Module<E> {
    /// A module with nothing in its tables, to be completed with `..Module::EMPTY`.
    pub const EMPTY: Self = Self {
        name: "",
        directives: &[],
        confs: &[],
        variables: &[],
        phases: &[],
        filters: &[],
        metrics: &[],
        finish: None,
        role: Role::Tables,
    };
}

/// The role of a module besides its tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Nothing.
    #[default]
    Tables,
    /// The place in the list of modules where bodies of subrequests come in: what is before it filters the
    /// body of each request by itself, what is behind it filters all of it together.
    Postpone,
    /// The module speaks TLS: `listen` may have the parameter `ssl`.
    Ssl,
}

/// A header filter and where it takes part.
pub struct FilterSpec<E: Engine> {
    /// Whether it has anything to do in a location; asked once, at load.
    pub enabled: fn(&Enabling<'_, E>) -> bool,
    /// Its function.
    pub filter: E::HeaderFilter,
}

/// The contexts that directives of HTTP stand in. The numbers below 8 are the server's own.
pub mod context {
    use super::Contexts;

    /// In `http`.
    pub const HTTP: Contexts = Contexts::bit(8);
    /// In `server`.
    pub const SERVER: Contexts = Contexts::bit(9);
    /// In `location`.
    pub const LOCATION: Contexts = Contexts::bit(10);
    /// In an `if` of a `server`.
    pub const SERVER_IF: Contexts = Contexts::bit(11);
    /// In an `if` of a `location`.
    pub const LOCATION_IF: Contexts = Contexts::bit(12);
    /// In `limit_except`.
    pub const LIMIT_EXCEPT: Contexts = Contexts::bit(13);
    /// In `upstream`.
    pub const UPSTREAM: Contexts = Contexts::bit(14);
    /// Anywhere in `http`, but not in `if`.
    pub const ALL: Contexts = HTTP.or(SERVER).or(LOCATION);
}
