//! `gateways`: CPU per request of requests that PHP-FPM and memcached answer over unix sockets. These run on
//! the core of the clients, and what they use is not counted.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clearway_testkit::{Server, wait_until};

use crate::args::Args;
use crate::closed::{End, Load, Next};
use crate::connection::request;
use crate::cpu::{CLIENT_CORE, CONNECTIONS, SERVER_CORES, repeat};
use crate::servers::{self, Named, User, config_with, socket_address};

/// Clients of each server in front of FPM, which has two processes for each: kept connections occupy them.
const PHP_CONNECTIONS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(20);

/// What `fastcgi_params` of the distribution has, and the script.
const PARAMS: &str = "
    fastcgi_param QUERY_STRING $query_string; fastcgi_param REQUEST_METHOD $request_method;
    fastcgi_param CONTENT_TYPE $content_type; fastcgi_param CONTENT_LENGTH $content_length;
    fastcgi_param SCRIPT_NAME $fastcgi_script_name; fastcgi_param REQUEST_URI $request_uri;
    fastcgi_param DOCUMENT_URI $document_uri; fastcgi_param DOCUMENT_ROOT $document_root;
    fastcgi_param SERVER_PROTOCOL $server_protocol; fastcgi_param REQUEST_SCHEME $scheme;
    fastcgi_param HTTPS $https if_not_empty; fastcgi_param GATEWAY_INTERFACE CGI/1.1;
    fastcgi_param SERVER_SOFTWARE nginx/$nginx_version; fastcgi_param REMOTE_ADDR $remote_addr;
    fastcgi_param REMOTE_PORT $remote_port; fastcgi_param SERVER_ADDR $server_addr;
    fastcgi_param SERVER_PORT $server_port; fastcgi_param SERVER_NAME $server_name;
    fastcgi_param REDIRECT_STATUS 200;";

pub(crate) fn command(mut args: Args) -> Result<(), String> {
    let servers = servers::named(&args.words())?;
    let repetitions: usize = args.take("reps", 3)?;
    let length = Duration::from_secs_f64(args.take("secs", 3.0)?);
    let only = args.list("only", "php,php-kept,memcached");
    args.finish()?;
    for part in &only {
        let case = match part.as_str() {
            "php" => Case { name: "PHP-FPM hello, a connection each", program: Program::Php, keeps: "" },
            "php-kept" => {
                let keeps = "fastcgi_keep_conn on;";
                Case { name: "PHP-FPM hello, fastcgi_keep_conn", program: Program::Php, keeps }
            }
            "memcached" => Case { name: "memcached get of 1 KiB", program: Program::Memcached, keeps: "" },
            _ => return Err(format!("--only {part}: php, php-kept or memcached")),
        };
        case.run(&servers, (repetitions, length))?;
    }
    Ok(())
}

struct Case {
    name: &'static str,
    program: Program,
    keeps: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    Php,
    Memcached,
}

impl Case {
    /// Each server has a program of its own.
    fn run(&self, servers: &[Named], measuring: (usize, Duration)) -> Result<(), String> {
        repeat(self.name, servers, measuring, || {
            let started = servers.iter().map(|_| Application::start(self.program));
            let applications = started.collect::<Result<Vec<_>, _>>()?;
            let start = |(server, application): (&Named, &Application)| {
                let text = self.config(application);
                servers::start(&server.binary, &text, User::Same, Some(SERVER_CORES))
            };
            let running: Vec<Server> = servers.iter().zip(&applications).map(start).collect();
            let load = |server| Load {
                to: socket_address(server),
                request: request("/key", "keep-alive"),
                connections: if self.program == Program::Php { PHP_CONNECTIONS } else { CONNECTIONS },
                next: Next::SameConnection,
                end: End::Dropped,
            };
            let loads = running.iter().map(load).collect();
            Ok((running, loads, applications))
        })
    }

    fn config(&self, application: &Application) -> String {
        let socket = application.socket();
        let http = format!("upstream application {{ server unix:{}; keepalive 64; }}", socket.display());
        let location = match self.program {
            Program::Php => {
                let script = application.dir.join("index.php");
                let script = script.display();
                format!(
                    "fastcgi_pass application; {} {PARAMS} fastcgi_param SCRIPT_FILENAME {script};",
                    self.keeps
                )
            }
            Program::Memcached => "set $memcached_key $uri; memcached_pass application;".to_owned(),
        };
        config_with(1, "", &http, &format!("location / {{ {location} }}"))
    }
}

/// A program with a directory of its own; both end with this.
struct Application {
    child: Child,
    dir: PathBuf,
}

impl Application {
    fn start(program: Program) -> Result<Self, String> {
        let number = std::process::id();
        let dir = (0..).map(|at| std::env::temp_dir().join(format!("clearway-gateways-{number}-{at}")));
        let dir = dir.into_iter().find(|dir| fs::create_dir(dir).is_ok()).ok_or("no directory")?;
        let mut command = match program {
            Program::Php => php(&dir).map_err(|e| format!("{}: {e}", dir.display()))?,
            Program::Memcached => {
                let mut words = on_core("memcached");
                words.arg("-s").arg(dir.join("socket")).args(["-a", "0666", "-t", "1", "-u", "root"]);
                words
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
        let application = Self { child, dir };
        if !wait_until(PATIENCE, || UnixStream::connect(application.socket()).is_ok()) {
            return Err(format!("{command:?} does not listen"));
        }
        if program == Program::Memcached {
            application.fill().map_err(|e| format!("memcached: {e}"))?;
        }
        Ok(application)
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    /// Has memcached keep what is asked for.
    fn fill(&self) -> std::io::Result<()> {
        let mut stream = UnixStream::connect(self.socket())?;
        let value = "x".repeat(1024);
        stream.write_all(format!("set /key 0 0 1024\r\n{value}\r\n").as_bytes())?;
        let mut answer = [0; 8];
        stream.read_exact(&mut answer)?;
        if answer == *b"STORED\r\n" { Ok(()) } else { Err(std::io::Error::other("not stored")) }
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        // `taskset` has become the program; FPM ends its processes itself where it is asked to.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn on_core(program: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &CLIENT_CORE.to_string(), program]);
    command
}

fn php(dir: &Path) -> std::io::Result<Command> {
    let at = dir.display();
    let children = 2 * PHP_CONNECTIONS;
    let config = format!(
        "[global]\nerror_log = {at}/fpm.log\ndaemonize = no\n[www]\nuser = root\nlisten = {at}/socket\n\
         listen.mode = 0666\npm = static\npm.max_children = {children}\n"
    );
    fs::write(dir.join("fpm.conf"), config)?;
    fs::write(dir.join("index.php"), "<?php\necho \"hello, world\\n\";\n")?;
    let mut command = on_core("php-fpm8.2");
    command.args(["-n", "-F", "-R", "-y"]).arg(dir.join("fpm.conf"));
    Ok(command)
}
