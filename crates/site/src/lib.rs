//! The loaded configuration: servers, locations, addresses, settings, variables, expressions; and the loader
//! that makes a [`Snapshot`] of them. Built at boot or reload, immutable afterwards.
//!
//! Handlers, filters and the code of variables stand in its tables as values of types that the crate above
//! supplies ([`Engine`]); nothing of them is called from here.
#![forbid(unsafe_code)]

mod core;
mod engine;
mod hash_sizes;
mod ids;
mod levels;
mod listen;
mod load;
pub mod locations;
pub mod mime;
mod module;
mod name_keys;
mod phases;
mod product;
pub mod regex;
mod rights;
mod sending;
pub mod server_names;
mod services;
mod setting;
mod snapshot;
pub mod temp_paths;
mod variables;
mod visits;

pub use crate::core::{
    CORE_CONF, CORE_SERVER, Connect, CoreLocation, CoreServer, ETags, ErrorPage, KeepaliveDisable,
    KeepaliveTimeout, LimitExcept, LocationAccess, LocationForm, Overwrite, ROOT, RedirectHost, RedirectPort,
    RedirectUrl, Root, RootKind, method_bit,
};
pub use engine::Engine;
pub use hash_sizes::{HASHES, HashConf};
pub use ids::{LocationId, ServerId};
pub use levels::{Conf, ConfKey, ConfSlot, Confs, Level, Nesting};
pub use listen::{Address, ListenOptions, LocalAddress, Protocols, Socket, Ssl};
pub use load::{Checked, Environment, HttpLoader, Load, MATCH_LIMIT, OpenErrorLog, Remains, match_limit};
pub use module::{FilterSpec, Finish, Module, Role, context};
pub use phases::{Cost, Enabling, Part, Phase, PhaseEntry, PhaseHandler, PhaseList};
pub use product::{NGINX_VERSION, Product, ServerTokens, Signature, is_name};
pub use rights::WantedRights;
pub use sending::{Aio, Directio, IfModifiedSince, Sending, Size, ThreadPools};
pub use services::{ConfPrefix, Services};
pub use setting::{Answers, Merge, Own, Setting, file_access, millis, msec, set};
pub use snapshot::{Location, Server, Snapshot};
pub use variables::{
    Binding, Keep, Look, Named, Quote, Scene, Target, Value, VariableId, VariableKind, VariableNames,
    VariableSource, VariableSpec, Variables,
};
