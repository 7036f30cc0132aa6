//! Modules that make variables: of other values, of addresses, of cookies. They are evaluated where they
//! are asked for, in the request's task.

pub mod browser;
pub mod geo;
pub mod map;
pub mod split_clients;
pub mod userid;
