//! The `clearway` binary: its command line. Everything else is in the crates below.
mod allocator;
mod command_line;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clearway_conf::{Disk, Memory};
use clearway_os::title::Title;
use clearway_server::built_in::{self, Site, Tls};
use clearway_server::early_log::{Verbatim, say};
use clearway_server::invocation::Invocation;
use clearway_server::master::{self, Failed};
use clearway_server::options::{DefaultErrorLog, Options};
use clearway_server::{check, manual, metrics, plugin_process, reference, signal_command, version, worker};

use command_line::{Command, Nginx, Print, Scheme, Serve, Show, Task};

fn main() -> ExitCode {
    let code = act();
    if clearway_luajit::resty_ffi::is_used() {
        clearway_os::signal::leave(i32::from(code != ExitCode::SUCCESS));
    }
    code
}

fn act() -> ExitCode {
    allocator::set_up();
    clearway_server::prepare_process();
    // Plugin processes come first: workers start them, so their environment also has the variable that marks
    // a worker.
    if plugin_process::is_wanted() {
        return plugin_process::run();
    }
    if master::is_worker() {
        return worker::process::run();
    }
    let title = Title::capture();
    let arguments: Vec<OsString> = title.args().to_vec();
    let done = match command_line::parse(arguments.get(1..).unwrap_or_default()) {
        Ok(Command::Nginx(nginx)) => run(nginx, arguments, title),
        Ok(Command::Serve(wanted)) => serve(&wanted, arguments, title),
        Ok(Command::DocsDirectives) => print(reference::directives().as_bytes()),
        Ok(Command::DocsModules) => print(manual::modules().as_bytes()),
        Ok(Command::DocsMetrics) => print(metrics::reference().as_bytes()),
        Ok(Command::DocsVariables) => print(reference::variables().as_bytes()),
        Err(message) => {
            say(format_args!("{message}"));
            Err(Failed)
        }
    };
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a command line with nginx's options.
fn run(nginx: Nginx, args: Vec<OsString>, title: Title) -> Result<(), Failed> {
    let Nginx { show, given, task } = nginx;
    if let Some(show) = show {
        show_version(show);
        if !matches!(task, Task::Test(_)) {
            return Ok(());
        }
    }
    let options = Options::resolve(given);
    match task {
        Task::Test(test) => check::run(&Disk, &options, test),
        Task::Signal(order) => signal_command::run(&Disk, &options, order),
        Task::Run => master::run(&Disk, &Invocation { args, options, title: Some(title) }, || ()),
    }
}

/// Prints the version on standard error, as nginx does.
fn show_version(show: Show) {
    let mut text = version::version();
    if show.usage {
        text.push_str(&version::usage());
    }
    if show.configure_arguments {
        text.push_str(&version::configure_arguments());
    }
    // A failed write is ignored: the reader has closed the stream.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Serves a directory until a signal ends it.
fn serve(wanted: &Serve, args: Vec<OsString>, title: Title) -> Result<(), Failed> {
    #[expect(clippy::disallowed_methods, reason = "boot, on the main thread, which runs no loop")]
    let directory = match std::fs::canonicalize(&wanted.directory) {
        Ok(directory) if directory.is_dir() => directory,
        Ok(_) => return refuse(&wanted.directory, "is not a directory"),
        Err(error) => return refuse(&wanted.directory, &error.to_string()),
    };
    let (address, tls) = match wanted.scheme {
        Scheme::Http => (built_in::free_address(wanted.listen, built_in::LISTEN_DEFAULT), None),
        Scheme::Https => {
            let address = built_in::free_address(wanted.listen, built_in::LISTEN_TLS_DEFAULT);
            match Tls::for_development(address) {
                Ok(tls) => (address, Some(tls)),
                Err(why) => {
                    say(format_args!("\"--tls\": {why}"));
                    return Err(Failed);
                }
            }
        }
    };
    let site = Site { directory: &directory, address, tls };
    let text = built_in::configuration(&site);
    if wanted.print == Print::Yes {
        return print(&text);
    }
    let conf = PathBuf::from("/clearway-serve.conf");
    let source = Memory::new().with(&conf, text);
    let options =
        Options { prefix: directory.join(""), conf, error_log: DefaultErrorLog::Stderr, params: Vec::new() };
    // A closed standard error is no reason not to serve.
    let ready = || drop(std::io::stderr().write_all(&announcement(&site)));
    master::run(&source, &Invocation { args, options, title: Some(title) }, ready)
}

/// The text that `serve` prints once the server can be reached.
fn announcement(site: &Site<'_>) -> Vec<u8> {
    let scheme = if site.tls.is_some() { "https" } else { "http" };
    let mut text = b"serving ".to_vec();
    text.extend_from_slice(site.directory.as_os_str().as_bytes());
    text.extend_from_slice(format!(" at {scheme}://{}/\n", site.address).as_bytes());
    if let Some(tls) = &site.tls {
        let lines = format!(
            "http://{}/ redirects there\nthe certificate was made for this run and is for development: \
             no client trusts it unless it is told to\n",
            tls.plain
        );
        text.extend_from_slice(lines.as_bytes());
    }
    text
}

fn refuse(directory: &Path, why: &str) -> Result<(), Failed> {
    say(format_args!("\"{}\": {why}", Verbatim::path(directory)));
    Err(Failed)
}

fn print(text: &[u8]) -> Result<(), Failed> {
    std::io::stdout().write_all(text).map_err(|_| Failed)
}
