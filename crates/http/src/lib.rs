//! HTTP: connections, requests, phases, locations, variables, filters, output. The engine of which
//! the modules in the crate above are the parts; it knows none of them by name.
//!
//! A configuration becomes an immutable [`Snapshot`] once; each connection is one task ([`serve`]) that
//! borrows everything from it. Request-time code never looks configuration up by name and never waits
//! but where a handler says so.
#![forbid(unsafe_code)]

mod access;
mod account;
mod body;
mod body_directives;
mod body_file;
mod body_store;
mod browser;
mod chunk;
mod connection;
mod core_directives;
mod core_variables;
mod engine;
mod file_bytes;
mod file_part;
mod file_sender;
mod generation;
mod head_directives;
mod levels;
mod listen;
mod load;
pub mod locations;
pub mod metrics;
pub mod mime;
pub mod module;
mod output;
mod pace;
mod parts;
pub mod paths;
mod pause;
mod phases;
mod product;
mod proxied;
mod redirect;
pub mod regex;
mod relay;
mod request;
mod request_directives;
mod response;
mod sending;
mod serve;
pub mod server_names;
mod setting;
mod snapshot;
pub mod status;
mod subrequest;
pub mod temp_paths;
mod tree;
pub mod uri;
mod values;
mod variables;
mod wire;

pub use access::Satisfy;
pub use body::{Body, BodyError};
pub use body_file::TempFile;
pub use body_store::{Store, StoredBody};
pub use chunk::{Chunk, Mark, Pushed};
pub use connection::serve;
pub use core_directives::{msec, set};
pub use core_variables::{Cookie, Credentials, NGINX_VERSION};
pub use file_part::{FileAccess, FilePart, OpenFile};
pub use file_sender::FileFailure;
pub use generation::{Generation, GenerationParts, Listener};
pub use levels::{Conf, ConfKey, ConfSlot, Confs, Level, Nesting};
pub use listen::{LocalAddress, Socket};
pub use load::{ConfPrefix, Environment, HttpLoader, Load, LocationForm, OpenErrorLog, Services};
pub use module::{FilterSpec, Module, POSTPONE, context};
pub use output::{BodyFilter, Compression, Filtering, HeaderFilter, Input, Next, Output, Trailers, Unsent};
pub use phases::{Answer, Cost, Enabling, Exchange, Handler, Phase, PhaseHandler, Redirect, Step, Wait};
pub use redirect::Rewritten;
pub use request::{GivenUp, Lossy, Origin, Request};
pub use response::{Ranges, ResponseHead, Text, Varies, put_decimal};
pub use sending::{Aio, Directio, IfModifiedSince, Sending, ThreadPools};
pub use setting::Setting;
pub use snapshot::{CoreLocation, ETags, Location, LocationId, Root, RootKind, Server, Snapshot};
pub use subrequest::{Asking, Delivery, Finished, NotMade, Outcome, Subrequest};
pub use variables::{
    Assign, Computed, Eval, Keep, Presence, Target, Value, VariableId, VariableKind, VariableNames,
    VariableSpec, View,
};
pub use wire::SendFailure;
