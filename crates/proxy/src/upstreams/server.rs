//! `server` in an `upstream` block.

use bytes::Bytes;
use clearway_base::units;
use clearway_conf::error::{message, printed};
use clearway_conf::{Directive, Error, Scope};
use clearway_http::Load;
use clearway_net::listen::AddrError;
use clearway_net::url::{Names, Url, UrlKind, UrlPath, UrlRules, parse_url};
use clearway_os::outgoing::Remote;
use clearway_upstream::State;

use crate::upstreams::draft::{Unresolved, block, unresolved};
use crate::upstreams::said::{Lookup, Rank, Ranks, ServerDraft};

/// Longest name of a server that sticky sessions may use, bytes: as long as a hash of its address.
const ROUTE_MAX_BYTES: usize = 32;

/// The port of a server without one.
const DEFAULT_PORT: u16 = 80;

/// What parameters have said.
struct Parameters {
    server: ServerDraft,
    resolve: Resolved,
    service: Option<Bytes>,
}

/// When a name is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolved {
    AtLoad,
    WhileServing,
}

pub(crate) fn read_server(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let name = &directive.args[0];
    let mut parameters =
        Parameters { server: ServerDraft::plain(name.clone()), resolve: Resolved::AtLoad, service: None };
    let ranks = block(scope.conf).method.ranks();
    for argument in &directive.args[1..] {
        let is_limited = argument == "backup" || argument.starts_with(b"slow_start=");
        if is_limited && ranks == Ranks::Refused {
            let text =
                message(&[&"balancing method does not support parameter \"", &printed(argument), &"\""]);
            return Err(directive.error(text));
        }
        parameters.read(argument).map_err(|text| directive.error(text))?;
    }
    let unresolved = unresolved(scope.conf);
    let server = parameters.complete(scope.conf, directive, unresolved)?;
    block(scope.conf).servers.push(server);
    Ok(())
}

/// A server about which this is said, of which the address is not looked at.
///
/// # Errors
/// In nginx's words.
pub(crate) fn said_of(name: &Bytes, arguments: &[Bytes]) -> Result<ServerDraft, Vec<u8>> {
    let mut parameters =
        Parameters { server: ServerDraft::plain(name.clone()), resolve: Resolved::AtLoad, service: None };
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

impl Parameters {
    fn read(&mut self, argument: &Bytes) -> Result<(), Vec<u8>> {
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
                b"down" => server.state = State::Down,
                b"drain" => server.state = State::Draining,
                b"resolve" => self.resolve = Resolved::WhileServing,
                _ => return Err(invalid()),
            }
        }
        Ok(())
    }

    /// Reads the address, and finds out where it leads.
    fn complete(
        self,
        load: &Load,
        directive: &Directive,
        unresolved: Unresolved,
    ) -> Result<ServerDraft, Error> {
        let Self { mut server, resolve, service } = self;
        let name = server.name.clone();
        let refuse = |kind: &str, why: &str| {
            directive.error(message(&[&kind, &" upstream \"", &printed(&name), &"\" ", &why]))
        };
        if service.is_some() && resolve == Resolved::AtLoad {
            return Err(refuse("service", "requires \"resolve\" parameter"));
        }
        let system = load.resolver();
        let names = match resolve {
            Resolved::AtLoad => Names::Resolved(&*system),
            Resolved::WhileServing => Names::Kept,
        };
        let rules = UrlRules { default_port: DEFAULT_PORT, path: UrlPath::Refused, names };
        let mut url = parse_url(&name, rules);
        let mut when = resolve;
        if url == Err(AddrError::HostNotFound) && unresolved == Unresolved::Resolved {
            url = parse_url(&name, UrlRules { names: Names::Kept, ..rules });
            when = Resolved::WhileServing;
        }
        let url: Url = url.map_err(|error| {
            directive.error(message(&[&error.to_string(), &" in upstream \"", &printed(&name), &"\""]))
        })?;
        if service.is_some() && (url.kind == UrlKind::Unix || url.port_text.is_some()) {
            return Err(refuse("service", "may not have port"));
        }
        if service.is_some() && !url.addresses.is_empty() {
            return Err(refuse("service", "requires domain name"));
        }
        if when == Resolved::WhileServing && url.addresses.is_empty() {
            let is_late = resolve == Resolved::AtLoad;
            server.lookup = Some(Lookup { host: name.slice(url.host), port: url.port, service, is_late });
        }
        server.addresses = url.addresses;
        Ok(server)
    }
}

/// A number as nginx reads them, as large as it is here at most.
fn count(text: &[u8]) -> Option<u32> {
    units::parse_number(text).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}
