//! `userid`: a cookie by which visitors are known again. A header filter sets it; what it is for a request
//! is found out, or made, once. Runs on loops.

mod directives;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use clearway_base::base64::{self, Alphabet};
use clearway_base::date;
use clearway_base::log::Level as LogLevel;
use clearway_http::{
    BodyFilter, ConfKey, ContextKey, Enabling, FilterSpec, Filtering, Lasts, Level, LocalAddress, Module,
    Own, Presence, Request, Setting, VariableId, VariableKind, VariableSpec, Verbatim, View, settings,
};

use directives::Flags;

/// The module. Its filter comes behind that of `add_header`.
pub static USERID: Module = Module {
    name: "userid",
    directives: directives::DIRECTIVES,
    confs: &[&USERID_CONF, &RESET_CONF],
    variables: VARIABLES,
    filters: &[FilterSpec { enabled: is_enabled, filter }],
    ..Module::EMPTY
};

/// How many characters of a cookie are the identifier; what follows is padding, or a mark.
const UID_CHARS: usize = 22;

static VARIABLES: &[VariableSpec] = &[
    VariableSpec {
        name: "uid_got",
        kind: VariableKind::Exact,
        doc: "Name and identifier of the cookie that the client has sent.",
        eval: |view, _, out| {
            let conf = view.request.conf(&USERID_CONF);
            let got = if *conf.state == UseridState::Off { None } else { conf.got(view.request) };
            put(conf, got.map(|got| got.uid), out)
        },
    },
    VariableSpec {
        name: "uid_set",
        kind: VariableKind::Exact,
        doc: "Name and identifier of the cookie that the client is sent.",
        eval: |view, _, out| {
            let conf = view.request.conf(&USERID_CONF);
            let sent = if conf.sets_cookies() { conf.sent(view) } else { None };
            put(conf, sent.map(|sent| sent.uid), out)
        },
    },
    VariableSpec {
        name: "uid_reset",
        kind: VariableKind::Changeable,
        doc: "To be given a value other than an empty one and `0` where the client is to get another cookie; \
              `log` has that logged.",
        eval: |_, _, _| Presence::Found,
    },
];

static USERID_CONF: ConfKey<UseridConf> = ConfKey::new(Level::Location);
/// `$uid_reset`, where there is a `userid`.
static RESET_CONF: ConfKey<Own<Option<VariableId>>> = ConfKey::new(Level::Main);

settings! {
    struct UseridConf {
        state: Setting<UseridState> = UseridState::Off,
        service: Setting<Option<u32>>,
        name: Setting<Bytes> = Bytes::from_static(b"uid"),
        domain: Setting<Option<Bytes>>,
        path: Setting<Bytes> = Bytes::from_static(b"/"),
        p3p: Setting<Option<Bytes>>,
        expires: Setting<Expires> = Expires::Session,
        mark: Setting<Option<u8>>,
        flags: Setting<Flags>,
    }
}

/// `userid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UseridState {
    Off,
    /// Cookies are read.
    Log,
    /// Cookies of the first version are set.
    V1,
    /// Cookies of the second version are set.
    On,
}

/// `userid_expires`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expires {
    /// With the browser's session.
    Session,
    /// In so many seconds.
    In(u64),
    /// At the end of 2037.
    Max,
}

/// An identifier, as it stands in the cookie in base64.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Uid([u8; 16]);

impl Uid {
    /// As four numbers of this machine, which is how nginx shows them.
    fn words(self) -> [u32; 4] {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(self.0.as_chunks::<4>().0) {
            *word = u32::from_ne_bytes(*bytes);
        }
        words
    }

    fn of_words(words: [u32; 4], bytes_of: fn(u32) -> [u8; 4]) -> Self {
        let mut bytes = [0; 16];
        for (place, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = bytes_of(word);
        }
        Self(bytes)
    }

    /// One whose last part is 0 is none.
    fn is_there(self) -> bool {
        self.words()[3] != 0
    }

    fn hex(self) -> String {
        self.words().map(|word| format!("{word:08X}")).concat()
    }
}

fn put(conf: &UseridConf, uid: Option<Uid>, out: &mut Vec<u8>) -> Presence {
    let text = uid.map(|uid| [&conf.name[..], b"=", uid.hex().as_bytes()].concat());
    Presence::put(text.as_deref(), out)
}

static VISITOR: ContextKey<Visitor> = ContextKey::new(Lasts::Common);

/// The state of the visitor of a request and all its subrequests.
#[derive(Default)]
struct Visitor {
    got: OnceLock<Option<Got>>,
    sent: OnceLock<Sent>,
}

/// A cookie that came.
#[derive(Clone)]
struct Got {
    uid: Uid,
    value: Vec<u8>,
}

/// A cookie that goes.
#[derive(Clone)]
struct Sent {
    uid: Uid,
    /// Identifier and mark, or padding.
    value: Vec<u8>,
}

fn is_enabled(enabling: &Enabling<'_>) -> bool {
    enabling.confs.of(&USERID_CONF).sets_cookies()
}

fn filter<'c>(filtering: &mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>> {
    if !filtering.request.is_main() {
        return None;
    }
    let conf = filtering.request.conf(&USERID_CONF);
    let sent = conf.sent(&filtering.view())?;
    let cookie = conf.cookie(&sent, filtering.request.now_unix_s());
    let headers = &mut filtering.head().headers;
    headers.add(b"Set-Cookie", cookie.as_ref());
    if let Some(p3p) = &*conf.p3p {
        headers.add(b"P3P", p3p);
    }
    None
}

impl UseridConf {
    fn sets_cookies(&self) -> bool {
        matches!(*self.state, UseridState::V1 | UseridState::On)
    }

    /// The cookie that the client has sent.
    fn got(&self, request: &Request<'_>) -> Option<Got> {
        let visitor = request.common_context(&VISITOR);
        visitor.got.get_or_init(|| self.read(request)).clone()
    }

    fn read(&self, request: &Request<'_>) -> Option<Got> {
        let cookie = request.cookie(&self.name)?;
        let log = |problem: &str| {
            let line = Verbatim(cookie.line);
            request.log(LogLevel::Error, format_args!("client sent {problem} userid cookie \"{line}\""));
        };
        let Some(text) = cookie.value.get(..UID_CHARS) else {
            log("too short");
            return None;
        };
        let Some(bytes) = base64::decode(text, Alphabet::Standard) else {
            log("invalid");
            return None;
        };
        let mut uid = [0; 16];
        uid[..bytes.len()].copy_from_slice(&bytes);
        Some(Got { uid: Uid(uid), value: cookie.value.to_vec() }).filter(|got| got.uid.is_there())
    }

    /// The cookie that the client is to be sent, if any.
    fn sent(&self, view: &View<'_, '_>) -> Option<Sent> {
        let visitor = view.request.common_context(&VISITOR);
        if let Some(sent) = visitor.sent.get() {
            return Some(sent.clone());
        }
        let sent = match self.got(view.request) {
            Some(got) if !self.is_reset(view, &got) => self.marked(got)?,
            _ => self.made(view.request),
        };
        Some(visitor.sent.get_or_init(|| sent).clone())
    }

    /// Whether the client is to get another one in place of what it has.
    fn is_reset(&self, view: &View<'_, '_>, got: &Got) -> bool {
        let reset = **view.request.main_conf(&RESET_CONF);
        let value = reset.and_then(|reset| view.variable(reset)).unwrap_or_default();
        if *value == *b"log" {
            let (name, uid) = (Verbatim(&self.name), got.uid.hex());
            view.request.log(LogLevel::Notice, format_args!("userid cookie \"{name}={uid}\" was reset"));
        }
        !matches!(&value[..], b"" | b"0")
    }

    /// The cookie of a client that does not have the mark it should have.
    fn marked(&self, got: Got) -> Option<Sent> {
        let mark = (*self.mark)?;
        if got.value.get(UID_CHARS..UID_CHARS + 2) == Some(&[mark, b'=']) {
            return None;
        }
        let value = [&got.value[..UID_CHARS], &[mark, b'=']].concat();
        Some(Sent { uid: got.uid, value })
    }

    fn made(&self, request: &Request<'_>) -> Sent {
        let now = request.now_unix_s() as u32;
        let uid = if *self.state == UseridState::V1 {
            let words = [self.service.unwrap_or(0), now, *START, next(&SEQUENCE_V1, 0)];
            Uid::of_words(words, u32::to_ne_bytes)
        } else {
            let service = self.service.unwrap_or_else(|| service_of(request));
            Uid::of_words([service, now, *START, next(&SEQUENCE_V2, SEQUENCE_V2_START)], u32::to_be_bytes)
        };
        let mut value = base64::encode(&uid.0);
        if let Some(mark) = *self.mark {
            value[UID_CHARS] = mark;
        }
        Sent { uid, value }
    }

    fn cookie(&self, sent: &Sent, now_s: i64) -> Vec<u8> {
        let mut cookie = [&self.name[..], b"=", &sent.value].concat();
        match *self.expires {
            Expires::Session => {}
            Expires::Max => cookie.extend_from_slice(b"; expires=Thu, 31-Dec-37 23:55:55 GMT"),
            Expires::In(seconds) => {
                let end = now_s.saturating_add(i64::try_from(seconds).unwrap_or(i64::MAX));
                cookie.extend_from_slice(b"; expires=");
                cookie.extend_from_slice(date::cookie_date(end).as_bytes());
            }
        }
        if let Some(domain) = &*self.domain {
            cookie.extend_from_slice(b"; domain=");
            cookie.extend_from_slice(domain);
        }
        cookie.extend_from_slice(b"; path=");
        cookie.extend_from_slice(&self.path);
        self.flags.texts().for_each(|text| cookie.extend_from_slice(text.as_bytes()));
        cookie
    }
}

/// Tells processes apart: when this one began, and its number.
static START: LazyLock<u32> = LazyLock::new(|| {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.subsec_micros() / 20) << 16 | std::process::id()
});

const SEQUENCE_STEP: u32 = 0x100;
const SEQUENCE_V2_START: u32 = 0x0303_0302;

static SEQUENCE_V1: AtomicU32 = AtomicU32::new(1);
static SEQUENCE_V2: AtomicU32 = AtomicU32::new(SEQUENCE_V2_START);

/// The next number, from `least` on.
fn next(sequence: &AtomicU32, least: u32) -> u32 {
    let step = |number: u32| number.wrapping_add(SEQUENCE_STEP).max(least);
    let taken = sequence.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |number| Some(step(number)));
    taken.unwrap_or_else(|number| number)
}

/// The service, if the configuration does not set it: the address of the server.
fn service_of(request: &Request<'_>) -> u32 {
    match request.local_address() {
        LocalAddress::Unix(_) => 0,
        LocalAddress::Inet(address) => match address.ip() {
            IpAddr::V4(ip) => ip.to_bits(),
            IpAddr::V6(ip) => ip.to_bits() as u32,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers() {
        let uid = Uid::of_words([0x7f00_0001, 1, 2, 0x0303_0302], u32::to_be_bytes);
        assert_eq!(uid.0[..4], [127, 0, 0, 1]);
        assert!(uid.is_there() && !Uid([0; 16]).is_there());
        let hex = if cfg!(target_endian = "little") { "0100007F" } else { "7F000001" };
        assert!(uid.hex().starts_with(hex) && uid.hex().len() == 32);
    }

    #[test]
    fn sequences_begin_anew() {
        let sequence = AtomicU32::new(u32::MAX - 0xff);
        assert_eq!(next(&sequence, 7), u32::MAX - 0xff);
        assert_eq!(next(&sequence, 7), 7);
        assert_eq!(next(&sequence, 7), 0x107);
    }

    #[test]
    fn cookies_as_nginx_writes_them() {
        let mut conf = UseridConf::default();
        let sent = Sent { uid: Uid([0; 16]), value: b"AAAA==".to_vec() };
        let text = |conf: &UseridConf| String::from_utf8(conf.cookie(&sent, 1_000_000_000)).unwrap();
        assert_eq!(text(&conf), "uid=AAAA==; path=/");
        conf.expires.set(Expires::Max);
        conf.domain.set(Some(Bytes::from_static(b"a.b")));
        assert_eq!(text(&conf), "uid=AAAA==; expires=Thu, 31-Dec-37 23:55:55 GMT; domain=a.b; path=/");
        conf.expires.set(Expires::In(60));
        assert_eq!(text(&conf), "uid=AAAA==; expires=Sun, 09-Sep-01 01:47:40 GMT; domain=a.b; path=/");
    }
}
