//! Addresses to listen on: the options of `listen`, how several of them for one address combine, and
//! which server answers there. Built at boot or reload with nginx's messages, immutable afterwards.

use std::net::SocketAddr;

use clearway_base::log::{Level, Verbatim, bytes_of};
use clearway_base::units;
use clearway_conf::{Directive, Error};
use clearway_message::put_ipv4;
use clearway_net::bind::{self, Ipv6Only, Transport};
use clearway_net::listen::{ListenAddr, OwnSocket, plan_sockets};
use clearway_net::tune::Keepalive;

use crate::engine::Engine;
use crate::ids::ServerId;
use crate::module::{Module, Role};
use crate::server_names::{self, Added, ServerName, ServerNames};
use crate::variables::VariableNames;

/// Whether a `listen` says which server is the default one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefaultServer {
    Unsaid,
    This,
}

/// The protocols at the beginning of connections to an address, before their first request: parameters of
/// `listen`. With both the header of the PROXY protocol comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protocols(u8);

impl Protocols {
    /// A header of the PROXY protocol (`proxy_protocol`).
    pub const PROXY_PROTOCOL: Self = Self(1);
    /// A handshake of TLS (`ssl`).
    pub const SSL: Self = Self(2);
    /// Clients may speak HTTP/2 with all servers of the address (`http2`).
    pub const HTTP2: Self = Self(4);
    /// No handshake, and perhaps the preface of HTTP/2: no parameter, but what follows from others.
    pub const PREFACE: Self = Self(8);

    /// Whether all of `others` are among these.
    #[inline]
    pub fn has(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Whether connections begin with their first request.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn or(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

/// Whether a module speaks TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ssl {
    /// `listen … ssl` is refused.
    Unknown,
    /// `listen … ssl` is accepted.
    Known,
}

impl Ssl {
    pub(crate) fn of<E: Engine>(modules: &[&'static Module<E>]) -> Self {
        if modules.iter().any(|module| module.role == Role::Ssl) { Self::Known } else { Self::Unknown }
    }
}

/// The options of one `listen`.
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    socket: bind::Options,
    own: OwnSocket,
    default_server: DefaultServer,
    protocols: Protocols,
}

impl ListenOptions {
    /// The settings of a server without `listen`.
    pub const NONE: fn() -> Self = || Self {
        socket: bind::Options::default(),
        own: OwnSocket::No,
        default_server: DefaultServer::Unsaid,
        protocols: Protocols::default(),
    };

    /// Reads what follows the address. What only other systems have is told to `warn`.
    pub fn parse(directive: &Directive, ssl: Ssl, mut warn: impl FnMut(Error)) -> Result<Self, Error> {
        let mut options = Self::NONE();
        for parameter in &directive.args[1..] {
            if parameter.starts_with(b"accept_filter=") {
                let text = Verbatim(parameter);
                let message =
                    format!("accept filters \"{text}\" are not supported on this platform, ignored");
                warn(directive.error(bytes_of(&message)).with_level(Level::Emerg));
            } else if *parameter == b"http2"[..] {
                options.protocols = options.protocols.or(Protocols::HTTP2);
                let message = "the \"listen ... http2\" directive is deprecated, \
                               use the \"http2\" directive instead";
                warn(directive.error(message).with_level(Level::Warn));
            } else {
                options.add(parameter, ssl).map_err(|message| directive.error(bytes_of(&message)))?;
            }
        }
        Ok(options)
    }

    fn add(&mut self, parameter: &[u8], ssl: Ssl) -> Result<(), String> {
        let text = || Verbatim(parameter);
        match parameter {
            b"default_server" | b"default" => {
                self.default_server = DefaultServer::This;
                return Ok(());
            }
            b"proxy_protocol" => {
                self.protocols = self.protocols.or(Protocols::PROXY_PROTOCOL);
                return Ok(());
            }
            b"ssl" if ssl == Ssl::Known => {
                self.protocols = self.protocols.or(Protocols::SSL);
                return Ok(());
            }
            b"bind" => {}
            b"deferred" => self.socket.tuning.deferred = true,
            b"reuseport" => self.socket.reuseport = true,
            b"multipath" => self.socket.transport = Transport::Multipath,
            _ => {
                if let Some(module) = module_of(parameter) {
                    return Err(format!("the \"{}\" parameter requires {module}", text()));
                }
                self.add_value(parameter)?;
            }
        }
        self.own = OwnSocket::Yes;
        Ok(())
    }

    /// Parameters with a value.
    fn add_value(&mut self, parameter: &[u8]) -> Result<(), String> {
        let text = Verbatim(parameter);
        let invalid = |what: &str| format!("invalid {what} \"{text}\"");
        let int = |number: Option<u64>| number.filter(|&number| i32::try_from(number).is_ok());
        let size = |text: &[u8]| int(units::parse_size(text)).map(|bytes| bytes as u32);
        let tuning = &mut self.socket.tuning;
        if let Some(number) = parameter.strip_prefix(b"backlog=") {
            let backlog = int(units::parse_number(number)).filter(|&backlog| backlog > 0);
            self.socket.backlog = backlog.ok_or_else(|| invalid("backlog"))? as i32;
        } else if let Some(number) = parameter.strip_prefix(b"fastopen=") {
            let queue = int(units::parse_number(number));
            tuning.fastopen = Some(queue.ok_or_else(|| invalid("fastopen"))? as u32);
        } else if let Some(bytes) = parameter.strip_prefix(b"rcvbuf=") {
            tuning.rcvbuf_bytes = Some(size(bytes).ok_or_else(|| invalid("rcvbuf"))?);
        } else if let Some(bytes) = parameter.strip_prefix(b"sndbuf=") {
            tuning.sndbuf_bytes = Some(size(bytes).ok_or_else(|| invalid("sndbuf"))?);
        } else if parameter.starts_with(b"ipv6only=o") {
            self.socket.ipv6only = match &parameter[10..] {
                b"n" => Ipv6Only::On,
                b"ff" => Ipv6Only::Off,
                _ => return Err(format!("invalid ipv6only flags \"{}\"", Verbatim(&parameter[9..]))),
            };
        } else if let Some(value) = parameter.strip_prefix(b"so_keepalive=") {
            tuning.keepalive = parse_keepalive(value)
                .ok_or_else(|| format!("invalid so_keepalive value: \"{}\"", Verbatim(&parameter[13..])))?;
        } else {
            return Err(invalid("parameter"));
        }
        Ok(())
    }
}

/// `on`, `off` or `[IDLE]:[INTERVAL]:[COUNT]`, of which at least one is not 0.
fn parse_keepalive(value: &[u8]) -> Option<Keepalive> {
    match value {
        b"on" => return Some(Keepalive::On { idle_s: 0, interval_s: 0, count: 0 }),
        b"off" => return Some(Keepalive::Off),
        _ => {}
    }
    let mut parts = value.splitn(3, |&byte| byte == b':');
    let mut part = || parts.next().unwrap_or_default();
    let int = |number: u64| i32::try_from(number).ok().map(|number| number as u32);
    let seconds = |text: &[u8]| match text {
        b"" => Some(0),
        text => int(units::parse_sec(text)?.as_secs()),
    };
    let (idle_s, interval_s) = (seconds(part())?, seconds(part())?);
    let count = match part() {
        b"" => 0,
        text => int(units::parse_number(text)?)?,
    };
    ((idle_s, interval_s, count) != (0, 0, 0)).then_some(Keepalive::On { idle_s, interval_s, count })
}

/// The module that a parameter would need.
fn module_of(parameter: &[u8]) -> Option<&'static str> {
    match parameter {
        b"ssl" => Some("ngx_http_ssl_module"),
        b"quic" => Some("ngx_http_v3_module"),
        _ => None,
    }
}

/// Addresses while a configuration is read.
#[derive(Default)]
pub(crate) struct Listens {
    entries: Vec<Entry>,
}

struct Entry {
    address: ListenAddr,
    options: ListenOptions,
    default_server: ServerId,
    servers: Vec<ServerId>,
    protocols: ProtocolNotes,
}

/// The protocols of an address for which several servers have parameters.
#[derive(Clone, Copy, Default)]
struct ProtocolNotes {
    /// The protocols that another `listen` of the same address has to have.
    expected: Option<Protocols>,
    /// Whether not all of them said the same.
    differ: bool,
}

impl ProtocolNotes {
    /// Notes what another `listen` says, `set` being whether it has options of its own socket. Whether it
    /// is worth a warning that some say so and others do not: the one with options of the socket, or the
    /// only one with more than the others, may well be the one that speaks for all.
    fn note(&mut self, before: ListenOptions, said: ListenOptions) -> bool {
        let (was, is) = (before.protocols, said.protocols);
        let is_set = said.own == OwnSocket::Yes;
        let same = is == was;
        let unexpected = self.expected.is_some_and(|expected| expected != is);
        let is_added = !was.has(is);
        let is_odd = match (same, is_added) {
            (true, _) => is_set && self.differ || unexpected,
            (_, true) => before.own == OwnSocket::Yes && !is_set || self.differ || !is.has(was),
            _ => is_set || unexpected,
        };
        self.expected = Some(if is_added { was } else { is });
        self.differ |= !same;
        is_odd
    }
}

impl Listens {
    /// Adds a server to an address. What is strange about it.
    pub(crate) fn add(
        &mut self,
        address: ListenAddr,
        options: ListenOptions,
        server: ServerId,
    ) -> Result<Option<String>, String> {
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.address == address) else {
            self.entries.push(Entry {
                address,
                options,
                default_server: server,
                servers: vec![server],
                protocols: ProtocolNotes::default(),
            });
            return Ok(None);
        };
        if entry.servers.contains(&server) {
            return Err(format!("a duplicate listen {address}"));
        }
        entry.servers.push(server);
        let before = entry.options;
        if options.own == OwnSocket::Yes {
            if before.own == OwnSocket::Yes {
                return Err(format!("duplicate listen options for {address}"));
            }
            entry.options = options;
            entry.options.default_server = before.default_server;
        }
        if options.default_server == DefaultServer::This {
            if before.default_server == DefaultServer::This {
                return Err(format!("a duplicate default server for {address}"));
            }
            entry.options.default_server = DefaultServer::This;
            entry.default_server = server;
        }
        let is_odd = entry.protocols.note(before, options);
        entry.options.protocols = before.protocols.or(options.protocols);
        Ok(is_odd.then(|| format!("protocol options redefined for {address}")))
    }

    /// Clients of an address without TLS may begin with the preface of HTTP/2 where its default server speaks
    /// that, or all of them do.
    pub(crate) fn note_preface(&mut self, speaks: impl Fn(ServerId) -> bool) {
        for entry in self.entries.iter_mut() {
            let protocols = entry.options.protocols;
            let is_spoken = protocols.has(Protocols::HTTP2) || speaks(entry.default_server);
            if is_spoken && !protocols.has(Protocols::SSL) {
                entry.options.protocols = protocols.or(Protocols::PREFACE);
            }
        }
    }

    /// The servers of each address with these protocols, the default one first.
    pub(crate) fn with(&self, protocols: Protocols) -> impl Iterator<Item = Vec<ServerId>> {
        let entries = self.entries.iter().filter(move |entry| entry.options.protocols.has(protocols));
        entries.map(|entry| {
            let others = entry.servers.iter().filter(|&&server| server != entry.default_server);
            std::iter::once(&entry.default_server).chain(others).copied().collect()
        })
    }

    /// Plans sockets, and gives each address the names of its servers.
    pub(crate) fn build<E: Engine>(self, names: &mut NameTables<'_, E>) -> Result<Vec<Socket>, Error> {
        let wanted: Vec<_> =
            self.entries.iter().map(|entry| (entry.address.clone(), entry.options.own)).collect();
        let plans = plan_sockets(&wanted);
        let mut tables = Vec::new();
        for entry in &self.entries {
            tables.push(Some(names.build(entry)?));
        }
        let sockets = plans.into_iter().map(|plan| Socket {
            options: self.entries[plan.bind].options.socket,
            addresses: plan
                .serves
                .iter()
                .map(|&index| Address {
                    text: self.entries[index].address.to_string().into(),
                    listen: self.entries[index].address.clone(),
                    default_server: self.entries[index].default_server,
                    protocols: self.entries[index].options.protocols,
                    names: tables[index].take().expect("an address is served by one socket"),
                })
                .collect(),
        });
        Ok(sockets.collect())
    }
}

/// The parts of which the tables of names are built.
pub(crate) struct NameTables<'a, E: Engine> {
    /// Arguments of `server_name` of each server.
    pub servers: &'a [Vec<bytes::Bytes>],
    pub hostname: &'a [u8],
    pub variables: &'a mut VariableNames<E>,
    pub warnings: &'a mut Vec<Error>,
}

impl<E: Engine> NameTables<'_, E> {
    fn build(&mut self, entry: &Entry) -> Result<ServerNames<ServerId>, Error> {
        let mut builder = server_names::Builder::new();
        let servers = self.servers;
        for &server in &entry.servers {
            let names = &servers[server.0 as usize];
            if entry.servers.len() == 1 && !names.iter().any(|name| name.starts_with(b"~")) {
                continue;
            }
            if names.is_empty() {
                self.add_name(&mut builder, b"", entry, server)?;
            }
            for name in names {
                match ServerName::parse(name, self.hostname) {
                    Ok((ServerName::Text(text), _)) => self.add_name(&mut builder, &text, entry, server)?,
                    Ok((ServerName::Regex(mut regex), _)) => {
                        self.variables.bind_again(&mut regex);
                        builder.add_regex(regex, server);
                    }
                    Err(error) => return Err(Error::unplaced(error.to_string())),
                }
            }
        }
        Ok(builder.build())
    }

    fn add_name(
        &mut self,
        builder: &mut server_names::Builder<ServerId>,
        name: &[u8],
        entry: &Entry,
        server: ServerId,
    ) -> Result<(), Error> {
        match builder.add(name, server) {
            Ok(Added::New) => {}
            Ok(Added::Conflicting) => {
                let message = server_names::conflict_message(name, &entry.address);
                self.warnings.push(Error::said(&message).with_level(Level::Warn));
            }
            Err(_) => {
                return Err(Error::said(&server_names::invalid_message(name, &entry.address)));
            }
        }
        Ok(())
    }
}

/// One socket to bind, and the addresses whose connections arrive there.
pub struct Socket {
    options: bind::Options,
    /// With more than one, the local address of a connection tells them apart; the last is the one that
    /// is bound, and for all others.
    addresses: Box<[Address]>,
}

/// An address that connections are made to.
pub struct Address {
    /// The address.
    pub listen: ListenAddr,
    /// As in messages.
    pub text: Box<str>,
    /// The server for hosts that no server of the address has.
    pub default_server: ServerId,
    /// The protocols at the beginning of connections.
    pub protocols: Protocols,
    /// Its servers by their names.
    pub names: ServerNames<ServerId>,
}

impl Socket {
    /// The request to bind.
    pub fn request(&self) -> bind::Request {
        bind::Request { address: self.bound().listen.clone(), options: self.options }
    }

    /// Whether several servers, or expressions, are told apart by the name of the host.
    pub fn has_names(&self) -> bool {
        self.addresses.iter().any(|address| !address.names.is_empty())
    }

    /// The address that is bound.
    pub fn bound(&self) -> &Address {
        self.addresses.last().expect("a socket is bound to an address")
    }

    /// Whether the local address of a connection has to be asked for.
    pub fn needs_local_address(&self) -> bool {
        self.addresses.len() > 1
    }

    /// The number of the address that a connection was made to.
    pub fn find(&self, local: Option<SocketAddr>) -> u32 {
        let others = &self.addresses[..self.addresses.len() - 1];
        let found = others.iter().position(|address| match (&address.listen, local) {
            (ListenAddr::Inet(listen), Some(local)) => *listen == local,
            _ => false,
        });
        u32::try_from(found.unwrap_or(others.len())).expect("a configuration is far smaller than 4 GiB")
    }

    /// How many addresses there are, which are numbered from 0; the last one is bound.
    pub fn address_count(&self) -> u32 {
        u32::try_from(self.addresses.len()).expect("a configuration is far smaller than 4 GiB")
    }

    /// The address with this number, as `find` gives it.
    pub fn address(&self, index: u32) -> &Address {
        &self.addresses[index as usize]
    }
}

/// The server's end of a connection.
#[derive(Clone, Copy, Debug)]
pub enum LocalAddress<'a> {
    /// IPv4 or IPv6.
    Inet(SocketAddr),
    /// The path of a unix socket.
    Unix(&'a [u8]),
}

impl<'a> LocalAddress<'a> {
    /// The address that a connection came to: the one asked of its socket, or the one listened on.
    pub fn new(asked: Option<SocketAddr>, address: &'a Address) -> Self {
        match &address.listen {
            ListenAddr::Inet(listen) => Self::Inet(asked.unwrap_or(*listen)),
            ListenAddr::Unix(path) => Self::Unix(path),
        }
    }

    /// Appends it without port; an IPv6 address without brackets (`$server_addr`).
    pub fn put_host(&self, out: &mut Vec<u8>) {
        match self {
            Self::Inet(SocketAddr::V4(address)) => put_ipv4(out, *address.ip()),
            Self::Inet(SocketAddr::V6(address)) => out.extend_from_slice(address.ip().to_string().as_bytes()),
            Self::Unix(path) => {
                out.extend_from_slice(b"unix:");
                out.extend_from_slice(path);
            }
        }
    }

    /// The port, where there is one (`$server_port`).
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Inet(address) => Some(address.port()),
            Self::Unix(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inet(text: &str) -> ListenAddr {
        ListenAddr::Inet(text.parse().unwrap())
    }

    #[test]
    fn an_address_without_its_port() {
        let text = |address: LocalAddress<'_>| {
            let mut out = Vec::new();
            address.put_host(&mut out);
            out
        };
        let inet = |text: &str| LocalAddress::Inet(text.parse().unwrap());
        assert_eq!(text(inet("127.0.0.1:80")), b"127.0.0.1");
        assert_eq!(text(inet("[::1]:80")), b"::1");
        assert_eq!(text(LocalAddress::Unix(b"/run/\xff.sock")), b"unix:/run/\xff.sock");
    }

    fn options(parameters: &[&str]) -> Result<ListenOptions, String> {
        let mut options = ListenOptions::NONE();
        parameters.iter().try_for_each(|parameter| options.add(parameter.as_bytes(), Ssl::Unknown))?;
        Ok(options)
    }

    #[test]
    fn parameters_and_their_messages() {
        let given = options(&["default_server", "backlog=16", "reuseport", "ipv6only=off"]).unwrap();
        assert_eq!(
            (given.socket.backlog, given.socket.reuseport, given.socket.ipv6only),
            (16, true, Ipv6Only::Off)
        );
        assert_eq!((given.own, given.default_server), (OwnSocket::Yes, DefaultServer::This));
        assert_eq!(options(&["default"]).unwrap().own, OwnSocket::No);
        for (parameter, message) in [
            ("backlog=0", "invalid backlog \"backlog=0\""),
            ("backlog=2147483648", "invalid backlog \"backlog=2147483648\""),
            ("ipv6only=ox", "invalid ipv6only flags \"ox\""),
            ("ipv6only=x", "invalid parameter \"ipv6only=x\""),
            ("fastopen=-1", "invalid fastopen \"fastopen=-1\""),
            ("rcvbuf=", "invalid rcvbuf \"rcvbuf=\""),
            ("sndbuf=1x", "invalid sndbuf \"sndbuf=1x\""),
            ("so_keepalive=", "invalid so_keepalive value: \"\""),
            ("so_keepalive=::", "invalid so_keepalive value: \"::\""),
            ("so_keepalive=::1:", "invalid so_keepalive value: \"::1:\""),
            ("so_keepalive=0:0:0", "invalid so_keepalive value: \"0:0:0\""),
            ("so_keepalive=1ms", "invalid so_keepalive value: \"1ms\""),
            ("setfib=1", "invalid parameter \"setfib=1\""),
            ("quic", "the \"quic\" parameter requires ngx_http_v3_module"),
            ("ssl", "the \"ssl\" parameter requires ngx_http_ssl_module"),
            ("fast", "invalid parameter \"fast\""),
        ] {
            assert_eq!(options(&[parameter]).unwrap_err(), message);
        }
    }

    #[test]
    fn parameters_of_the_socket() {
        let given = options(&["deferred", "multipath", "rcvbuf=8k", "sndbuf=1m", "fastopen=0"]).unwrap();
        let tuning = given.socket.tuning;
        assert_eq!((tuning.rcvbuf_bytes, tuning.sndbuf_bytes), (Some(8192), Some(1 << 20)));
        assert_eq!((tuning.fastopen, tuning.deferred), (Some(0), true));
        assert_eq!((given.socket.transport, given.own), (Transport::Multipath, OwnSocket::Yes));
        let given = options(&["proxy_protocol"]).unwrap();
        assert_eq!((given.protocols, given.own), (Protocols::PROXY_PROTOCOL, OwnSocket::No));
        let on = |idle_s, interval_s, count| Keepalive::On { idle_s, interval_s, count };
        for (value, keepalive) in [
            ("on", on(0, 0, 0)),
            ("off", Keepalive::Off),
            ("30m::10", on(1800, 0, 10)),
            ("1", on(1, 0, 0)),
            (":2", on(0, 2, 0)),
            ("::3", on(0, 0, 3)),
            ("1:2:3", on(1, 2, 3)),
        ] {
            let given = options(&[&format!("so_keepalive={value}")]).unwrap();
            assert_eq!(given.socket.tuning.keepalive, keepalive, "{value}");
        }
    }

    /// Several `listen` for one address: `b` has `bind`, `p` has `proxy_protocol`. The numbers of those that
    /// nginx 1.31.5 warns of.
    #[test]
    fn protocols_that_differ() {
        for (said, odd) in [
            ("p,", &[][..]),
            (",p", &[]),
            ("p,,", &[]),
            ("p,,p", &[2]),
            ("p,p,", &[2]),
            (",p,p", &[2]),
            (",p,", &[]),
            ("b,p", &[1]),
            (",bp", &[]),
            ("bp,", &[]),
            ("p,b", &[1]),
            ("p,bp", &[]),
        ] {
            let mut listens = Listens::default();
            let mut warned = Vec::new();
            for (at, letters) in said.split(',').enumerate() {
                let list = [("b", "bind"), ("p", "proxy_protocol")];
                let list: Vec<_> = list
                    .iter()
                    .filter(|(letter, _)| letters.contains(letter))
                    .map(|(_, word)| *word)
                    .collect();
                let server = ServerId(u32::try_from(at).unwrap());
                let added = listens.add(inet("0.0.0.0:80"), options(&list).unwrap(), server).unwrap();
                if let Some(warning) = added {
                    assert_eq!(warning, "protocol options redefined for 0.0.0.0:80");
                    warned.push(at);
                }
            }
            assert_eq!(warned, odd, "{said}");
            let proxied = listens.entries[0].options.protocols.has(Protocols::PROXY_PROTOCOL);
            assert_eq!(proxied, said.contains('p'), "{said}");
        }
    }

    #[test]
    fn the_same_address_again() {
        let mut listens = Listens::default();
        let plain = options(&[]).unwrap();
        let (one, two) = (ServerId(1), ServerId(2));
        listens.add(inet("0.0.0.0:80"), plain, one).unwrap();
        assert_eq!(listens.add(inet("0.0.0.0:80"), plain, one).unwrap_err(), "a duplicate listen 0.0.0.0:80");
        listens.add(inet("0.0.0.0:80"), options(&["backlog=5", "default"]).unwrap(), two).unwrap();
        assert_eq!(listens.entries[0].default_server, two);
        let again = options(&["backlog=6"]).unwrap();
        let message = listens.add(inet("0.0.0.0:80"), again, ServerId(3)).unwrap_err();
        assert_eq!(message, "duplicate listen options for 0.0.0.0:80");
        let again = options(&["default_server"]).unwrap();
        let message = listens.add(inet("0.0.0.0:80"), again, ServerId(4)).unwrap_err();
        assert_eq!(message, "a duplicate default server for 0.0.0.0:80");
    }
}
