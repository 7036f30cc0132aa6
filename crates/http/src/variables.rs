//! The engine's own variables.

pub(crate) mod core_variables;
