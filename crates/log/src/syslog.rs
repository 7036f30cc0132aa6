//! Logs that go to a syslog server: what `syslog:…` of a configuration says, and the datagrams, in
//! nginx's form of RFC 3164. Parsed at boot, where names are looked up; headers are written on the
//! thread that logs; sockets belong to the writer, never wait, and are made anew after an error.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use clearway_base::date::access_log_time;
use clearway_base::log::{Level, Verbatim};
use clearway_base::{Errno, units};

use crate::chunk::{Chunk, Report};
use crate::metrics::LINES_UNWRITTEN;

/// The port of a server without one.
const PORT_DEFAULT: u16 = 514;
/// Longest tag in bytes (RFC 3164).
const TAG_BYTES_MAX: usize = 32;
/// Longest path of a unix socket in bytes.
const UNIX_PATH_BYTES_MAX: usize = 107;
/// Number of `local7`.
const FACILITY_DEFAULT: u8 = 23;

/// The facilities by their numbers.
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "intern", "lpr", "news", "uucp", "clock", "authpriv", "ftp",
    "ntp", "audit", "alert", "cron", "local0", "local1", "local2", "local3", "local4", "local5", "local6",
    "local7",
];

/// The parameters in `syslog:server=…,facility=…,severity=…,tag=…,nohostname`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    server: Server,
    facility: u8,
    severity: Level,
    tag: Vec<u8>,
    /// `None` with `nohostname`.
    hostname: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Server {
    Udp(SocketAddr),
    Unix(PathBuf),
}

impl Config {
    /// Reads a target of `access_log` or `error_log`, `syslog:` included. Asks the resolver where the
    /// server has a name: **blocks**.
    ///
    /// # Errors
    /// nginx's message about it.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let mut given = Given::default();
        let options = text.strip_prefix(b"syslog:").unwrap_or(text);
        options.split(|&byte| byte == b',').try_for_each(|option| given.take(option))?;
        let hostname = || clearway_os::process::hostname().to_ascii_lowercase();
        Ok(Self {
            server: given.server.ok_or("no syslog server specified")?,
            facility: given.facility.unwrap_or(FACILITY_DEFAULT),
            severity: given.severity.unwrap_or(Level::Info),
            tag: given.tag.unwrap_or_else(|| b"nginx".to_vec()),
            hostname: given.nohostname.is_none().then(hostname),
        })
    }

    /// Room that a header may need, bytes.
    pub(crate) fn header_bytes_max(&self) -> usize {
        "<255>Jan 01 00:00:00 ".len()
            + self.hostname.as_ref().map_or(0, |name| name.len() + 1)
            + self.tag.len()
            + ": ".len()
    }

    /// Appends `<PRI>Mon dd hh:mm:ss host tag: `; without a level the one of the configuration holds.
    pub(crate) fn put_header(
        &self,
        level: Option<Level>,
        unix_seconds: i64,
        offset_minutes: i32,
        out: &mut Vec<u8>,
    ) {
        let severity = (level.unwrap_or(self.severity) as u8).saturating_sub(1);
        out.extend_from_slice(format!("<{}>", self.facility * 8 + severity).as_bytes());
        // dd/Mon/yyyy:hh:mm:ss
        let time = access_log_time(unix_seconds, offset_minutes);
        let tens = if time[0] == b'0' { b' ' } else { time[0] };
        out.extend_from_slice(&time[3..6]);
        out.extend_from_slice(&[b' ', tens, time[1], b' ']);
        out.extend_from_slice(&time[12..20]);
        out.push(b' ');
        if let Some(hostname) = &self.hostname {
            out.extend_from_slice(hostname);
            out.push(b' ');
        }
        out.extend_from_slice(&self.tag);
        out.extend_from_slice(b": ");
    }
}

/// The options that were read so far.
#[derive(Default)]
struct Given {
    server: Option<Server>,
    facility: Option<u8>,
    severity: Option<Level>,
    tag: Option<Vec<u8>>,
    nohostname: Option<()>,
}

impl Given {
    fn take(&mut self, option: &[u8]) -> Result<(), String> {
        let text = Verbatim;
        if let Some(value) = option.strip_prefix(b"server=") {
            refuse_second(&self.server, "server")?;
            let refuse = |reason| format!("{reason} in syslog server \"{}\"", text(value));
            self.server = Some(parse_server(value).map_err(refuse)?);
        } else if let Some(value) = option.strip_prefix(b"facility=") {
            refuse_second(&self.facility, "facility")?;
            let number = (0..).zip(FACILITIES).find(|(_, name)| name.as_bytes() == value);
            let (number, _) = number.ok_or_else(|| format!("unknown syslog facility \"{}\"", text(value)))?;
            self.facility = Some(number);
        } else if let Some(value) = option.strip_prefix(b"severity=") {
            refuse_second(&self.severity, "severity")?;
            let level = Level::from_name(value);
            self.severity =
                Some(level.ok_or_else(|| format!("unknown syslog severity \"{}\"", text(value)))?);
        } else if let Some(value) = option.strip_prefix(b"tag=") {
            refuse_second(&self.tag, "tag")?;
            self.tag = Some(parse_tag(value)?);
        } else if option == b"nohostname" {
            self.nohostname = Some(());
        } else {
            return Err(format!("unknown syslog parameter \"{}\"", text(option)));
        }
        Ok(())
    }
}

fn refuse_second<T>(given: &Option<T>, name: &str) -> Result<(), String> {
    if given.is_some() { Err(format!("duplicate syslog \"{name}\"")) } else { Ok(()) }
}

fn parse_tag(tag: &[u8]) -> Result<Vec<u8>, String> {
    if tag.len() > TAG_BYTES_MAX {
        return Err(format!("syslog tag length exceeds {TAG_BYTES_MAX}"));
    }
    if !tag.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
        return Err("syslog \"tag\" only allows alphanumeric characters and underscore".to_owned());
    }
    Ok(tag.to_vec())
}

/// `HOST[:PORT]`, `[IPV6][:PORT]` or `unix:PATH`.
fn parse_server(text: &[u8]) -> Result<Server, &'static str> {
    if text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"unix:")) {
        return match text[5..].len() {
            0 => Err("no path in the unix domain socket"),
            1..=UNIX_PATH_BYTES_MAX => {
                Ok(Server::Unix(Path::new(std::ffi::OsStr::from_bytes(&text[5..])).to_owned()))
            }
            _ => Err("too long path in the unix domain socket"),
        };
    }
    if let Some(inside) = text.strip_prefix(b"[") {
        let end = inside.iter().position(|&byte| byte == b']').ok_or("invalid host")?;
        let port = match &inside[end + 1..] {
            [] => PORT_DEFAULT,
            [b':', port @ ..] if !port.contains(&b'/') => parse_port(port)?,
            _ => return Err("invalid host"),
        };
        if end == 0 {
            return Err("no host");
        }
        let address = std::str::from_utf8(&inside[..end]).ok().and_then(|text| text.parse().ok());
        let address: std::net::Ipv6Addr = address.ok_or("invalid IPv6 address")?;
        return Ok(Server::Udp((address, port).into()));
    }
    if text.iter().any(|byte| matches!(byte, b'/' | b'?')) {
        return Err("invalid host");
    }
    let (host, port) = match text.iter().position(|&byte| byte == b':') {
        Some(colon) => (&text[..colon], parse_port(&text[colon + 1..])?),
        None => (text, PORT_DEFAULT),
    };
    if host.is_empty() {
        return Err("no host");
    }
    let host = std::str::from_utf8(host).map_err(|_| "host not found")?;
    if let Ok(address) = host.parse::<std::net::Ipv4Addr>() {
        return Ok(Server::Udp((address, port).into()));
    }
    #[expect(clippy::disallowed_methods, reason = "configuration is loaded off the loops")]
    let mut found = std::net::ToSocketAddrs::to_socket_addrs(&(host, port)).map_err(|_| "host not found")?;
    found.next().map(Server::Udp).ok_or("host not found")
}

fn parse_port(text: &[u8]) -> Result<u16, &'static str> {
    let port = units::parse_number(text).and_then(|port| u16::try_from(port).ok());
    port.filter(|&port| port > 0).ok_or("invalid port")
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", Verbatim::path(path)),
        }
    }
}

/// The writer's side of a syslog server.
#[derive(Debug)]
pub(crate) struct Peer {
    server: Server,
    socket: Option<DatagramSocket>,
    /// The second in which a failure was reported last.
    told_s: Option<u64>,
}

#[derive(Debug)]
enum DatagramSocket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

impl Peer {
    pub(crate) fn new(config: &Config) -> Self {
        Self { server: config.server.clone(), socket: None, told_s: None }
    }

    /// Sends each line as a datagram. What the socket does not take at once is lost, and counted; after
    /// an error the next line gets a new socket. Failures are reported at most once a second.
    pub(crate) fn write(&mut self, chunks: &[Chunk], now_s: u64, reports: &mut Vec<Report>) {
        for line in chunks.iter().flat_map(Chunk::lines) {
            let Err((call, error)) = self.send_one(line) else { continue };
            LINES_UNWRITTEN.increment();
            if error.kind() == io::ErrorKind::WouldBlock {
                continue;
            }
            self.socket = None;
            if self.told_s.replace(now_s) != Some(now_s) {
                let errno = error.raw_os_error();
                let (error, server) = (Errno(&error), &self.server);
                let text = format!("{call}() failed {error} while logging to syslog, server: {server}");
                reports.push(Report { level: level(call, errno), text });
            }
        }
    }

    fn send_one(&mut self, line: &[u8]) -> Result<(), (&'static str, io::Error)> {
        let socket = match &mut self.socket {
            Some(socket) => socket,
            none => none.insert(DatagramSocket::connect(&self.server)?),
        };
        let sent = match socket {
            DatagramSocket::Udp(socket) => socket.send(line),
            DatagramSocket::Unix(socket) => socket.send(line),
        };
        sent.map(drop).map_err(|error| ("send", error))
    }
}

/// A server that is not there is the server's trouble, everything else is ours.
fn level(call: &str, errno: Option<i32>) -> Level {
    /// EPIPE, ENETDOWN, ENETUNREACH, ECONNRESET, ENOTCONN, ETIMEDOUT, ECONNREFUSED, EHOSTDOWN,
    /// EHOSTUNREACH
    const ABSENT: [i32; 9] = [32, 100, 101, 104, 107, 110, 111, 112, 113];
    if call == "send" && errno.is_some_and(|code| ABSENT.contains(&code)) {
        Level::Error
    } else {
        Level::Alert
    }
}

impl DatagramSocket {
    fn connect(server: &Server) -> Result<Self, (&'static str, io::Error)> {
        match server {
            Server::Udp(address) => {
                let any: SocketAddr = match address {
                    SocketAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
                    SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
                };
                let socket = UdpSocket::bind(any).map_err(|error| ("socket", error))?;
                socket.set_nonblocking(true).map_err(|error| ("ioctl(FIONBIO)", error))?;
                socket.connect(address).map_err(|error| ("connect", error))?;
                Ok(Self::Udp(socket))
            }
            Server::Unix(path) => {
                let socket = UnixDatagram::unbound().map_err(|error| ("socket", error))?;
                socket.set_nonblocking(true).map_err(|error| ("ioctl(FIONBIO)", error))?;
                socket.connect(path).map_err(|error| ("connect", error))?;
                Ok(Self::Unix(socket))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_defaults() {
        let config = Config::parse(b"syslog:server=127.0.0.1").unwrap();
        assert_eq!(config.server.to_string(), "127.0.0.1:514");
        assert_eq!((config.facility, config.severity, &config.tag[..]), (23, Level::Info, &b"nginx"[..]));
        assert!(config.hostname.is_some());
        let text = b"syslog:severity=alert,server=[::1]:1514,facility=user,tag=A_1,nohostname";
        let config = Config::parse(text).unwrap();
        assert_eq!(config.server.to_string(), "[::1]:1514");
        assert_eq!((config.facility, config.severity, &config.tag[..]), (1, Level::Alert, &b"A_1"[..]));
        assert_eq!(config.hostname, None);
        let unix = Config::parse(b"syslog:server=unix:/dev/log").unwrap();
        assert_eq!(unix.server.to_string(), "unix:/dev/log");
        assert!(Config::parse(b"syslog:server=localhost:99").is_ok());
    }

    #[test]
    fn refusals_in_the_words_of_nginx() {
        for (text, message) in [
            ("syslog:", "unknown syslog parameter \"\""),
            ("syslog:nohostname", "no syslog server specified"),
            ("syslog:server=a,server=", "host not found in syslog server \"a\""),
            ("syslog:server=127.0.0.1,server=1", "duplicate syslog \"server\""),
            ("syslog:server=", "no host in syslog server \"\""),
            ("syslog:server=:1", "no host in syslog server \":1\""),
            ("syslog:server=127.0.0.1:0", "invalid port in syslog server \"127.0.0.1:0\""),
            ("syslog:server=127.0.0.1:x", "invalid port in syslog server \"127.0.0.1:x\""),
            ("syslog:server=127.0.0.1/x", "invalid host in syslog server \"127.0.0.1/x\""),
            ("syslog:server=[::1", "invalid host in syslog server \"[::1\""),
            ("syslog:server=[::1]x", "invalid host in syslog server \"[::1]x\""),
            ("syslog:server=[]", "no host in syslog server \"[]\""),
            ("syslog:server=[1]", "invalid IPv6 address in syslog server \"[1]\""),
            ("syslog:server=unix:", "no path in the unix domain socket in syslog server \"unix:\""),
            ("syslog:facility=x", "unknown syslog facility \"x\""),
            ("syslog:facility=user,facility=user", "duplicate syslog \"facility\""),
            ("syslog:severity=err", "unknown syslog severity \"err\""),
            ("syslog:severity=warn,severity=warn", "duplicate syslog \"severity\""),
            ("syslog:tag=a,tag=b", "duplicate syslog \"tag\""),
            ("syslog:tag=a-b", "syslog \"tag\" only allows alphanumeric characters and underscore"),
            ("syslog:tag=123456789012345678901234567890123", "syslog tag length exceeds 32"),
            ("syslog:server=127.0.0.1,nohostnam", "unknown syslog parameter \"nohostnam\""),
        ] {
            assert_eq!(Config::parse(text.as_bytes()).unwrap_err(), message, "{text}");
        }
    }

    #[test]
    fn headers() {
        let mut config = Config::parse(b"syslog:server=127.0.0.1,tag=t,facility=local0").unwrap();
        config.hostname = Some(b"host".to_vec());
        let mut out = Vec::new();
        config.put_header(None, 1_706_745_599, 0, &mut out);
        config.hostname = None;
        config.put_header(Some(Level::Emerg), 1_704_067_200, 60, &mut out);
        assert_eq!(out, b"<134>Jan 31 23:59:59 host t: <128>Jan  1 01:00:00 t: ");
    }
}
