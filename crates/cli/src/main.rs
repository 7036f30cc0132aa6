//! The `clearway` binary: its command line. Everything else is in the crates below.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clearway_conf::{Disk, Memory};
use clearway_server::load::Paths;
use clearway_server::{built_in, reference, supervisor};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "\
Usage: clearway [-p prefix] [-c filename]
       clearway serve DIR [--listen ADDR] [--print-config]

  -c filename     set configuration file (default: /etc/nginx/nginx.conf)
  -p prefix       set prefix path (default: /usr/share/nginx/)
  serve DIR       serve the files of a directory, at 127.0.0.1:8080 or the next free port
  --listen ADDR   ADDRESS:PORT to listen on instead
  --print-config  print the configuration that this stands for
";

/// What the command line asks for.
enum Command {
    Run(Paths),
    Serve {
        directory: PathBuf,
        listen: Option<SocketAddr>,
        print: Print,
    },
    /// Prints the directive reference; for the documentation of the project.
    DocsDirectives,
    Help,
}

/// What becomes of a built-in configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Print {
    No,
    Yes,
}

fn main() -> ExitCode {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    clearway_server::prepare_process();
    let result = match parse(&arguments) {
        Ok(Command::Run(paths)) => supervisor::run(&Disk, &paths, || ()).is_ok(),
        Ok(Command::Serve { directory, listen, print }) => serve(&directory, listen, print),
        Ok(Command::DocsDirectives) => say_out(reference::directives().as_bytes()),
        Ok(Command::Help) => say_out(USAGE.as_bytes()),
        Err(message) => {
            say_err(&format!("nginx: {message}"));
            false
        }
    };
    if result { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(arguments: &[std::ffi::OsString]) -> Result<Command, String> {
    match arguments.first().and_then(|first| first.to_str()) {
        Some("serve") => return parse_serve(&arguments[1..]),
        Some("docs-directives") => return Ok(Command::DocsDirectives),
        Some("-h" | "-?" | "--help") => return Ok(Command::Help),
        _ => {}
    }
    let (mut prefix, mut conf) = (None, None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let text = argument.to_string_lossy();
        let (target, what) = match text.get(..2) {
            Some("-p") => (&mut prefix, "directory name"),
            Some("-c") => (&mut conf, "file name"),
            _ if text.starts_with('-') => {
                let option = text.chars().nth(1).unwrap_or('-');
                return Err(format!("invalid option: \"{option}\""));
            }
            _ => return Err(format!("invalid option: \"{text}\"")),
        };
        // As in nginx the value may stand in the same word.
        let value = match text.len() {
            2 => rest.next().cloned(),
            _ => Some(text[2..].to_owned().into()),
        };
        let value = value.ok_or_else(|| format!("option \"{}\" requires {what}", &text[..2]))?;
        *target = Some(PathBuf::from(value));
    }
    Ok(Command::Run(Paths::resolve(prefix.as_deref(), conf.as_deref())))
}

fn parse_serve(arguments: &[std::ffi::OsString]) -> Result<Command, String> {
    let (mut directory, mut listen, mut print) = (None, None, Print::No);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("--print-config") => print = Print::Yes,
            Some("--listen") => {
                let value = rest.next().and_then(|value| value.to_str()).unwrap_or_default();
                let address = value.parse().map_err(|_| format!("\"{value}\" is not ADDRESS:PORT"))?;
                listen = Some(address);
            }
            Some(option) if option.starts_with('-') => return Err(format!("invalid option: \"{option}\"")),
            _ if directory.is_some() => return Err("\"serve\" takes one directory".to_owned()),
            _ => directory = Some(PathBuf::from(argument)),
        }
    }
    let directory = directory.ok_or("\"serve\" requires a directory name")?;
    Ok(Command::Serve { directory, listen, print })
}

/// Serves a directory until a signal ends it. `false`: it could not.
fn serve(directory: &Path, listen: Option<SocketAddr>, print: Print) -> bool {
    #[expect(clippy::disallowed_methods, reason = "boot, on the main thread, which runs no loop")]
    let directory = match std::fs::canonicalize(directory) {
        Ok(directory) if directory.is_dir() => directory,
        Ok(_) => return refuse(directory, "is not a directory"),
        Err(error) => return refuse(directory, &error.to_string()),
    };
    let address = built_in::free_address(listen);
    let text = built_in::configuration(&directory, address);
    if print == Print::Yes {
        return say_out(&text);
    }
    let conf = PathBuf::from("/clearway-serve.conf");
    let source = Memory::new().with(&conf, text);
    let paths = Paths { prefix: directory.join(""), conf };
    let ready = || say_err(&format!("serving {} at http://{address}/", directory.display()));
    supervisor::run(&source, &paths, ready).is_ok()
}

fn refuse(directory: &Path, why: &str) -> bool {
    say_err(&format!("nginx: \"{}\": {why}", directory.display()));
    false
}

#[expect(clippy::disallowed_macros, reason = "the main thread, which runs no loop")]
fn say_err(line: &str) {
    eprintln!("{line}");
}

fn say_out(text: &[u8]) -> bool {
    use std::io::Write;
    std::io::stdout().write_all(text).is_ok()
}
