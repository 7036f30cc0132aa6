//! `idle`: how much memory (PSS) a server needs for each keep-alive connection that has had one answer
//! and says nothing more.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clearway_testkit::Server;
use clearway_testkit::process::pss_bytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::args::Args;
use crate::connection::{Connection, Progress, request};
use crate::poller::Poller;
use crate::servers::{self, User, config, socket_address, total};

/// For the server to put away what it needed while it answered.
pub(crate) const SETTLE: Duration = Duration::from_secs(2);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn command(mut args: Args) -> Result<(), String> {
    let servers = servers::named(&args.words())?;
    let count: usize = args.take("connections", 10_000)?;
    let tls: bool = args.take("tls", false)?;
    args.finish()?;
    if tls {
        return with_tls(&servers, count);
    }
    raise_descriptor_limit().map_err(|e| format!("RLIMIT_NOFILE: {e}"))?;
    println!("{count} idle connections: PSS in KiB for each, and of the server in MiB before and after");
    for server in &servers {
        let running = servers::start(&server.binary, &config(1, "", ""), User::Same, None);
        let to = socket_address(&running);
        print_row(&server.name, &running, count, |count| answered(to, count))?;
    }
    Ok(())
}

/// Measures one server: a row of the table.
fn print_row<C>(
    name: &str,
    running: &Server,
    count: usize,
    open: impl Fn(usize) -> io::Result<Vec<C>>,
) -> Result<(), String> {
    let failed = |e: io::Error| format!("{name}: {e}");
    // Memory that the first requests of all need belongs to no connection.
    drop(open(64).map_err(failed)?);
    std::thread::sleep(SETTLE);
    let before = total(running, pss_bytes);
    let connections = open(count).map_err(failed)?;
    std::thread::sleep(SETTLE);
    let after = total(running, pss_bytes);
    let each = after.saturating_sub(before) as f64 / connections.len() as f64 / 1024.0;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!("{name:<12} {each:>6.3}   {:.1} -> {:.1}", mib(before), mib(after));
    Ok(())
}

/// The same with TLS 1.3. A client keeps its socket and nothing else.
fn with_tls(servers: &[servers::Named], count: usize) -> Result<(), String> {
    raise_descriptor_limit().map_err(|e| format!("RLIMIT_NOFILE: {e}"))?;
    println!(
        "{count} idle connections with TLS: PSS in KiB for each, and of the server in MiB before and after"
    );
    for server in servers {
        let running = crate::handshakes::start_one(&server.binary);
        print_row(&server.name, &running, count, |count| {
            (0..count).map(|_| crate::handshakes::answered(&running)).collect()
        })?;
    }
    Ok(())
}

/// Opens connections and has one request answered on each.
fn answered(to: SocketAddr, count: usize) -> io::Result<Vec<Connection>> {
    let request = request("/cheap", "keep-alive");
    (0..count)
        .map(|_| {
            let mut poller = Poller::new()?;
            let mut connection = Connection::open(to)?;
            poller.add(&connection, 0)?;
            connection.send(&request)?;
            loop {
                if poller.wait(PATIENCE)?.next().is_none() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                match connection.receive()? {
                    Progress::Answered => return Ok(connection),
                    Progress::Partial => {}
                    Progress::Refused | Progress::Closed => return Err(io::Error::other("not answered")),
                }
            }
        })
        .collect()
}

/// To the hard limit; the server inherits it.
pub(crate) fn raise_descriptor_limit() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?)
}
