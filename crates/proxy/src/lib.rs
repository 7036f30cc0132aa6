//! Requests that other servers answer. `upstreams` has the directives about those servers (groups, how their
//! names are found).
#![forbid(unsafe_code)]

pub mod upstreams;
