//! Directives about other servers: which there are, and how their names are found.

pub mod resolver;
