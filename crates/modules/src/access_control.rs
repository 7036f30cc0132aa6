//! Access control by address, password, subrequest, referer, link and rate. Runs in the access and pre-access
//! phases of a request.

pub mod access;
pub mod auth_basic;
pub mod auth_request;
pub mod limit_conn;
pub mod limit_req;
pub(crate) mod limits;
pub mod realip;
pub mod referer;
pub(crate) mod secret;
pub mod secure_link;

#[cfg(fuzzing)]
pub use crate::cidr::fuzzing;
