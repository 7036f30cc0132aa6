//! Requests of a session go to the server that had its first one (`sticky`). The session's server is in a
//! cookie that is set here, in a variable (`route`), or in a zone that learns which server has which session
//! (`learn`). Runs on loops.
//!
//! A zone holds one number for a session: the time of its last use, in quarters of a second, above a number
//! of its server in the group. A session that was not used for longer than `timeout` does not exist, and its
//! place is free.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use clearway_base::date;
use clearway_http::{Text, Value, VariableId, View};
use clearway_upstream::{Group, Peer, SID_BITS};
use clearway_zone::Zone;

/// The parameters of `sticky`.
pub(crate) struct Sticky {
    /// Where a request says what session it has: the first that is not empty.
    pub(crate) lookup: Vec<VariableId>,
    pub(crate) kind: Kind,
    /// False when a balancer that stands behind it has taken its place.
    pub(crate) is_on: bool,
}

pub(crate) enum Kind {
    Cookie(Box<CookieConf>),
    Route,
    Learn(Learn),
}

#[derive(Default)]
pub(crate) struct CookieConf {
    pub(crate) name: Bytes,
    pub(crate) domain: Option<Value>,
    pub(crate) path: Option<Bytes>,
    pub(crate) expires: Option<Expires>,
    pub(crate) http_only: bool,
    pub(crate) secure: bool,
    pub(crate) same_site: Option<Value>,
}

#[derive(Clone, Copy)]
pub(crate) enum Expires {
    Max,
    AfterSeconds(u64),
}

/// The text for `expires=max`.
const EXPIRES_MAX: &str = "; expires=Thu, 31-Dec-37 23:55:55 GMT; max-age=315360000";

/// The values of `samesite`.
const SAME_SITES: [&str; 3] = ["strict", "lax", "none"];

pub(crate) struct Learn {
    pub(crate) create: Vec<VariableId>,
    pub(crate) zone: Arc<Zone>,
    pub(crate) timeout_quarters: u64,
    pub(crate) when: LearnWhen,
}

/// When a session is learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LearnWhen {
    /// When the head of a response has come (`header`).
    AtHead,
    /// When a response is complete.
    AtEnd,
}

/// 2024 began then; the numbers for it last until 2041.
const EPOCH_S: u64 = 1_704_067_200;

impl Sticky {
    /// The session of the request; empty if there is none.
    pub(crate) fn session<'c>(&self, view: &View<'_, 'c>) -> Text<'c> {
        first_of(&self.lookup, view)
    }

    /// The server that a session is with, by what servers are called; empty if none is known.
    pub(crate) fn sid<'c>(&self, session: &Text<'c>, group: &Group) -> Text<'c> {
        match &self.kind {
            Kind::Cookie(_) | Kind::Route => session.clone(),
            Kind::Learn(learn) => {
                learn.find(session, group).map(|sid| sid.to_vec()).unwrap_or_default().into()
            }
        }
    }

    /// The value of `Set-Cookie` for a request that a server gets, if there is to be one.
    pub(crate) fn cookie(&self, view: &View<'_, '_>, peer: &Peer) -> Option<Vec<u8>> {
        match &self.kind {
            Kind::Cookie(cookie) => Some(cookie.text(view, &peer.config().sid)),
            _ => None,
        }
    }

    /// A response has come so far: learns what session it makes.
    pub(crate) fn learn(
        &self,
        view: &View<'_, '_>,
        session: &[u8],
        (group, peer): (&Group, &Peer),
        when: LearnWhen,
    ) {
        let Kind::Learn(learn) = &self.kind else { return };
        if learn.when != when {
            return;
        }
        let made = first_of(&learn.create, view);
        match (&made[..], session) {
            (b"", b"") => {}
            (b"", session) => learn.note(session, (group, peer), Note::Known),
            (made, _) => learn.note(made, (group, peer), Note::Any),
        }
    }
}

fn first_of<'c>(variables: &[VariableId], view: &View<'_, 'c>) -> Text<'c> {
    let mut values = variables.iter().filter_map(|&id| view.variable(id));
    values.find(|value| !value.is_empty()).unwrap_or_default()
}

impl CookieConf {
    fn text(&self, view: &View<'_, '_>, sid: &[u8]) -> Vec<u8> {
        let mut text = [&self.name, &b"="[..], sid].concat();
        let mut add = |attribute: &str, value: &[u8]| {
            text.extend_from_slice(attribute.as_bytes());
            text.extend_from_slice(value);
        };
        match self.expires {
            Some(Expires::Max) => add(EXPIRES_MAX, b""),
            Some(Expires::AfterSeconds(seconds)) => {
                let until = i64::try_from(unix_ms() / 1000 + seconds).unwrap_or(i64::MAX);
                add("; expires=", date::cookie_date(until).as_bytes());
                add("; max-age=", seconds.to_string().as_bytes());
            }
            None => {}
        }
        let evaluated = |value: &Value| {
            let mut text = Vec::new();
            value.append(view, &mut text);
            text
        };
        let domain = self.domain.as_ref().map(evaluated).unwrap_or_default();
        if !domain.is_empty() {
            add("; domain=", &domain);
        }
        if self.http_only {
            add("; httponly", b"");
        }
        if self.secure {
            add("; secure", b"");
        }
        if let Some(same_site) = &self.same_site {
            match &evaluated(same_site)[..] {
                b"" => {}
                value if is_same_site(value) => add("; samesite=", value),
                _ => add("; samesite=", b"strict"),
            }
        }
        if let Some(path) = &self.path {
            add("; path=", path);
        }
        text
    }
}

pub(crate) fn is_same_site(value: &[u8]) -> bool {
    SAME_SITES.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(value))
}

/// Which sessions are noted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Note {
    /// The sessions that the zone knows.
    Known,
    /// All.
    Any,
}

impl Learn {
    fn find<'g>(&self, session: &[u8], group: &'g Group) -> Option<&'g [u8]> {
        if session.is_empty() {
            return None;
        }
        let held = self.zone.table().get(self.zone.hash(session))?;
        if held >> SID_BITS < self.oldest() {
            return None;
        }
        Some(&group.by_code(held & ((1 << SID_BITS) - 1))?.config().sid)
    }

    fn note(&self, session: &[u8], (group, peer): (&Group, &Peer), which: Note) {
        let code = group.code_of(&peer.config().sid);
        let oldest = self.oldest() << SID_BITS;
        assert!(code < 1 << SID_BITS, "a server's number stands below the time");
        debug_assert!(now_quarters() <= u64::MAX >> SID_BITS, "the time stands above the server's number");
        let held = now_quarters() << SID_BITS | code;
        debug_assert_eq!(held & ((1 << SID_BITS) - 1), code, "what is held leads to the server");
        // If others were faster a thousand times, the session is noted with its next response.
        let _ = self.zone.table().update(self.zone.hash(session), oldest, |before| match which {
            Note::Known if before.is_none_or(|before| before < oldest) => None,
            _ => Some(held),
        });
    }

    fn oldest(&self) -> u64 {
        now_quarters().saturating_sub(self.timeout_quarters)
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn now_quarters() -> u64 {
    unix_ms().saturating_sub(EPOCH_S * 1000) / 250
}
