//! One configuration and one list of raw requests, played to the oracle and to the server under test.
//! Everything that comes back is put into a canonical text in which only what must differ (product
//! name, date, ports, directory) is replaced; the two texts must be equal.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::client::{Connection, End, NoAnswer, PATIENCE};
use crate::response::{Answer, Response};
use crate::{Binary, Server, Setup, wait_until};

/// How long a server that has announced the end of a connection may take to close it.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);
/// How long a connection that goes on is watched for bytes that nobody asked for, or a close.
const QUIET: Duration = Duration::from_millis(25);
/// How many connections are watched at a time while others are asked.
const WATCHED_MAX: usize = 32;

/// Which exchange of a case to play, by number: set by the replay command that a failure prints.
const ONLY: &str = "CLEARWAY_ONLY";

/// What is sent over one connection and what is to come back.
#[derive(Clone, Debug)]
pub struct Exchange {
    request: Vec<u8>,
    answers: Answers,
    to: String,
    finish: Finish,
    differs: Option<(&'static str, &'static str)>,
}

#[derive(Clone, Debug)]
enum Answers {
    /// These, and then a look at whether the connection goes on.
    These(Vec<Answer>),
    /// As many as come before the server closes.
    UntilEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finish {
    KeepOpen,
    ShutDown,
}

impl Exchange {
    /// Sends these bytes to `127.0.0.1:%%PORT%%` and expects one answer.
    pub fn new(request: impl Into<Vec<u8>>) -> Self {
        let request = request.into();
        let answer = if request.starts_with(b"HEAD ") { Answer::HeadOnly } else { Answer::Whole };
        Self {
            request,
            answers: Answers::These(vec![answer]),
            to: "127.0.0.1:%%PORT%%".to_owned(),
            finish: Finish::KeepOpen,
            differs: None,
        }
    }

    /// Expects this many answers; 0: the server closes without one.
    #[must_use]
    pub fn answers(mut self, count: usize) -> Self {
        self.answers = Answers::These(vec![Answer::Whole; count]);
        self
    }

    /// Expects any number of answers and then the end of the connection.
    #[must_use]
    pub fn until_end(mut self) -> Self {
        self.answers = Answers::UntilEnd;
        self
    }

    /// Sends to another address, in the words of `listen` (`unix:%%PREFIX%%/sock`).
    #[must_use]
    pub fn to(mut self, listen: &str) -> Self {
        self.to = listen.to_owned();
        self
    }

    /// Says after the request that nothing more will come.
    #[must_use]
    pub fn finish_sending(mut self) -> Self {
        self.finish = Finish::ShutDown;
        self
    }

    /// nginx 1.22 is not to be followed here: the canonical text begins with `instead`, because of
    /// `reason` (what changed in nginx since).
    #[must_use]
    pub fn newer(mut self, instead: &'static str, reason: &'static str) -> Self {
        self.differs = Some((instead, reason));
        self
    }

    /// Plays it and puts what came back into the canonical form.
    fn play(&self, server: &Server) -> Played {
        let mut connection = match Connection::open(&server.address_of(&self.to)) {
            Ok(connection) => connection,
            Err(e) => return Played::whole(format!("(no connection: {:?})\n", e.kind())),
        };
        connection.send(&self.request);
        if self.finish == Finish::ShutDown {
            connection.finish_sending();
        }
        match &self.answers {
            Answers::These(answers) => these(connection, answers, server),
            Answers::UntilEnd => Played::whole(until_end(&mut connection, server)),
        }
    }

    /// The first line for people; requests can be binary and long.
    fn title(&self) -> String {
        let line = self.request.split(|&b| b == b'\n').next().unwrap_or_default();
        let line: String = String::from_utf8_lossy(line).trim_end().chars().take(70).collect();
        line.escape_debug().to_string()
    }
}

/// One configuration with the exchanges to be compared on it.
pub struct Case {
    config: Config,
    files: Vec<(String, Vec<u8>)>,
    prepare: Option<fn(&std::path::Path)>,
    ready: Vec<String>,
    exchanges: Vec<Exchange>,
    logs: Logs,
}

enum Config {
    Http(String),
    Whole(String),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Logs {
    Ignored,
    Compared,
}

impl Case {
    /// With the contents of the `http` block.
    pub fn http(content: &str) -> Self {
        Self::with(Config::Http(content.to_owned()))
    }

    /// With a whole configuration.
    pub fn whole(config: &str) -> Self {
        Self::with(Config::Whole(config.to_owned()))
    }

    fn with(config: Config) -> Self {
        Self {
            config,
            files: Vec::new(),
            prepare: None,
            ready: Vec::new(),
            exchanges: Vec::new(),
            logs: Logs::Ignored,
        }
    }

    /// Adds a file, relative to the prefix, the same for both servers.
    #[must_use]
    pub fn file(mut self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        self.files.push((path.to_owned(), content.into()));
        self
    }

    /// See [`Setup::prepared`].
    #[must_use]
    pub fn prepared(mut self, prepare: fn(&std::path::Path)) -> Self {
        self.prepare = Some(prepare);
        self
    }

    /// See [`Setup::ready_at`].
    #[must_use]
    pub fn ready_at(mut self, listen: &str) -> Self {
        self.ready.push(listen.to_owned());
        self
    }

    /// Adds an exchange.
    #[must_use]
    pub fn exchange(mut self, exchange: Exchange) -> Self {
        self.exchanges.push(exchange);
        self
    }

    /// Adds an exchange of these bytes for one answer.
    #[must_use]
    pub fn ask(self, request: impl Into<Vec<u8>>) -> Self {
        self.exchange(Exchange::new(request))
    }

    /// Adds a plain GET for `localhost`.
    #[must_use]
    pub fn get(self, target: &str) -> Self {
        self.get_host(target, "localhost")
    }

    /// Adds a plain GET for a host.
    #[must_use]
    pub fn get_host(self, target: &str, host: &str) -> Self {
        self.ask(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    }

    /// The access logs must be equal too, except for time, and size of what is not a 2xx.
    #[must_use]
    pub fn with_access_log(mut self) -> Self {
        self.logs = Logs::Compared;
        self
    }

    /// Plays it to both servers.
    ///
    /// # Panics
    /// If they differ; the message has both texts and the command that plays the exchange again.
    pub fn run(self) {
        let only: Option<usize> = std::env::var(ONLY).ok().and_then(|number| number.parse().ok());
        let is_chosen = |number: usize| only.is_none_or(|only| only == number);
        let chosen: Vec<_> =
            self.exchanges.iter().enumerate().filter(|(number, _)| is_chosen(*number)).collect();
        // Each server is asked one thing after the other, but they do not wait for each other.
        let play_all = |binary: Binary, is_asked: fn(&Exchange) -> bool| {
            let server = self.setup(binary).start();
            self.wait_for_all(&server);
            let (mut texts, mut watched) = (Vec::new(), VecDeque::new());
            for (_, exchange) in &chosen {
                let is_asked = is_asked(exchange);
                watched.push_back(if is_asked { exchange.play(&server) } else { Played::default() });
                let is_enough = |watched: &VecDeque<Played>| {
                    watched.len() > WATCHED_MAX || watched.front().is_some_and(Played::is_over)
                };
                while is_enough(&watched) {
                    texts.extend(watched.pop_front().map(Played::finish));
                }
            }
            texts.extend(watched.into_iter().map(Played::finish));
            (server, texts)
        };
        let (oracle, ours) = std::thread::scope(|scope| {
            let oracle = scope.spawn(|| play_all(Binary::oracle(), |exchange| exchange.differs.is_none()));
            let ours = play_all(Binary::under_test(), |_| true);
            (oracle.join(), ours)
        });
        let (mut oracle, wanted) = oracle.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let (mut ours, got) = ours;
        let mut failures = Vec::new();
        for ((&(number, exchange), wanted), got) in chosen.iter().zip(wanted).zip(got) {
            let problem = match exchange.differs {
                Some((wanted, _)) if got.starts_with(wanted) => None,
                Some((wanted, reason)) => Some((format!("{wanted}…\n({reason})\n"), got)),
                None => Some((wanted, got)).filter(|(wanted, got)| wanted != got),
            };
            failures.extend(problem.map(|texts| describe(number, &exchange.title(), &texts)));
        }
        if self.logs == Logs::Compared && only.is_none() {
            settle(&oracle, &ours);
            let logs = (log_of(&mut oracle), log_of(&mut ours));
            if logs.0 != logs.1 {
                failures.push(format!("--- access log\n{}", comparison(&logs)));
            }
        }
        if !failures.is_empty() {
            let config = ours.read("nginx.conf");
            panic!(
                "{} of {} differ, with\n{config}\n{}",
                failures.len(),
                self.exchanges.len(),
                failures.join("\n")
            );
        }
    }

    /// Waits for every address that is to answer: one may listen a moment before the others.
    fn wait_for_all(&self, server: &Server) {
        let mut addresses: Vec<&str> = Vec::new();
        for exchange in &self.exchanges {
            let is_nobody = matches!(&exchange.answers, Answers::These(answers) if answers.is_empty());
            if !is_nobody && !addresses.contains(&&*exchange.to) {
                addresses.push(&exchange.to);
            }
        }
        for address in addresses.iter().map(|listen| server.address_of(listen)) {
            let listens = wait_until(PATIENCE, || Connection::open(&address).is_ok());
            assert!(listens, "nobody listens at {address:?}, from which answers are expected");
        }
    }

    fn setup(&self, binary: Binary) -> Setup {
        let mut setup = match &self.config {
            Config::Http(content) => Setup::http(binary, content),
            Config::Whole(config) => Setup::new(binary, config),
        };
        for (path, content) in &self.files {
            setup = setup.file(path, content.clone());
        }
        if let Some(prepare) = self.prepare {
            setup = setup.prepared(prepare);
        }
        self.ready.iter().fold(setup, |setup, listen| setup.ready_at(listen))
    }
}

/// What has come back, and the connection while it is watched.
#[derive(Default)]
struct Played {
    text: String,
    watched: Option<(Connection, Instant)>,
}

impl Played {
    fn whole(text: String) -> Self {
        Self { text, watched: None }
    }

    /// Whether finishing it does not take time.
    fn is_over(&self) -> bool {
        self.watched.as_ref().is_none_or(|(_, since)| since.elapsed() >= QUIET)
    }

    /// The text, with what has become of the connection.
    fn finish(self) -> String {
        match self.watched {
            None => self.text,
            Some((mut connection, since)) => {
                let end = connection.next_event(QUIET.saturating_sub(since.elapsed()));
                format!("{}({:?})\n", self.text, closed(end))
            }
        }
    }
}

fn these(mut connection: Connection, answers: &[Answer], server: &Server) -> Played {
    let mut out = String::new();
    let mut goes_on = false;
    for &answer in answers {
        match connection.try_response(answer) {
            Ok(response) => {
                goes_on = response.status < 200 || response.keeps_alive();
                out.push_str(&canonical(&response, answer, server));
            }
            Err(why) => {
                return Played::whole(out + &format!("(no answer: {})\n", neutral(&why.to_string(), server)));
            }
        }
    }
    if goes_on {
        return Played { text: out, watched: Some((connection, Instant::now())) };
    }
    let end = connection.next_event(CLOSE_LIMIT);
    Played::whole(out + &format!("({:?})\n", closed(end)))
}

/// Whether a client sees a reset is up to what it had sent when the server closed.
fn closed(end: End) -> End {
    if end == End::Reset { End::Closed } else { end }
}

fn until_end(connection: &mut Connection, server: &Server) -> String {
    let mut out = String::new();
    loop {
        match connection.try_response(Answer::Whole) {
            Ok(response) => out.push_str(&canonical(&response, Answer::Whole, server)),
            Err(NoAnswer::Ended(_, rest)) if rest.is_empty() => return out + "(Closed)\n",
            Err(why) => {
                return out + &format!("(no answer: {})\n", neutral(&why.to_string(), server));
            }
        }
    }
}

/// Configurations that must be refused, in the same words.
///
/// # Panics
/// If exit code or message differ.
pub fn both_refuse(config: &str) {
    let run = |binary: Binary| {
        let (code, said) = Setup::new(binary, config).refused();
        (code, said.lines().filter(|line| line.contains("[emerg]")).map(strip_time).collect::<Vec<_>>())
    };
    let (wanted, got) = (run(Binary::oracle()), run(Binary::under_test()));
    assert_eq!(got, wanted, "for the configuration\n{config}");
}

/// nginx writes the message with a time once its error log is known, and without before.
fn strip_time(line: &str) -> String {
    match line.find("[emerg]") {
        Some(at) => {
            let text = &line[at..];
            // `PID#TID: ` follows the level where there is a time.
            match text.split_once(": ") {
                Some((front, rest)) if front.contains('#') => format!("[emerg] {rest}"),
                _ => text.to_owned(),
            }
        }
        None => line.to_owned(),
    }
}

fn describe(number: usize, title: &str, texts: &(String, String)) -> String {
    let test = std::thread::current().name().unwrap_or("differential").to_owned();
    format!(
        "--- {title}\n{}replay: {ONLY}={number} cargo test -p clearway-tests --test differential -- \
         --exact {test}\n",
        comparison(texts)
    )
}

/// Both texts, line by line; lines that only one has are marked.
fn comparison((wanted, got): &(String, String)) -> String {
    let mut out = String::new();
    let (wanted, got): (Vec<&str>, Vec<&str>) = (wanted.lines().collect(), got.lines().collect());
    for line in &wanted {
        let mark = if got.contains(line) { ' ' } else { '-' };
        out.push_str(&format!("{mark} {line}\n"));
    }
    for line in got.iter().filter(|line| !wanted.contains(line)) {
        out.push_str(&format!("+ {line}\n"));
    }
    out
}

/// Status line, headers in alphabetical order (servers agree on them as a set), body.
fn canonical(response: &Response, answer: Answer, server: &Server) -> String {
    let body = neutral(&response.decoded().escape_ascii().to_string().replace("\\r\\n", "\n"), server);
    let named = product_length(&response.text());
    let mut headers: Vec<String> = response
        .headers
        .iter()
        .map(|(name, value)| {
            let value = match name.to_ascii_lowercase().as_str() {
                "date" if is_date(value) => "(now)".to_owned(),
                // The length of an error page depends on the product's name, which a page has once.
                "content-length" if named > 0 => match value.parse::<usize>() {
                    Ok(n) => format!("{} + name", n - named),
                    Err(_) => value.clone(),
                },
                "content-length" if answer == Answer::HeadOnly && response.status >= 300 => {
                    "(of the page)".to_owned()
                }
                "content-length" => value.clone(),
                _ => neutral(value, server),
            };
            format!("{name}: {value}\n")
        })
        .collect();
    headers.sort();
    format!("{} {} {}\n{}\n{body}\n", response.version, response.status, response.reason, headers.concat())
}

/// Takes out what differs from server to server: name and version, ports, directory, and the boundary
/// between parts.
fn neutral(text: &str, server: &Server) -> String {
    let mut out = server.with_keys(text);
    if let Some(boundary) = boundary(&out).map(str::to_owned) {
        out = out.replace(&boundary, "BOUNDARY");
    }
    while let Some((at, length)) = product(&out) {
        out.replace_range(at..at + length, "PRODUCT");
    }
    out
}

/// The twenty digits that nginx separates parts with.
fn boundary(text: &str) -> Option<&str> {
    const DIGITS: usize = 20;
    let digits = |at: &usize| {
        text.as_bytes().get(*at..at + DIGITS).is_some_and(|part| part.iter().all(u8::is_ascii_digit))
    };
    let at = ["--", "boundary="]
        .iter()
        .find_map(|before| text.match_indices(before).map(|(at, before)| at + before.len()).find(digits))?;
    Some(&text[at..at + DIGITS])
}

fn product_length(text: &str) -> usize {
    product(text).map_or(0, |(_, length)| length)
}

/// Where the first `nginx/VERSION`, `clearway/VERSION` or `clearway` stands, and its length.
fn product(text: &str) -> Option<(usize, usize)> {
    let version = |at: usize| {
        let rest = text[at..].strip_prefix('/').unwrap_or_default();
        rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len())
    };
    let found = |name: &str| text.find(name).map(|at| (at, name.len(), version(at + name.len())));
    match (found("nginx"), found("clearway")) {
        (Some((at, name, digits)), _) if digits > 0 => Some((at, name + 1 + digits)),
        (_, Some((at, name, 0))) => Some((at, name)),
        (_, Some((at, name, digits))) => Some((at, name + 1 + digits)),
        _ => None,
    }
}

/// Whether it has the form of an HTTP date (RFC 9110 §5.6.7).
fn is_date(value: &str) -> bool {
    value.len() == 29 && value.ends_with(" GMT") && value.as_bytes()[3] == b','
}

/// Asked for last, and left out of the log: when it is answered, the server has seen the end of every
/// connection before it, and only then logs some of the requests on them.
const LAST: &str = "/clearway-test-last";

/// How long the logs have to become equally long.
const SETTLE: Duration = Duration::from_secs(3);

/// Waits until both have logged as much, if that is ever so: on an overloaded machine the end of a connection
/// can come behind a request on a later one, and nginx without a master logs nothing more once it is to quit.
fn settle(oracle: &Server, ours: &Server) {
    let lines = |server: &Server| server.access_log().lines().filter(|line| !line.contains(LAST)).count();
    for server in [oracle, ours] {
        server.get(LAST);
    }
    wait_until(SETTLE, || lines(oracle) == lines(ours));
}

/// Ends the server and returns its access log without times. A request is logged after its last byte, when
/// the next one may have come over another connection: so the lines are sorted.
fn log_of(server: &mut Server) -> String {
    server.signal(Signal::QUIT);
    assert!(server.wait_exit(PATIENCE).is_some(), "SIGQUIT ends a server without connections");
    let log = server.access_log();
    let lines = log.lines().filter(|line| !line.contains(LAST));
    let mut lines: Vec<_> =
        lines.map(|line| format!("{}\n", neutral(&neutral_log_line(line), server))).collect();
    lines.sort_unstable();
    lines.concat()
}

/// `ADDRESS - USER [TIME] "REQUEST" STATUS SIZE "REFERER" "AGENT"`: the time goes, and the size where
/// it is that of an error page.
fn neutral_log_line(line: &str) -> String {
    let Some((front, rest)) = line.split_once('[') else { return line.to_owned() };
    let rest = rest.split_once(']').map_or(rest, |(_, rest)| rest);
    // Quotes within are escaped, so the next one ends the request.
    let parts: Vec<&str> = rest.splitn(3, '"').collect();
    let [_, request, tail] = parts[..] else { return line.to_owned() };
    let mut words: Vec<&str> = tail.split(' ').collect();
    if words.get(1).is_some_and(|status| !status.starts_with('2'))
        && let Some(size) = words.get_mut(2).filter(|size| **size != "0")
    {
        *size = "(size)";
    }
    format!("{front}[] \"{request}\"{}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_found() {
        assert_eq!(product("Server: nginx/1.22.1"), Some((8, 12)));
        assert_eq!(product("<center>clearway/0.1.0</center>"), Some((8, 14)));
        assert_eq!(product("<center>clearway</center>"), Some((8, 8)));
        assert_eq!(product("nginx/ and nothing"), None);
    }

    #[test]
    fn log_lines_lose_time_and_page_size() {
        let line = |status| {
            format!("1.2.3.4 - - [21/Nov/2025:14:00:00 +0000] \"GET / HTTP/1.1\" {status} 153 \"-\" \"a b\"")
        };
        assert_eq!(
            neutral_log_line(&line(404)),
            "1.2.3.4 - - [] \"GET / HTTP/1.1\" 404 (size) \"-\" \"a b\""
        );
        assert_eq!(neutral_log_line(&line(200)), "1.2.3.4 - - [] \"GET / HTTP/1.1\" 200 153 \"-\" \"a b\"");
    }

    #[test]
    fn messages_are_compared_without_time_and_process() {
        let early = "nginx: [emerg] unknown directive \"x\" in F:1";
        let late = "2025/11/21 14:00:00 [emerg] 12#12: unknown directive \"x\" in F:1";
        assert_eq!(strip_time(early), strip_time(late));
    }

    #[test]
    fn boundaries_are_found() {
        let digits = "01234567890123456789";
        assert_eq!(boundary(&format!("multipart/byteranges; boundary={digits}")), Some(digits));
        assert_eq!(boundary(&format!("--x\r\n--{digits}--")), Some(digits));
        assert_eq!(boundary("--0123456789"), None);
    }

    #[test]
    fn differences_are_marked() {
        let texts = ("a\nb\n".to_owned(), "a\nc\n".to_owned());
        assert_eq!(comparison(&texts), "  a\n- b\n+ c\n");
    }
}
