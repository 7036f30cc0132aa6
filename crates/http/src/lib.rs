//! HTTP: connections, requests, phases, locations, variables, filters, output. The engine of which
//! the modules in the crate above are the parts; it knows none of them by name.
//!
//! A configuration becomes an immutable [`Snapshot`] once; each connection is one task ([`serve`]) that
//! borrows everything from it. Request-time code never looks configuration up by name and never waits
//! but where a handler says so.
#![forbid(unsafe_code)]

mod config;
mod connection;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod metrics;
mod output;
mod phases;
pub mod regex;
mod request;
mod response;
mod snapshot;
mod variables;

pub use clearway_message::{Ranges, ResponseHead, Text, Varies, put_decimal, status, uri};
pub use config::core_directives::{msec, set};
pub use config::levels::{Conf, ConfKey, ConfSlot, Confs, Level, Nesting};
pub use config::load::{
    Checked, ConfPrefix, Environment, HttpLoader, Load, LocationForm, OpenErrorLog, Remains, Services,
};
pub use config::module::{FilterSpec, Module, POSTPONE, context};
pub use config::sending::{Aio, Directio, IfModifiedSince, Sending, ThreadPools};
pub use config::setting::Setting;
pub use config::{module, paths, temp_paths};
pub use connection::serve;
pub use connection::wire::SendFailure;
pub use output::{BodyFilter, Compression, Filtering, HeaderFilter, Input, Next, Output, Trailers, Unsent};
pub use phases::access::Satisfy;
pub use phases::{Answer, Cost, Enabling, Exchange, Handler, Phase, PhaseHandler, Redirect, Step, Wait};
pub use request::body::{Body, BodyError};
pub use request::body_file::TempFile;
pub use request::body_store::{Store, StoredBody};
pub use request::errand::Errand;
pub use request::redirect::Rewritten;
pub use request::subrequest::{Asking, Delivery, Finished, NotMade, Outcome, Subrequest};
pub use request::{GivenUp, Origin, Request, Verbatim};
pub use response::chunk::{Chunk, Mark, Pushed};
pub use response::file_part::{FileAccess, FilePart, OpenFile};
pub use response::file_sender::FileFailure;
pub use snapshot::generation::{Generation, GenerationParts, Listener};
pub use snapshot::listen::{LocalAddress, Socket};
pub use snapshot::{CoreLocation, ETags, Location, LocationId, Root, RootKind, Server, Snapshot};
pub use snapshot::{locations, mime, server_names};
pub use variables::core_variables::{Cookie, Credentials, NGINX_VERSION};
pub use variables::{
    Assign, Computed, Eval, Keep, Presence, Target, Value, VariableId, VariableKind, VariableNames,
    VariableSpec, View,
};
