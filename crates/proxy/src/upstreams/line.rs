//! The parameters of a `server` line, and how they are read: in a configuration, a state file, the record of
//! a zone, or a request of the API.

use bytes::Bytes;
use clearway_base::units;
use clearway_conf::error::{message, printed};
use clearway_net::url::{Names, UrlPath, UrlRules, parse_url};
use clearway_os::outgoing::Remote;
use clearway_upstream::ServerState;

/// Longest name of a server that sticky sessions may use, bytes: as long as a hash of its address.
const ROUTE_MAX_BYTES: usize = 32;

/// The port of a server without one.
pub(crate) const DEFAULT_PORT: u16 = 80;

/// The parameters of one `server` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerDraft {
    /// As it is written.
    pub(crate) name: Bytes,
    pub(crate) addresses: Vec<Remote>,
    /// Whether it is resolved while serving, and how.
    pub(crate) lookup: Option<Lookup>,
    pub(crate) weight: u32,
    pub(crate) max_conns: u32,
    pub(crate) max_fails: u32,
    pub(crate) fail_timeout_s: u64,
    pub(crate) slow_start_ms: u64,
    pub(crate) rank: Rank,
    pub(crate) state: ServerState,
    pub(crate) route: Option<Bytes>,
}

impl ServerDraft {
    /// A server without parameters.
    pub(crate) fn plain(name: Bytes) -> Self {
        Self {
            name,
            addresses: Vec::new(),
            lookup: None,
            weight: 1,
            max_conns: 0,
            max_fails: 1,
            fail_timeout_s: 10,
            slow_start_ms: 0,
            rank: Rank::Primary,
            state: ServerState::Up,
            route: None,
        }
    }
}

/// A name that is resolved while serving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lookup {
    pub(crate) host: Bytes,
    pub(crate) port: u16,
    /// The service whose servers the line names.
    pub(crate) service: Option<Bytes>,
    /// Whether it was only unknown when the configuration was loaded (`upstream_start_unresolved`).
    pub(crate) is_late: bool,
}

/// Which servers are tried first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    Primary,
    Backup,
}

/// Whether servers may be `backup`, or have `slow_start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ranks {
    Allowed,
    Refused,
}

/// The values of parameters.
pub(crate) struct Parameters {
    pub(crate) server: ServerDraft,
    pub(crate) resolve: Resolved,
    pub(crate) service: Option<Bytes>,
}

/// When a name is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolved {
    AtLoad,
    WhileServing,
}

impl Parameters {
    /// None yet, of a server of this name.
    pub(crate) fn of(name: &Bytes) -> Self {
        let server = ServerDraft::plain(name.clone());
        Self { server, resolve: Resolved::AtLoad, service: None }
    }

    /// Reads one.
    ///
    /// # Errors
    /// In nginx's words.
    pub(crate) fn read(&mut self, argument: &Bytes) -> Result<(), Vec<u8>> {
        let invalid = || message(&[&"invalid parameter \"", &printed(argument), &"\""]);
        let server = &mut self.server;
        if let Some(number) = argument.strip_prefix(b"weight=") {
            server.weight = count(number).filter(|&weight| weight > 0).ok_or_else(invalid)?;
        } else if let Some(number) = argument.strip_prefix(b"max_conns=") {
            server.max_conns = count(number).ok_or_else(invalid)?;
        } else if let Some(number) = argument.strip_prefix(b"max_fails=") {
            server.max_fails = count(number).ok_or_else(invalid)?;
        } else if let Some(time) = argument.strip_prefix(b"fail_timeout=") {
            server.fail_timeout_s = units::parse_sec(time).ok_or_else(invalid)?.as_secs();
        } else if let Some(time) = argument.strip_prefix(b"slow_start=") {
            let time = units::parse_msec(time).ok_or_else(invalid)?;
            server.slow_start_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        } else if let Some(route) = argument.strip_prefix(b"route=") {
            if route.is_empty() {
                return Err(b"route is empty".to_vec());
            }
            if route.len() > ROUTE_MAX_BYTES {
                return Err(format!("route is longer than {ROUTE_MAX_BYTES}").into_bytes());
            }
            server.route = Some(argument.slice_ref(route));
        } else if let Some(service) = argument.strip_prefix(b"service=") {
            if service.is_empty() {
                return Err(b"service is empty".to_vec());
            }
            self.service = Some(argument.slice_ref(service));
        } else {
            match &argument[..] {
                b"backup" => server.rank = Rank::Backup,
                b"down" => server.state = ServerState::Down,
                b"drain" => server.state = ServerState::Draining,
                b"resolve" => self.resolve = Resolved::WhileServing,
                _ => return Err(invalid()),
            }
        }
        Ok(())
    }
}

/// A server about which this is said, of which the address is not looked at.
///
/// # Errors
/// In nginx's words.
pub(crate) fn said_of(name: &Bytes, arguments: &[Bytes]) -> Result<ServerDraft, Vec<u8>> {
    let mut parameters = Parameters::of(name);
    arguments.iter().try_for_each(|argument| parameters.read(argument))?;
    Ok(parameters.server)
}

/// Where a server is that is named while serving.
///
/// # Errors
/// In nginx's words; a name is none, as nobody would resolve it.
pub(crate) fn address_of(name: &[u8]) -> Result<Remote, String> {
    let rules = UrlRules { default_port: DEFAULT_PORT, path: UrlPath::Refused, names: Names::Kept };
    let url = parse_url(name, rules).map_err(|error| error.to_string())?;
    url.addresses.into_iter().next().ok_or_else(|| "host name instead of an address".to_owned())
}

/// A number as nginx reads them, as large as it is here at most.
fn count(text: &[u8]) -> Option<u32> {
    units::parse_number(text).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}
