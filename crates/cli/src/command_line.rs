//! The command line: nginx's options, read as nginx reads them, and the commands that nginx does not have.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clearway_server::options::{Extent, Given, Order, Test};

/// A parsed command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Options of nginx.
    Nginx(Nginx),
    /// `serve`: serves a directory, without a configuration file.
    Serve(Serve),
    /// Prints the directive reference, for `cargo xtask docs`.
    DocsDirectives,
    /// Prints the generated parts of the pages of modules.
    DocsModules,
    /// Prints the metric reference.
    DocsMetrics,
    /// Prints the variable reference.
    DocsVariables,
}

/// Parsed options of nginx.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Nginx {
    /// Information to print first. If there is some, the process then ends, or tests the configuration.
    pub(crate) show: Option<Show>,
    pub(crate) given: Given,
    pub(crate) task: Task,
}

/// Information to print behind the version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Show {
    /// `-h`
    pub(crate) usage: bool,
    /// `-V`
    pub(crate) configure_arguments: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Task {
    #[default]
    Run,
    Test(Test),
    Signal(Order),
}

/// `clearway serve`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Serve {
    pub(crate) directory: PathBuf,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) scheme: Scheme,
    pub(crate) print: Print,
}

/// The scheme of the URL under which a directory is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    /// `--tls`
    Https,
}

/// Whether the built-in configuration is printed instead of used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Print {
    No,
    Yes,
}

/// Reads the arguments behind the program's name.
///
/// # Errors
/// The first mistake, in nginx's words.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Command, String> {
    match arguments.first().and_then(|first| first.to_str()) {
        Some("serve") => parse_serve(&arguments[1..]).map(Command::Serve),
        Some("docs-directives") => Ok(Command::DocsDirectives),
        Some("docs-modules") => Ok(Command::DocsModules),
        Some("docs-metrics") => Ok(Command::DocsMetrics),
        Some("docs-variables") => Ok(Command::DocsVariables),
        Some("--help") => Ok(Command::Nginx(Nginx {
            show: Some(Show { usage: true, ..Show::default() }),
            ..Nginx::default()
        })),
        _ => parse_nginx(arguments).map(Command::Nginx),
    }
}

/// The options without a value among the given ones.
#[derive(Default)]
struct Letters(Vec<u8>);

impl Letters {
    fn has(&self, any_of: &[u8]) -> bool {
        self.0.iter().any(|letter| any_of.contains(letter))
    }
}

fn parse_nginx(arguments: &[OsString]) -> Result<Nginx, String> {
    let (mut letters, mut given, mut signal) = (Letters::default(), Given::default(), None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let Some(mut word) = argument.as_bytes().strip_prefix(b"-") else {
            return Err(format!("invalid option: \"{}\"", argument.to_string_lossy()));
        };
        while let Some((&letter, behind)) = word.split_first() {
            word = behind;
            let what = match letter {
                b'?' | b'h' | b'v' | b'V' | b't' | b'T' | b'q' => {
                    letters.0.push(letter);
                    continue;
                }
                b'p' => "directory name",
                b'e' | b'c' => "file name",
                b'g' | b's' => "parameter",
                _ => return Err(format!("invalid option: \"{}\"", String::from_utf8_lossy(&[letter]))),
            };
            // The value is the rest of the word, or the next word.
            let value = match behind {
                [] => rest.next().map(OsString::as_os_str),
                _ => Some(OsStr::from_bytes(behind)),
            };
            let missing = || format!("option \"-{}\" requires {what}", char::from(letter));
            let value = value.ok_or_else(missing)?;
            match letter {
                b'p' => given.prefix = Some(value.into()),
                b'e' => given.error_log = Some(value.into()),
                b'c' => given.conf = Some(value.into()),
                b'g' => given.params = value.as_bytes().to_vec(),
                _ => signal = Some(order(value)?),
            }
            break;
        }
    }
    Ok(Nginx { show: shown(&letters), given, task: task(&letters, signal) })
}

fn order(name: &OsStr) -> Result<Order, String> {
    let invalid = || format!("invalid option: \"-s {}\"", name.to_string_lossy());
    Order::from_name(name.as_bytes()).ok_or_else(invalid)
}

fn shown(letters: &Letters) -> Option<Show> {
    let show = Show { usage: letters.has(b"?h"), configure_arguments: letters.has(b"V") };
    letters.has(b"?hvV").then_some(show)
}

/// With `-t` and `-s` no signal is sent: the test ends where nginx would read the pid file.
fn task(letters: &Letters, signal: Option<Order>) -> Task {
    if letters.has(b"tT") {
        let extent = if signal.is_some() { Extent::Syntax } else { Extent::Everything };
        return Task::Test(Test { quiet: letters.has(b"q"), dump: letters.has(b"T"), extent });
    }
    signal.map_or(Task::Run, Task::Signal)
}

fn parse_serve(arguments: &[OsString]) -> Result<Serve, String> {
    let (mut directory, mut listen, mut scheme, mut print) = (None, None, Scheme::Http, Print::No);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("--print-config") => print = Print::Yes,
            Some("--tls") => scheme = Scheme::Https,
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
    Ok(Serve { directory, listen, scheme, print })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn nginx(line: &str) -> Nginx {
        match parse(&words(line)) {
            Ok(Command::Nginx(nginx)) => nginx,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn options_together_and_apart() {
        let wanted = Given {
            prefix: Some("/p".into()),
            conf: Some("c.conf".into()),
            error_log: Some("stderr".into()),
            params: b"daemon".to_vec(),
        };
        for line in [
            "-p /p -c c.conf -e stderr -g daemon",
            "-p/p -cc.conf -estderr -gdaemon",
            "- -qp /p -qcc.conf -e stderr -g daemon",
        ] {
            assert_eq!(nginx(line), Nginx { given: wanted.clone(), ..Nginx::default() }, "{line}");
        }
        assert_eq!(nginx("-c a -c b").given.conf, Some("b".into()));
    }

    #[test]
    fn what_is_done() {
        let test = |quiet, dump, extent| Task::Test(Test { quiet, dump, extent });
        for (line, task) in [
            ("", Task::Run),
            ("-q", Task::Run),
            ("-t", test(false, false, Extent::Everything)),
            ("-tq", test(true, false, Extent::Everything)),
            ("-T", test(false, true, Extent::Everything)),
            ("-t -s stop", test(false, false, Extent::Syntax)),
            ("-s stop", Task::Signal(Order::Stop)),
            ("-squit", Task::Signal(Order::Quit)),
            ("-s reopen -s reload", Task::Signal(Order::Reload)),
        ] {
            assert_eq!(nginx(line).task, task, "{line}");
        }
    }

    #[test]
    fn what_is_shown() {
        let show = |usage, configure_arguments| Some(Show { usage, configure_arguments });
        for (line, shown) in [
            ("-t", None),
            ("-v", show(false, false)),
            ("-V", show(false, true)),
            ("-h", show(true, false)),
            ("-?", show(true, false)),
            ("--help", show(true, false)),
            ("-hVt", show(true, true)),
        ] {
            assert_eq!(nginx(line).show, shown, "{line}");
        }
    }

    #[test]
    fn refusals_are_those_of_nginx() {
        for (line, message) in [
            ("x", "invalid option: \"x\""),
            ("-x", "invalid option: \"x\""),
            ("-tx", "invalid option: \"x\""),
            ("--test", "invalid option: \"-\""),
            ("-p", "option \"-p\" requires directory name"),
            ("-e", "option \"-e\" requires file name"),
            ("-c", "option \"-c\" requires file name"),
            ("-tc", "option \"-c\" requires file name"),
            ("-g", "option \"-g\" requires parameter"),
            ("-s", "option \"-s\" requires parameter"),
            ("-s restart", "invalid option: \"-s restart\""),
            ("-V -x", "invalid option: \"x\""),
            ("serve", "\"serve\" requires a directory name"),
            ("serve a b", "\"serve\" takes one directory"),
            ("serve a --listen x", "\"x\" is not ADDRESS:PORT"),
        ] {
            assert_eq!(parse(&words(line)), Err(message.to_owned()), "{line}");
        }
    }

    #[test]
    fn serve() {
        let serve = |scheme| {
            let listen = Some("127.0.0.1:1".parse().unwrap());
            Ok(Command::Serve(Serve { directory: "d".into(), listen, scheme, print: Print::Yes }))
        };
        let line = "serve --listen 127.0.0.1:1 d --print-config";
        assert_eq!(parse(&words(line)), serve(Scheme::Http));
        assert_eq!(parse(&words(&format!("{line} --tls"))), serve(Scheme::Https));
    }
}
