//! Plays a page: starts its servers, types its commands and compares what they print.

use std::path::Path;
use std::process::Command as Process;
use std::time::Duration;

use clearway_testkit::{Binary, Server, Setup, wait_until};

use crate::applications::Applications;
use crate::curl;
use crate::page::{Command, Gaps, Step, is_as_expected, steps};
use crate::served::Served;

/// How long lines of a log may come after the answer that they are about: the first report of a stall has the
/// debug information read, which takes many seconds on a busy machine.
const SOON: Duration = Duration::from_mins(1);

/// What a page may leave out of a configuration: how the tests run a server.
const FRAME: [(&str, &str); 4] = [
    ("daemon", "daemon off;\n"),
    ("master_process", "master_process off;\n"),
    ("pid", "pid nginx.pid;\n"),
    ("error_log", "error_log logs/error.log info;\n"),
];

/// Files that every page may name: a certificate of www.example.com, and its key.
const FILES: [(&str, &[u8]); 2] = [
    ("example.com.pem", include_bytes!("../../../crates/tls/tests/data/ecdsa.pem")),
    ("example.com.key", include_bytes!("../../../crates/tls/tests/data/ecdsa.key")),
];

/// The state of a page that is played.
#[derive(Default)]
struct Playing {
    prepared: String,
    server: Option<Server>,
    /// A directory that is served without a configuration.
    served: Option<Served>,
    /// The configuration of the server, with keys.
    config: String,
    applications: Applications,
    refusal: Option<String>,
    /// A configuration that nobody has asked anything yet.
    unasked: Option<String>,
}

/// What is wrong with a page, if anything is.
pub(crate) fn play(text: &str) -> Result<(), String> {
    let mut playing = Playing::default();
    for step in steps(text) {
        if let (Some(unasked), Step::Configuration(_) | Step::Refused(_)) = (&playing.unasked, &step) {
            return Err(format!("is not asked:\n{unasked}"));
        }
        playing.step(step)?;
    }
    playing.unasked.map_or(Ok(()), |unasked| Err(format!("is not asked:\n{unasked}")))
}

impl Playing {
    fn step(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Prepare(commands) => self.prepared += &commands,
            Step::Configuration(text) => {
                (self.server, self.served) = (None, None);
                let text = self.applications.with_ports(&whole(&text));
                let setup =
                    listened(&text).iter().fold(self.setup(&text), |setup, listen| setup.ready_at(listen));
                self.server = Some(setup.start());
                self.unasked = Some(text.clone());
                self.config = text;
            }
            Step::Refused(text) => {
                let text = whole(&text);
                let (_, said) = self.setup(&text).arguments(&["-t"]).refused();
                self.refusal = Some(said);
                self.unasked = Some(text);
            }
            Step::Session(commands) => {
                self.unasked = None;
                commands.iter().try_for_each(|command| self.command(command))?;
            }
        }
        Ok(())
    }

    fn setup(&self, config: &str) -> Setup {
        let commands = self.prepared.clone();
        let prepare = move |prefix: &Path| {
            let output = shell(&commands, prefix);
            assert!(output.is_ok(), "{commands}{output:?}");
        };
        let setup = Setup::new(Binary::under_test(), config).prepared(prepare);
        FILES.iter().fold(setup, |setup, (name, content)| setup.file(name, *content))
    }

    fn command(&mut self, command: &Command) -> Result<(), String> {
        if command.command == "clearway -t"
            && let Some(said) = self.refusal.take()
        {
            return compared(command, &as_on_a_terminal(&said), Gaps::Marked);
        }
        if let Some(arguments) = command.command.strip_prefix("clearway serve ") {
            self.served = Some(Served::start(arguments, |dir| drop(shell(&self.prepared, dir))));
            return Ok(());
        }
        if let (Some(served), Some(rest)) = (&self.served, command.command.strip_prefix("curl ")) {
            let printed = curl::parse(&curl::words(&served.with_port(rest)))?.send()?;
            return compared(command, &printed, Gaps::Marked);
        }
        let server = self.server.as_ref().ok_or("a command without a server")?;
        let line = with_ports(&command.command, server, &self.config);
        match line.split_once(' ') {
            Some(("curl", rest)) => {
                let request = curl::parse(&curl::words(rest))?;
                let gaps =
                    if rest.contains("-i ") || rest.contains("-I ") { Gaps::Allowed } else { Gaps::Marked };
                let printed = request.send().map_err(|why| format!("line {}: {why}", command.line))?;
                compared(command, &server.with_keys(&printed), gaps)
            }
            Some(("clearway", arguments)) => {
                let arguments: Vec<&str> = arguments.split(' ').collect();
                let output = server.run(&arguments);
                let printed = [output.stdout, output.stderr].concat();
                let printed = String::from_utf8_lossy(&printed);
                // The tests have it log to standard error.
                let lines = printed.lines().filter(|line| !line.contains("[notice]"));
                let printed: String = lines.map(|line| format!("{line}\n")).collect();
                compared(command, &server.with_keys(&printed), Gaps::Marked)
            }
            _ => {
                // What is written beside an answer, such as a line of a log, may come a little later.
                let mut outcome = Ok(());
                wait_until(SOON, || {
                    let printed = shell(&line, server.prefix());
                    let printed = printed.unwrap_or_else(|said| said);
                    outcome = compared(command, &server.with_keys(&printed), Gaps::Marked);
                    outcome.is_ok()
                });
                outcome
            }
        }
    }
}

/// The output of `-t` as users see it: the tests have it log to standard error, with times and processes.
fn as_on_a_terminal(said: &str) -> String {
    let line = |line: &str| match line.split_once(" [emerg] ").and_then(|(_, rest)| rest.split_once(": ")) {
        Some((_, message)) if !line.starts_with("nginx:") => format!("nginx: [emerg] {message}\n"),
        _ => format!("{line}\n"),
    };
    said.lines().map(line).collect()
}

/// What a shell prints in a directory; an error if its code is not 0.
fn shell(commands: &str, dir: &Path) -> Result<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut shell = Process::new("sh");
    let output = shell.arg("-ec").arg(commands).current_dir(dir).env("CLEARWAY", root).output();
    let output = output.expect("there is a shell");
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() { Ok(printed) } else { Err(printed) }
}

/// What is printed, with keys, beside what the page says.
fn compared(command: &Command, printed: &str, gaps: Gaps) -> Result<(), String> {
    let printed = with_names(printed);
    let lines: Vec<&str> = printed.lines().map(str::trim_end).collect();
    let mut expected = command.expected.clone();
    while expected.last().is_some_and(|line| line.trim().is_empty()) {
        expected.pop();
    }
    let lines = match lines.iter().rposition(|line| !line.is_empty()) {
        Some(last) => &lines[..=last],
        None => &[],
    };
    if is_as_expected(lines, &expected, gaps) {
        return Ok(());
    }
    let Command { line, command, .. } = command;
    Err(format!("line {line}: {command}\n--- the page\n{}\n--- printed\n{printed}", expected.join("\n")))
}

/// A configuration with what the page leaves out: `http` around it, `events`, how it is run.
fn whole(text: &str) -> String {
    let has = |name: &str| text.lines().any(|line| line.split_whitespace().next() == Some(name));
    let mut out = if has("http") || has("events") { text.to_owned() } else { format!("http {{\n{text}}}\n") };
    if !has("events") {
        out = format!("events {{ }}\n{out}");
    }
    for (name, directive) in FRAME {
        if !text.lines().any(|line| line.starts_with(name)) {
            out = format!("{directive}{out}");
        }
    }
    with_keys(&out)
}

/// `127.0.0.1:8080` with a key in place of the port, so that pages are played beside each other.
fn with_keys(text: &str) -> String {
    let mut parts = text.split("127.0.0.1:");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.chars().take_while(char::is_ascii_digit).count();
        out += &match digits {
            0 => format!("127.0.0.1:{part}"),
            _ => format!("127.0.0.1:%%PORT{}%%{}", &part[..digits], &part[digits..]),
        };
    }
    out
}

/// What a server listens on, with keys.
fn listened(config: &str) -> Vec<String> {
    let words: Vec<&str> = config.split([' ', ';', '\n', '{']).filter(|word| !word.is_empty()).collect();
    let addresses = words.windows(2).filter(|pair| pair[0] == "listen" && pair[1].contains("%%PORT"));
    addresses.map(|pair| pair[1].to_owned()).collect()
}

/// A command with the server's ports in place of those of the page; one that its configuration does not have
/// stays.
fn with_ports(command: &str, server: &Server, config: &str) -> String {
    let keyed = with_keys(command);
    let mut out = keyed.clone();
    for key in keyed.split("%%").skip(1).step_by(2) {
        let number = if config.contains(&format!("%%{key}%%")) {
            server.port_of(key).to_string()
        } else {
            key.trim_start_matches("PORT").to_owned()
        };
        out = out.replace(&format!("%%{key}%%"), &number);
    }
    out
}

/// What is printed, with the page's ports in place of keys, and names relative to the prefix.
fn with_names(keyed: &str) -> String {
    let text = keyed.replace("%%PREFIX%%/", "").replace("%%PREFIX%%", ".");
    text.replace("%%PORT", "").replace("%%", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_completed() {
        let text = whole("server {\n    listen 127.0.0.1:8080;\n}\n");
        assert!(
            text.contains("events { }\nhttp {\nserver {\n    listen 127.0.0.1:%%PORT8080%%;\n}\n}\n"),
            "{text}"
        );
        assert!(text.starts_with("error_log "), "{text}");
        assert_eq!(listened(&text), ["127.0.0.1:%%PORT8080%%"]);
        let own = whole("error_log logs/e;\nevents { }\nhttp {\n}\n");
        assert!(own.contains("error_log logs/e;") && !own.contains("error_log logs/error.log"), "{own}");
    }

    #[test]
    fn a_configuration_that_nobody_asks_is_an_error() {
        assert!(play("```nginx refused\nnonsense;\n```\n").is_err());
    }
}
