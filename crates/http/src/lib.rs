//! HTTP: requests, phases, variables, filters, output. The engine of which the modules in the
//! crate above are the parts; it knows none of them by name.
//!
//! Request-time code never looks configuration up by name and never waits but where a handler says so; a
//! request borrows everything from a [`Snapshot`].
#![forbid(unsafe_code)]

mod client;
mod config;
#[cfg(fuzzing)]
pub mod fuzzing;
mod generation;
mod group_editing;
mod handshake_code;
mod http2;
mod link;
pub mod metrics;
mod name_servers;
mod output;
pub mod paths;
mod phases;
mod proxied;
mod request;
mod response;
mod tables;
#[cfg(feature = "testing")]
pub mod testing;
mod tls;
mod variables;

pub use clearway_base::log::Verbatim;
pub use clearway_h1::Fault;
pub use clearway_message::{
    Conditions, HeaderLine, HeaderName, Headers, Ranges, ResponseHead, Text, Varies, put_decimal, status, uri,
};
pub use clearway_pipe::{READY_BITS, Ready};
pub use clearway_site::{
    Aio, Answers, Conf, ConfKey, ConfPrefix, ConfSlot, Confs, Connect, CoreLocation, Cost, Directio, ETags,
    Environment, IfModifiedSince, Keep, Level, LocalAddress, LocationForm, LocationId, Merge, NGINX_VERSION,
    Nesting, OpenErrorLog, Own, Phase, Role, Root, RootKind, Sending, Server, ServerId, Services, Setting,
    Socket, ThreadPools, Value, VariableId, WantedRights, context, file_access, locations, mime, msec, regex,
    server_names, set, settings, temp_paths,
};

pub use client::{Client, Front, Way};
pub use generation::{Generation, GenerationParts, Listener, Setup};
pub use group_editing::GROUP_EDITING;
pub use handshake_code::{
    About, Consulting, Denied, HANDSHAKE_CODE, HandshakeCode, HandshakeCodes, HandshakeWait, Met,
    UPSTREAM_CODE, UpstreamCode, UpstreamCodes, Wishes,
};
pub use http2::{HTTP2_LOCATION, HTTP2_MAIN, HTTP2_SERVER, Http2, Http2Location, Http2Main, Http2Server};
pub use link::Link;
pub use link::http1::Http1Link;
pub use link::parts::Parts;
pub use link::send_queue::{Completion, SendFailure};
pub use link::stream::{
    Fault as StreamFault, Intake, STREAM_WINDOW_BYTES, Stream, StreamHead, StreamOutput, WindowExceeded,
};
pub use link::tls::{NotReceived, Offer, RecordSize, Remembered, Tls, failure_level};
pub use link::transport::Transport;
pub use metrics::Stage;
pub use name_servers::{AskedServers, NAME_SERVERS, NameServers, NameServersConf, Resolving, Unresolved};
pub use output::view::{Assign, Computed, Eval, NamedVariable, Presence, View};
pub use output::{
    BodyFilter, Compression, Filtering, HeaderFilter, Hold, Input, Next, Output, TIMED_OUT, Trailers, Unsent,
    split_content_type,
};
pub use phases::access::Satisfy;
pub use phases::balancer::{
    Balanced, BalancedKeepalive, BalancedPeer, Balancer, Balancers, Balancing, Choosing, LastAttempt, Said,
    SetBalancer,
};
pub use phases::engine::Active;
pub use phases::handshake::{Shaking, look_at_handshake};
pub use phases::made_body::{Afterwards, Fill, MadeBody, NotReplaced, open_body_file, use_body_file};
pub use phases::protocol::{Cut, Lingering, LingeringClose};
pub use phases::question::NoHead;
pub use phases::read_body::Store;
pub use phases::redirect::Rewritten;
pub use phases::script::{AppendScript, Script, ScriptWait, Scripts};
pub use phases::spool::{NotPutAside, Placement, Spool};
pub use phases::subrequest::Finished;
pub use phases::tunnel::Tunnel;
pub use phases::{Exchange, Handler, Step, Wait};
pub use request::answer::{Answer, Redirect};
pub use request::body::Body;
pub use request::body_file::TempFile;
pub use request::contexts::{ContextKey, Lasts};
pub use request::errand::Errand;
pub use request::log::UpstreamUrl;
pub use request::scripting::{SharedHead, Written};

pub use request::stored_body::StoredBody;
pub use request::strands::Strands;
pub use request::subrequest::{
    Asking, Capture, CapturedVariables, Delivery, Entry, NotMade, Subrequest, SubrequestOutcome,
};
pub use request::{GivenUp, Origin, Request};
pub use response::buffer::{Buf, BufferSize};
pub use response::chunk::{Chunk, Mark, Pushed};
pub use response::file_part::{FileAccess, FilePart, OpenFile};
pub use response::file_sender::FileFailure;
pub use tables::{
    Checked, Enabling, FilterSpec, Http, HttpLoader, Load, Location, Module, POSTPONE, PhaseHandler, Remains,
    Snapshot, Target, VariableKind, VariableNames, VariableSpec,
};
pub use tls::{
    Accept, Begun, Chosen, Claim, ClientHello, InvalidName, OfferedHttp2, Opening, SERVER_TLS, ServerTls,
    SniHandling, TlsConf, Unaccepted, Verify, Weight,
};
pub use variables::core_variables::{Cookie, Credentials};

/// The engine's own part of the tables.
static OWN: [&Module; 10] = [
    &http2::HTTP2,
    &config::core_directives::CORE,
    &config::sending::SENDING,
    &config::body_directives::BODY,
    &phases::early_read::EARLY_READ,
    &config::head_directives::HEAD,
    &phases::access::ACCESS,
    &request::subrequest::SUBREQUESTS,
    &proxied::PROXIED,
    &config::request_directives::REQUESTS,
];

/// The engine's own modules, and behind them those that are given.
pub fn all_modules(modules: &[&'static Module]) -> Vec<&'static Module> {
    OWN.iter().chain(modules).copied().collect()
}

/// A loader with the engine's own directives and those of `modules`.
pub fn loader(modules: &[&'static Module]) -> HttpLoader {
    HttpLoader::new(all_modules(modules))
}
