//! `large`: a configuration of thousands of servers with fifty locations each. How long a test of it takes, a
//! start until the first answer, and a reload until the first answer of the new one; memory; and what a
//! request costs on it, beside one server alone.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clearway_testkit::Product;
use clearway_testkit::process::{cpu_time_of_threads, family, pss_bytes};
use rustix::process::{Pid, Signal, kill_process};

use crate::args::Args;
use crate::servers::{self, Named};

/// Locations of a server.
const LOCATIONS: usize = 50;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// The time between two looks.
const STEP: Duration = Duration::from_millis(20);

pub(crate) fn command(mut args: Args) -> Result<(), String> {
    let servers = servers::named(&args.words())?;
    let count: usize = args.take("count", 10_000)?;
    let requests: usize = args.take("requests", 20_000)?;
    args.finish()?;
    println!("{count} servers with {LOCATIONS} locations each");
    for server in &servers {
        measure(server, count, requests).map_err(|e| format!("{}: {e}", server.name))?;
    }
    Ok(())
}

fn measure(server: &Named, count: usize, requests: usize) -> Result<(), String> {
    let large = BenchDirectory::new(server, count)?;
    let tested = large.test()?;
    let begun = Instant::now();
    let running = large.start()?;
    large.wait_for("ok")?;
    let started = begun.elapsed();
    let pss: u64 = running.family().into_iter().map(pss_bytes).sum();
    let all = cost(&running, large.address, requests, |n| n * 7919 % count)?;
    let one = cost(&running, large.address, requests, |_| count / 2)?;
    large.write("v2")?;
    let begun = Instant::now();
    running.signal(Signal::HUP)?;
    large.wait_for("v2")?;
    let reloaded = begun.elapsed();
    drop(running);
    let small = BenchDirectory::new(server, 1)?;
    let running = small.start()?;
    small.wait_for("ok")?;
    let alone = cost(&running, small.address, requests, |_| 0)?;
    println!(
        "{:<12} -t {:.2} s, start {:.2} s, reload {:.2} s, {} MiB; CPU of a request, us: one server alone \
         {alone:.2}, one of all {one:.2}, all in turn {all:.2}",
        server.name,
        tested.as_secs_f64(),
        started.as_secs_f64(),
        reloaded.as_secs_f64(),
        pss >> 20,
    );
    Ok(())
}

/// A directory with a configuration; removed at the end.
struct BenchDirectory<'a> {
    server: &'a Named,
    count: usize,
    directory: PathBuf,
    address: SocketAddr,
}

impl<'a> BenchDirectory<'a> {
    fn new(server: &'a Named, count: usize) -> Result<Self, String> {
        let name = format!("clearway-bench-{}-{}-{count}", std::process::id(), server.name);
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(directory.join("logs")).map_err(|e| format!("{}: {e}", directory.display()))?;
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        let address = listener.local_addr().map_err(|e| e.to_string())?;
        let place = Self { server, count, directory, address };
        place.write("ok")?;
        Ok(place)
    }

    fn file(&self) -> PathBuf {
        self.directory.join("nginx.conf")
    }

    fn write(&self, answer: &str) -> Result<(), String> {
        let text = configuration(self.server.binary.product, self.count, self.address, answer);
        fs::write(self.file(), text).map_err(|e| format!("{}: {e}", self.file().display()))
    }

    fn program(&self) -> Command {
        let mut command = Command::new(&self.server.binary.path);
        command.arg("-p").arg(&self.directory).arg("-c").arg(self.file()).stderr(Stdio::null());
        command
    }

    fn test(&self) -> Result<Duration, String> {
        let begun = Instant::now();
        let status = self.program().arg("-t").status().map_err(|e| e.to_string())?;
        if status.success() { Ok(begun.elapsed()) } else { Err("-t fails".to_owned()) }
    }

    fn start(&self) -> Result<Running, String> {
        Ok(Running(self.program().spawn().map_err(|e| e.to_string())?))
    }

    /// Asks on new connections until this is the answer.
    fn wait_for(&self, answer: &str) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if asked_once(self.address).is_ok_and(|text| text.ends_with(answer)) {
                return Ok(());
            }
            std::thread::sleep(STEP);
        }
        Err(format!("no {answer} within {PATIENCE:?}"))
    }
}

impl Drop for BenchDirectory<'_> {
    fn drop(&mut self) {
        // What stays is in the directory for such things.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A server; ended at the end.
struct Running(Child);

impl Running {
    fn family(&self) -> Vec<u32> {
        family(self.0.id())
    }

    fn signal(&self, signal: Signal) -> Result<(), String> {
        kill_process(Pid::from_child(&self.0), signal).map_err(|e| e.to_string())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.signal(Signal::TERM);
        let _ = self.0.wait();
    }
}

fn asked_once(address: SocketAddr) -> std::io::Result<String> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.write_all(b"GET /exact1 HTTP/1.1\r\nHost: s0.example.com\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    connection.read_to_string(&mut text)?;
    Ok(text)
}

/// CPU of the server for a request to a location of the server that `which` says, microseconds.
fn cost(
    running: &Running,
    address: SocketAddr,
    requests: usize,
    which: impl Fn(usize) -> usize,
) -> Result<f64, String> {
    let failed = |e: std::io::Error| e.to_string();
    let mut connection = TcpStream::connect(address).map_err(failed)?;
    let mut ask = |number: usize| -> std::io::Result<()> {
        let (server, location) = (which(number), 5 * (number % (LOCATIONS / 5)) + 1);
        let text = format!("GET /exact{location} HTTP/1.1\r\nHost: s{server}.example.com\r\n\r\n");
        connection.write_all(text.as_bytes())?;
        let received = connection.read(&mut [0; 4096])?;
        if received == 0 { Err(std::io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    };
    let cpu = || running.family().into_iter().map(cpu_time_of_threads).sum::<Duration>();
    (0..requests / 10).try_for_each(&mut ask).map_err(failed)?;
    let before = cpu();
    (0..requests).try_for_each(&mut ask).map_err(failed)?;
    Ok(cpu().saturating_sub(before).as_secs_f64() * 1e6 / requests as f64)
}

fn configuration(product: Product, count: usize, address: SocketAddr, answer: &str) -> String {
    let tables = match product {
        Product::Nginx => "server_names_hash_max_size 65536; server_names_hash_bucket_size 128;",
        Product::Clearway => "",
    };
    let mut text = format!(
        "daemon off; worker_processes 1; pid nginx.pid; error_log logs/error.log;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; keepalive_requests 1000000000; keepalive_timeout 1h; keepalive_time 1d; \
         {tables}\n"
    );
    for server in 0..count {
        text.push_str(&format!(
            "server {{ listen {address}; server_name s{server}.example.com www.s{server}.example.com; \
             root /srv/www/s{server};\n"
        ));
        (0..LOCATIONS).for_each(|number| text.push_str(&location(number, answer)));
        text.push_str("}\n");
    }
    text.push_str("}\n");
    text
}

/// One of five kinds.
fn location(number: usize, answer: &str) -> String {
    match number % 5 {
        0 => format!(" location /loc{number}/ {{ expires 1h; add_header X-A b{number}; }}\n"),
        1 => format!(" location = /exact{number} {{ return 200 {answer}; }}\n"),
        2 => format!(
            " location /static{number} {{ alias /srv/static/{number}; try_files $uri $uri/ =404; }}\n"
        ),
        3 => format!(" location /rw{number}/ {{ rewrite ^/rw{number}/(.*)$ /loc0/$1 break; }}\n"),
        _ => format!(" location /x{number}/ {{ index index.html index.htm; error_page 404 /404.html; }}\n"),
    }
}
