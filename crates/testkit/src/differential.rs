//! Differential tests: one configuration and one list of raw requests are played to the server under test.
//! All that it answers is written as a canonical text, in which only parts that must differ (product name,
//! date, ports, directory) are replaced. The text must be equal to the recorded answers of nginx, or to those
//! of an nginx that is asked at the same time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::canonical::{canonical, neutral, neutral_log_line};
use crate::client::{Connection, End, NoAnswer, PATIENCE};
use crate::recorded::{Question, Said, compare, comparison};
use crate::response::Answer;
use crate::setup::framed;
use crate::source::OracleSource;
use crate::{Binary, Server, Setup, wait_until};

/// How long a server that has announced the end of a connection may take to close it.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);
/// How long a connection that stays open is watched for unexpected bytes, or a close.
const QUIET: Duration = Duration::from_millis(25);
/// How many connections are watched at a time while the next exchanges are played.
const WATCHED_MAX: usize = 32;

/// Which exchange of a case to play, by number: set by the replay command that a failure prints.
const ONLY: &str = "CLEARWAY_ONLY";

/// The bytes that are sent over one connection, and the answers that are expected.
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
    /// These answers; then it is checked whether the connection stays open.
    These(Vec<Answer>),
    /// All answers that come before the server closes.
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

    /// Shuts down the sending side after the request.
    #[must_use]
    pub fn finish_sending(mut self) -> Self {
        self.finish = Finish::ShutDown;
        self
    }

    /// Clearway differs from nginx here because of `reason`: nginx is not asked, and the canonical text has
    /// to contain `instead`.
    #[must_use]
    pub fn unlike_nginx(mut self, instead: &'static str, reason: &'static str) -> Self {
        self.differs = Some((instead, reason));
        self
    }

    /// Plays the exchange and returns the answers in the canonical form.
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

    /// The first line of the request, shortened and escaped, for reports: requests can be binary and long.
    fn title(&self) -> String {
        let line = self.request.split(|&b| b == b'\n').next().unwrap_or_default();
        let line: String = String::from_utf8_lossy(line).trim_end().chars().take(70).collect();
        line.escape_debug().to_string()
    }
}

/// One configuration, and the exchanges that are compared on it.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Logs {
    Ignored,
    Compared,
}

impl Case {
    /// A case with the contents of the `http` block.
    pub fn http(content: &str) -> Self {
        Self::with(Config::Http(content.to_owned()))
    }

    /// A case with a whole configuration.
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

    /// Adds an exchange: sends these bytes and expects one answer.
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

    /// Has the access logs compared as well, without times, and without sizes of responses that are not 2xx.
    #[must_use]
    pub fn with_access_log(mut self) -> Self {
        self.logs = Logs::Compared;
        self
    }

    /// Plays the case to the server under test and compares the answers with those of the oracle (nginx).
    ///
    /// # Panics
    /// If the answers differ: with both texts, and the command that plays the exchange again. If there is no
    /// recording: with the command that makes it.
    #[track_caller]
    pub fn run(self) {
        let question = self.question();
        match OracleSource::chosen() {
            OracleSource::Recorded => {
                let wanted = question.recorded();
                self.judge(wanted, self.play_to(Binary::under_test(), Role::Tested));
            }
            OracleSource::Live => self.run_live(),
            OracleSource::Record => {
                let oracle = Binary::oracle();
                let said = self.play_to(oracle.clone(), Role::Oracle).told(None);
                question.record(&oracle, said);
            }
        }
    }

    /// As [`run`](Self::run), with an nginx that runs beside, whatever `CLEARWAY_ORACLE` says: for cases that
    /// read files outside the repository.
    ///
    /// # Panics
    /// If the two differ.
    pub fn run_live(self) {
        // The two servers are asked at the same time; each gets its requests one after the other.
        let (oracle, ours) = std::thread::scope(|scope| {
            let oracle = scope.spawn(|| self.play_to(Binary::oracle(), Role::Oracle));
            let ours = self.play_to(Binary::under_test(), Role::Tested);
            (oracle.join(), ours)
        });
        let mut oracle = oracle.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let lines = ours.log_lines();
        self.judge(oracle.told(lines), ours);
    }

    /// Everything that the answers depend on; a recording holds for an equal question only.
    #[track_caller]
    fn question(&self) -> Question {
        let config = match &self.config {
            Config::Http(content) => framed(content),
            Config::Whole(config) => config.clone(),
        };
        let how = format!("{:?} {} {:?}", self.ready, self.prepare.is_some(), self.logs);
        let exchanges = format!("{:?}", self.exchanges);
        let files = self.files.iter().flat_map(|(path, content)| [path.as_bytes(), content]);
        Question::new([config.as_bytes(), how.as_bytes(), exchanges.as_bytes()].into_iter().chain(files))
    }

    /// Starts a server and plays the exchanges to it.
    fn play_to(&self, binary: Binary, role: Role) -> Play<'_> {
        let only: Option<usize> = std::env::var(ONLY).ok().and_then(|number| number.parse().ok());
        let server = self.setup(binary).start();
        self.wait_for_all(&server);
        let (mut texts, mut watched) = (Vec::new(), VecDeque::new());
        for (number, exchange) in self.exchanges.iter().enumerate() {
            let is_asked = only.is_none_or(|only| only == number)
                && (role == Role::Tested || exchange.differs.is_none());
            watched.push_back(if is_asked { exchange.play(&server) } else { Played::default() });
            let is_enough = |watched: &VecDeque<Played>| {
                watched.len() > WATCHED_MAX || watched.front().is_some_and(Played::is_over)
            };
            while is_enough(&watched) {
                texts.extend(watched.pop_front().map(Played::finish));
            }
        }
        texts.extend(watched.into_iter().map(Played::finish));
        let is_logged = self.logs == Logs::Compared && only.is_none();
        if is_logged {
            server.get(LAST);
        }
        Play { server, texts, only, is_logged, case: self }
    }

    /// # Panics
    /// If the answers of the server under test differ from the wanted ones.
    fn judge(&self, wanted: Vec<Said>, mut ours: Play<'_>) {
        let log = |said: &[Said]| said.get(self.exchanges.len()).map_or(0, |log| log.text.lines().count());
        let (only, config) = (ours.only, ours.server.read("nginx.conf"));
        let lines = log(&wanted);
        let got = ours.told(Some(lines));
        let mut failures = Vec::new();
        for (number, (wanted, got)) in wanted.into_iter().zip(got).enumerate() {
            if only.is_some_and(|only| only != number) {
                continue;
            }
            let problem = match self.exchanges.get(number).and_then(|exchange| exchange.differs) {
                Some(_) if !Binary::under_test().is_clearway() => None,
                Some((instead, _)) if got.text.contains(instead) => None,
                Some((instead, reason)) => Some((format!("… {instead} …\n({reason})\n"), got.text)),
                None => Some((wanted.text, got.text)).filter(|(wanted, got)| wanted != got),
            };
            failures.extend(problem.map(|texts| describe(number, &got.title, &texts)));
        }
        let all = self.exchanges.len();
        let differing = failures.len();
        assert!(failures.is_empty(), "{differing} of {all} differ, with\n{config}\n{}", failures.join("\n"));
    }

    /// Waits until the server listens on every address that answers are expected from: it may open some of
    /// them later than others.
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

/// Which of the two servers is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Oracle,
    Tested,
}

/// A server to which all exchanges were played, and its answers.
struct Play<'a> {
    server: Server,
    texts: Vec<String>,
    only: Option<usize>,
    is_logged: bool,
    case: &'a Case,
}

impl Play<'_> {
    /// The number of lines in the access log, if logs are compared.
    fn log_lines(&self) -> Option<usize> {
        self.is_logged.then(|| lines_of(&self.server))
    }

    /// All answers and the access log. Waits until the log has `lines` lines or, without a number, until it
    /// does not grow any more.
    fn told(&mut self, lines: Option<usize>) -> Vec<Said> {
        let exchanges = self.case.exchanges.iter();
        let said = |(exchange, text): (&Exchange, String)| match exchange.differs {
            Some((_, reason)) if text.is_empty() => {
                Said { title: exchange.title(), text: format!("(not asked: {reason})\n") }
            }
            _ => Said { title: exchange.title(), text },
        };
        let mut out: Vec<Said> = exchanges.zip(std::mem::take(&mut self.texts)).map(said).collect();
        if self.is_logged {
            settle(&self.server, lines);
            out.push(Said { title: "access log".to_owned(), text: log_of(&mut self.server) });
        }
        out
    }
}

/// The answers of one exchange, and the connection while it is watched.
#[derive(Default)]
struct Played {
    text: String,
    watched: Option<(Connection, Instant)>,
}

impl Played {
    fn whole(text: String) -> Self {
        Self { text, watched: None }
    }

    /// Whether [`finish`](Self::finish) returns at once.
    fn is_over(&self) -> bool {
        self.watched.as_ref().is_none_or(|(_, since)| since.elapsed() >= QUIET)
    }

    /// The text, with the fate of the connection at its end.
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

/// A reset counts as a close: which of them a client sees depends on how much it had sent when the server
/// closed.
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

/// Checks that both servers refuse a configuration in the same words.
///
/// # Panics
/// If exit code or message differ.
#[track_caller]
pub fn both_refuse(config: &str) {
    compare(config, |binary| {
        let (code, said) = Setup::new(binary.clone(), config).refused();
        let said = said.lines().filter(|line| line.contains("[emerg]"));
        said.fold(format!("{code:?}\n"), |all, line| format!("{all}{}\n", strip_time(line)))
    });
}

/// The message without its time: nginx writes one only once it has opened its error log.
fn strip_time(line: &str) -> String {
    match line.find("[emerg]") {
        Some(at) => {
            let text = &line[at..];
            // A message with a time has `PID#TID: ` behind the level.
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

/// The target of a last request, which is left out of the compared log. Once it is answered, the server has
/// seen the end of all earlier connections; it logs some requests only then.
const LAST: &str = "/clearway-test-last";

/// How long to wait for the log to be complete.
const SETTLE: Duration = Duration::from_secs(3);
/// A log that has not grown for so long is taken for complete.
const UNCHANGED: Duration = Duration::from_millis(300);

/// Waits until the server has logged `lines` lines, or nothing for a while. On an overloaded machine a server
/// can see the end of a connection after a request on a later one, and nginx without a master logs nothing
/// more after it was told to quit.
fn settle(server: &Server, lines: Option<usize>) {
    let mut before = (lines_of(server), Instant::now());
    wait_until(SETTLE, || {
        let now = lines_of(server);
        if now != before.0 {
            before = (now, Instant::now());
        }
        lines.map_or_else(|| before.1.elapsed() >= UNCHANGED, |lines| now >= lines)
    });
}

fn lines_of(server: &Server) -> usize {
    server.access_log().lines().filter(|line| !line.contains(LAST)).count()
}

/// Ends the server and returns its access log without times. The lines are sorted: a request is logged after
/// its last byte, and by then the next one may have come over another connection.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_compared_without_time_and_process() {
        let early = "nginx: [emerg] unknown directive \"x\" in F:1";
        let late = "2025/11/21 14:00:00 [emerg] 12#12: unknown directive \"x\" in F:1";
        assert_eq!(strip_time(early), strip_time(late));
    }
}
