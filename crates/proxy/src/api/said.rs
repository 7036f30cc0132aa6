//! Parses the JSON with which a client of the API adds or changes an upstream server. Its members are those
//! of the commercial nginx: `server`, `weight`, `max_conns`, `max_fails`, `fail_timeout`, `slow_start`,
//! `route`, `backup`, `down`, `drain`. On loops; nothing waits.

use bytes::Bytes;
use clearway_net::url::RemoteText;
use clearway_upstream::ServerState;

use crate::api::json::{Json, read_object};
use crate::upstreams::line::{Rank, Ranks, ServerDraft, address_of, said_of};

/// The members of one request.
#[derive(Debug, Default)]
pub(crate) struct Said {
    server: Option<String>,
    /// Parameters as they would stand in a line `server …` of the configuration.
    words: Vec<(&'static str, Bytes)>,
    backup: Option<bool>,
    down: Option<bool>,
    drain: Option<bool>,
}

/// An error: the status, the code and the text of the answer.
pub(crate) type Wrong = (u16, &'static str, String);

const FORMAT: &str = "UpstreamConfFormatError";

impl Said {
    /// Reads the body of a request.
    pub(crate) fn read(body: &[u8]) -> Result<Self, Wrong> {
        let members = read_object(body).map_err(|why| (415, "JsonError", format!("json error: {why}")))?;
        let mut said = Self::default();
        for (name, value) in members {
            said.take(&name, value).ok_or_else(|| (400, FORMAT, format!("invalid \"{name}\"")))?;
        }
        Ok(said)
    }

    /// Stores one member. `None`: there is no such member, or its value is not allowed.
    fn take(&mut self, name: &str, value: Json) -> Option<()> {
        const WORDS: [&str; 6] = ["weight", "max_conns", "max_fails", "fail_timeout", "slow_start", "route"];
        let flag = match (name, &value) {
            ("backup", _) => Some(&mut self.backup),
            ("down", _) => Some(&mut self.down),
            ("drain", _) => Some(&mut self.drain),
            _ => None,
        };
        if let Some(flag) = flag {
            let Json::Flag(value) = value else { return None };
            *flag = Some(value);
            return Some(());
        }
        let text = match value {
            Json::Text(text) => text,
            Json::Number(number) if WORDS.contains(&name) && name != "route" => number.to_string(),
            _ => return None,
        };
        if !text.bytes().all(is_plain) {
            return None;
        }
        if name == "server" {
            self.server = Some(text);
            return Some(());
        }
        let name = WORDS.into_iter().find(|word| *word == name)?;
        let word = Bytes::from(format!("{name}={text}"));
        // A value that the configuration would refuse is refused here, so that `alter` cannot fail.
        said_of(&Bytes::new(), std::slice::from_ref(&word)).ok()?;
        self.words.push((name, word));
        Some(())
    }

    /// The server that the request adds.
    pub(crate) fn added(&self, ranks: Ranks) -> Result<ServerDraft, Wrong> {
        let bad = |why: String| (400, "UpstreamBadAddress", why);
        let name = self.server.as_deref().ok_or_else(|| (400, FORMAT, "missing \"server\"".to_owned()))?;
        let address = address_of(name.as_bytes()).map_err(|why| bad(format!("{why} in \"{name}\"")))?;
        self.check(ranks)?;
        let shown = RemoteText(&address).to_string();
        let mut server = ServerDraft { addresses: vec![address], ..ServerDraft::plain(shown.into()) };
        if self.backup == Some(true) {
            server.rank = Rank::Backup;
        }
        self.alter(&mut server);
        Ok(server)
    }

    /// Checks that the request may change an existing server.
    pub(crate) fn check_change(&self, ranks: Ranks) -> Result<(), Wrong> {
        if self.server.is_some() {
            let why = "\"server\" cannot be changed: add another one and remove this one";
            return Err((400, FORMAT, why.to_owned()));
        }
        if self.backup.is_some() {
            return Err((400, FORMAT, "\"backup\" cannot be changed".to_owned()));
        }
        self.check(ranks)
    }

    fn check(&self, ranks: Ranks) -> Result<(), Wrong> {
        let is_limited =
            self.backup == Some(true) || self.words.iter().any(|(name, _)| *name == "slow_start");
        if is_limited && ranks == Ranks::Refused {
            let why = "balancing method does not support \"backup\" and \"slow_start\"";
            return Err((400, FORMAT, why.to_owned()));
        }
        Ok(())
    }

    /// Applies the members to a server.
    pub(crate) fn alter(&self, server: &mut ServerDraft) {
        for (name, word) in &self.words {
            let said = said_of(&Bytes::new(), std::slice::from_ref(word)).expect("it was tried");
            match *name {
                "weight" => server.weight = said.weight,
                "max_conns" => server.max_conns = said.max_conns,
                "max_fails" => server.max_fails = said.max_fails,
                "fail_timeout" => server.fail_timeout_s = said.fail_timeout_s,
                "slow_start" => server.slow_start_ms = said.slow_start_ms,
                _ => server.route = said.route,
            }
        }
        server.state = match (self.down, self.drain, server.state) {
            (Some(true), _, _) => ServerState::Down,
            (_, Some(true), _) => ServerState::Draining,
            (Some(false), None, ServerState::Down) | (None, Some(false), ServerState::Draining) => {
                ServerState::Up
            }
            (Some(false), Some(false), _) => ServerState::Up,
            (_, _, before) => before,
        };
    }
}

/// Whether a byte may stand in a line of the configuration without quotes.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b";{}\"'\\#$".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstreams::roster::line_of;

    fn added(body: &str) -> Result<String, Wrong> {
        let said = Said::read(body.as_bytes())?;
        said.added(Ranks::Allowed).map(|server| line_of(&server))
    }

    #[test]
    fn servers_are_said_as_in_a_configuration() {
        for (body, line) in [
            (r#"{"server":"10.0.0.1"}"#, "server 10.0.0.1:80;"),
            (r#"{"server":"unix:/run/x"}"#, "server unix:/run/x;"),
            (
                r#"{"server":"[::1]:81","weight":4,"max_conns":"9","max_fails":0,"fail_timeout":"5s",
                   "slow_start":2,"route":"a","backup":true,"down":true}"#,
                "server [::1]:81 weight=4 max_conns=9 max_fails=0 fail_timeout=5s slow_start=2000ms route=a \
                 backup down;",
            ),
            (r#"{"server":"10.0.0.1:1","drain":true}"#, "server 10.0.0.1:1 drain;"),
        ] {
            assert_eq!(added(body), Ok(line.to_owned()));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (body, status, code) in [
            ("{}", 400, FORMAT),
            ("{\"server\":", 415, "JsonError"),
            (r#"{"server":"a.example:80"}"#, 400, "UpstreamBadAddress"),
            (r#"{"server":"10.0.0.1:0"}"#, 400, "UpstreamBadAddress"),
            (r#"{"server":"10.0.0.1/x"}"#, 400, "UpstreamBadAddress"),
            (r#"{"server":"10.0.0.1; down"}"#, 400, FORMAT),
            (r#"{"server":"unix:/a\n"}"#, 400, FORMAT),
            (r#"{"server":"10.0.0.1","weight":0}"#, 400, FORMAT),
            (r#"{"server":"10.0.0.1","weight":true}"#, 400, FORMAT),
            (r#"{"server":"10.0.0.1","down":1}"#, 400, FORMAT),
            (r#"{"server":"10.0.0.1","route":5}"#, 400, FORMAT),
            (r#"{"server":"10.0.0.1","resolve":true}"#, 400, FORMAT),
            (r#"{"server":80}"#, 400, FORMAT),
        ] {
            let wrong = added(body).expect_err(body);
            assert_eq!((wrong.0, wrong.1), (status, code), "{body}: {}", wrong.2);
        }
        let said = Said::read(br#"{"server":"10.0.0.1","backup":true}"#).unwrap();
        assert!(said.added(Ranks::Refused).is_err() && said.check_change(Ranks::Allowed).is_err());
    }

    #[test]
    fn a_change_leaves_the_rest_alone() {
        let mut server = Said::read(br#"{"server":"10.0.0.1:1","weight":5,"route":"a"}"#).unwrap();
        let mut server = {
            server.down = Some(false);
            server.added(Ranks::Allowed).unwrap()
        };
        for (body, line) in [
            (r#"{"max_conns":3}"#, "weight=5 max_conns=3 route=a"),
            (r#"{"drain":true}"#, "weight=5 max_conns=3 route=a drain"),
            (r#"{"down":false}"#, "weight=5 max_conns=3 route=a drain"),
            (r#"{"drain":false,"weight":1}"#, "max_conns=3 route=a"),
            (r#"{"down":true}"#, "max_conns=3 route=a down"),
            (r#"{"drain":true,"down":false}"#, "max_conns=3 route=a drain"),
        ] {
            Said::read(body.as_bytes()).unwrap().alter(&mut server);
            assert_eq!(line_of(&server), format!("server 10.0.0.1:1 {line};"), "{body}");
        }
    }
}
