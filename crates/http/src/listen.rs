//! Addresses to listen on: the options of `listen`, how several of them for one address combine, and
//! which server answers there. Built at boot or reload with nginx's messages, immutable afterwards.

use std::fmt;
use std::net::SocketAddr;

use clearway_base::log::Level;
use clearway_base::units;
use clearway_conf::{Directive, Error};
use clearway_net::bind;
use clearway_net::listen::{ListenAddr, OwnSocket, plan_sockets};

use crate::server_names::{self, Added, ServerName, ServerNames};
use crate::snapshot::ServerId;
use crate::variables::VariableNames;

/// Whether a `listen` says which server is the default one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefaultServer {
    Unsaid,
    This,
}

/// The options of one `listen`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenOptions {
    socket: bind::Options,
    own: OwnSocket,
    default_server: DefaultServer,
}

impl ListenOptions {
    /// Those of a server without `listen`.
    pub(crate) const NONE: fn() -> Self = || Self {
        socket: bind::Options::default(),
        own: OwnSocket::No,
        default_server: DefaultServer::Unsaid,
    };

    /// Reads what follows the address.
    pub(crate) fn parse(directive: &Directive) -> Result<Self, Error> {
        let mut options = Self::NONE();
        for parameter in &directive.args[1..] {
            options.add(parameter).map_err(|message| directive.error(message))?;
        }
        Ok(options)
    }

    fn add(&mut self, parameter: &[u8]) -> Result<(), String> {
        if matches!(parameter, b"default_server" | b"default") {
            self.default_server = DefaultServer::This;
            return Ok(());
        }
        let text = || String::from_utf8_lossy(parameter);
        if let Some(number) = parameter.strip_prefix(b"backlog=") {
            let backlog = units::parse_number(number).and_then(|number| i32::try_from(number).ok());
            let backlog = backlog.filter(|&backlog| backlog > 0);
            self.socket.backlog = backlog.ok_or_else(|| format!("invalid backlog \"{}\"", text()))?;
        } else if parameter.starts_with(b"ipv6only=o") {
            self.socket.ipv6only = match &parameter[10..] {
                b"n" => true,
                b"ff" => false,
                _ => return Err(format!("invalid ipv6only flags \"{}\"", &text()[9..])),
            };
        } else if parameter == b"reuseport" {
            self.socket.reuseport = true;
        } else if let Some(module) = module_of(parameter) {
            return Err(format!("the \"{}\" parameter requires {module}", text()));
        } else if parameter != b"bind" {
            return Err(format!("invalid parameter \"{}\"", text()));
        }
        self.own = OwnSocket::Yes;
        Ok(())
    }
}

/// The module that a parameter would need.
fn module_of(parameter: &[u8]) -> Option<&'static str> {
    match parameter {
        b"ssl" => Some("ngx_http_ssl_module"),
        b"http2" => Some("ngx_http_v2_module"),
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
}

impl Listens {
    /// Adds a server to an address.
    pub(crate) fn add(
        &mut self,
        address: ListenAddr,
        options: ListenOptions,
        server: ServerId,
    ) -> Result<(), String> {
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.address == address) else {
            self.entries.push(Entry { address, options, default_server: server, servers: vec![server] });
            return Ok(());
        };
        if entry.servers.contains(&server) {
            return Err(format!("a duplicate listen {address}"));
        }
        entry.servers.push(server);
        let is_default = entry.options.default_server;
        if options.own == OwnSocket::Yes {
            if entry.options.own == OwnSocket::Yes {
                return Err(format!("duplicate listen options for {address}"));
            }
            entry.options = options;
            entry.options.default_server = is_default;
        }
        if options.default_server == DefaultServer::This {
            if is_default == DefaultServer::This {
                return Err(format!("a duplicate default server for {address}"));
            }
            entry.options.default_server = DefaultServer::This;
            entry.default_server = server;
        }
        Ok(())
    }

    /// Plans sockets, and gives each address the names of its servers.
    pub(crate) fn build(self, names: &mut NameTables<'_>) -> Result<Vec<Socket>, Error> {
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
                    names: tables[index].take().expect("an address is served by one socket"),
                })
                .collect(),
        });
        Ok(sockets.collect())
    }
}

/// What is needed to build the tables of names.
pub(crate) struct NameTables<'a> {
    /// Arguments of `server_name` of each server.
    pub(crate) servers: &'a [Vec<bytes::Bytes>],
    pub(crate) hostname: &'a [u8],
    pub(crate) variables: &'a mut VariableNames,
    pub(crate) warnings: &'a mut Vec<Error>,
}

impl NameTables<'_> {
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
                self.warnings.push(Error::unplaced(message).with_level(Level::Warn));
            }
            Err(_) => {
                return Err(Error::unplaced(server_names::invalid_message(name, &entry.address)));
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
pub(crate) struct Address {
    pub(crate) listen: ListenAddr,
    /// As in messages.
    pub(crate) text: Box<str>,
    pub(crate) default_server: ServerId,
    pub(crate) names: ServerNames<ServerId>,
}

impl Socket {
    /// What to bind.
    pub fn request(&self) -> bind::Request {
        bind::Request { address: self.bound().listen.clone(), options: self.options }
    }

    /// The address that is bound.
    pub(crate) fn bound(&self) -> &Address {
        self.addresses.last().expect("a socket is bound to an address")
    }

    /// Whether the local address of a connection has to be asked for.
    pub(crate) fn needs_local_address(&self) -> bool {
        self.addresses.len() > 1
    }

    /// The number of the address that a connection was made to.
    pub(crate) fn find(&self, local: Option<SocketAddr>) -> u32 {
        let others = &self.addresses[..self.addresses.len() - 1];
        let found = others.iter().position(|address| match (&address.listen, local) {
            (ListenAddr::Inet(listen), Some(local)) => *listen == local,
            _ => false,
        });
        u32::try_from(found.unwrap_or(others.len())).expect("a configuration is far smaller than 4 GiB")
    }

    pub(crate) fn address(&self, index: u32) -> &Address {
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
    pub(crate) fn new(asked: Option<SocketAddr>, address: &'a Address) -> Self {
        match &address.listen {
            ListenAddr::Inet(listen) => Self::Inet(asked.unwrap_or(*listen)),
            ListenAddr::Unix(path) => Self::Unix(path),
        }
    }

    /// Without port; an IPv6 address without brackets (`$server_addr`).
    pub fn host(&self) -> impl fmt::Display {
        match self {
            Self::Inet(address) => address.ip().to_string(),
            Self::Unix(path) => format!("unix:{}", String::from_utf8_lossy(path)),
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

    fn options(parameters: &[&str]) -> Result<ListenOptions, String> {
        let mut options = ListenOptions::NONE();
        parameters.iter().try_for_each(|parameter| options.add(parameter.as_bytes()))?;
        Ok(options)
    }

    #[test]
    fn parameters_and_their_messages() {
        let given = options(&["default_server", "backlog=16", "reuseport", "ipv6only=off"]).unwrap();
        assert_eq!((given.socket.backlog, given.socket.reuseport, given.socket.ipv6only), (16, true, false));
        assert_eq!((given.own, given.default_server), (OwnSocket::Yes, DefaultServer::This));
        assert_eq!(options(&["default"]).unwrap().own, OwnSocket::No);
        for (parameter, message) in [
            ("backlog=0", "invalid backlog \"backlog=0\""),
            ("ipv6only=ox", "invalid ipv6only flags \"ox\""),
            ("ssl", "the \"ssl\" parameter requires ngx_http_ssl_module"),
            ("fast", "invalid parameter \"fast\""),
        ] {
            assert_eq!(options(&[parameter]).unwrap_err(), message);
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
