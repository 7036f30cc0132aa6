//! The site that is asked: a configuration for a listener without a socket, a module that answers with what a
//! path says, and what is written down of each request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use clearway_base::log::{Level as LogLevel, Record, Sink};
use clearway_conf::{Args, Spec};
use clearway_http::testing::load_http;
use clearway_http::{
    Chunk, ConfKey, Cost, Exchange, Generation, GenerationParts, Level, Listener, Mark, Module, Own,
    POSTPONE, Phase, PhaseHandler, Services, Snapshot, Step, Store, context, settings,
};
use clearway_metrics::{Put, Value};
use clearway_modules::access_control::limit_conn::LIMIT_CONN;
use clearway_modules::filters::addition::ADDITION;
use clearway_modules::filters::headers::HEADERS;
use clearway_modules::http2::HTTP2;
use clearway_modules::rewrite::REWRITE;
use clearway_proxy::directives::proxy::PROXY_MODULE;
use clearway_proxy::upstreams::{Lasting, UPSTREAM, balancers, keepalive, resolver};
use clearway_runtime::{Identities, LoopRef};
use clearway_sim::pattern;
use clearway_zone::Zones;

use crate::disks::{self, Disks};

/// What a request must not take from a client that gives it nothing, milliseconds.
pub(crate) const SHORTEST_TIMEOUT_MS: u64 = 5_000;

/// Of other servers.
pub(crate) const READ_TIMEOUT_MS: u64 = 3_000;

/// What `location /fixed/` says.
pub(crate) const FIXED: &str = "the same for all";

/// The size of the cache at most, bytes, and for how long an object is kept that nobody asks for, seconds.
const CACHE_BYTES: u64 = 400 << 10;
pub(crate) const INACTIVE_S: u64 = 30;

/// More requests than there are at once.
const PLACES: u64 = 1000;

/// The configuration. Disks are directories of the run's own; the other server is in memory, whatever its
/// address.
fn http(disks: &Disks) -> String {
    let [one, two] = &disks.directories[..] else { panic!("two") };
    format!(
        "
        proxy_cache_path {} levels=1:2 keys_zone=objects:64k use_temp_path=off disk={}
            inactive={INACTIVE_S}s max_size={CACHE_BYTES};
        limit_conn_zone all zone=places:64k;
        limit_conn places {PLACES};
        client_header_timeout {SHORTEST_TIMEOUT_MS}ms;
        client_body_timeout {SHORTEST_TIMEOUT_MS}ms;
        send_timeout {SHORTEST_TIMEOUT_MS}ms;
        keepalive_timeout {SHORTEST_TIMEOUT_MS}ms;
        keepalive_requests 6;
        client_body_buffer_size 256k;
        client_header_buffer_size 256;
        http2 on;
        upstream other {{ server 127.0.0.1:1 max_conns=4; queue 1000 timeout=600s; keepalive 3; }}
        server {{
            listen 127.0.0.1:8000;
            default_type text/html;
            add_header X-Path $request_uri always;
            location /bytes/ {{ answer bytes; }}
            location /echo/ {{ answer echo; }}
            location /fixed/ {{ return 200 \"{FIXED}\"; }}
            location /slow/ {{ answer bytes; limit_rate 20k; limit_rate_after 1000; }}
            location /around/ {{ answer bytes; add_before_body /part/1; add_after_body /part/2; }}
            location /part/ {{ answer part; }}
            location /missing/ {{ return 404; }}
            proxy_http_version 1.1;
            proxy_set_header Connection '';
            proxy_connect_timeout {READ_TIMEOUT_MS}ms;
            proxy_read_timeout {READ_TIMEOUT_MS}ms;
            proxy_send_timeout {READ_TIMEOUT_MS}ms;
            proxy_max_temp_file_size 0;
            proxy_next_upstream off;
            location /passed/ {{ proxy_pass http://other; }}
            location /streamed/ {{ proxy_pass http://other; proxy_request_buffering off; }}
            location ~ ^/cached/[0-9]+/(.+)$ {{
                proxy_pass http://other/object/$1;
                proxy_cache objects;
                proxy_cache_key $1;
                proxy_cache_valid 200 2s;
                proxy_cache_lock on;
                proxy_cache_lock_timeout 1s;
                proxy_cache_use_stale error timeout updating;
                proxy_cache_background_update on;
            }}
        }}",
        one.display(),
        two.display(),
    )
}

/// Answers with bytes of the request's pattern, its own body, or a small part; and writes requests down.
static ANSWER: Module = Module {
    name: "answer",
    directives: &[Spec {
        name: "answer",
        contexts: context::LOCATION,
        args: Args::TAKE1,
        syntax: "answer KIND",
        default: "",
        doc: "",
        example: "",
        see: &[],
        handler: |scope, directive| {
            *scope.conf.location(&ANSWERS).kind = match &directive.args[0][..] {
                b"bytes" => Answered::Bytes,
                b"echo" => Answered::Echo,
                _ => Answered::Part,
            };
            Ok(())
        },
    }],
    confs: &[&ANSWERS],
    phases: &[
        PhaseHandler {
            phase: Phase::Content,
            cost: Cost::Cheap,
            enabled: |enabling| *enabling.confs.of(&ANSWERS).kind != Answered::No,
            handler: |exchange| match *exchange.request.conf(&ANSWERS).kind {
                Answered::Echo => Step::Wait(Box::pin(echo(exchange))),
                Answered::Bytes | Answered::No => Step::Wait(Box::pin(send_bytes(exchange))),
                Answered::Part => Step::Wait(Box::pin(send_part(exchange))),
            },
        },
        PhaseHandler {
            phase: Phase::Log,
            cost: Cost::Cheap,
            enabled: |_| true,
            handler: |exchange| {
                note(&exchange);
                Step::Declined
            },
        },
    ],
    ..Module::EMPTY
};

static ANSWERS: ConfKey<Answers> = ConfKey::new(Level::Location);

settings! {
    struct Answers {
        kind: Own<Answered>,
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Answered {
    #[default]
    No,
    Bytes,
    Echo,
    Part,
}

/// The numbers of a path, `/name/NUMBER/NUMBER…`.
pub(crate) fn numbers(path: &[u8]) -> Vec<u64> {
    let path = std::str::from_utf8(path).expect("the client's paths are text");
    path.split('/').filter_map(|part| part.parse().ok()).collect()
}

/// `/bytes/ID/LENGTH/PIECE/PAUSE/KNOWN`
async fn send_bytes(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    let numbers = numbers(exchange.request.path());
    let &[id, length, piece, pause_ms, known] = &numbers[..] else { panic!("{numbers:?}") };
    let id = u32::try_from(id).expect("it is the client's");
    let head = exchange.output.head();
    head.status = 200;
    head.content_type = exchange.request.content_type().map(Into::into);
    head.content_length = (known == 1).then_some(length);
    let mut sent = 0;
    loop {
        let end = length.min(sent + piece);
        let bytes = (sent..end).map(|at| pattern(id, at)).collect();
        let mark = if end == length { Mark::Last } else { Mark::More };
        let _ = exchange.output.write(exchange.request, Chunk::Owned(bytes), mark);
        written().made.insert(id, end);
        sent = end;
        if mark == Mark::Last || exchange.output.ready(exchange.request).await.is_err() {
            return Step::Done;
        }
        if pause_ms > 0
            && let Err(answer) = exchange.pause(pause_ms).await
        {
            return Step::Respond(answer);
        }
    }
}

async fn echo(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    let body = match exchange.read_body(Store::AsConfigured).await {
        Ok(Some(body)) => body.read(0, usize::MAX).await.expect("it is in memory"),
        Ok(None) => Bytes::new(),
        Err(answer) => return Step::Respond(answer),
    };
    let head = exchange.output.head();
    head.status = 200;
    head.content_length = Some(body.len() as u64);
    let _ = exchange.output.write(exchange.request, Chunk::Owned(body.to_vec()), Mark::Last);
    Step::Done
}

/// What stands around a page.
pub(crate) fn part(number: u64) -> Vec<u8> {
    format!("[part {number}]").into_bytes()
}

async fn send_part(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    let numbers = numbers(exchange.request.path());
    exchange.output.head().status = 200;
    let _ = exchange.output.write(exchange.request, Chunk::Owned(part(numbers[0])), Mark::Last);
    Step::Done
}

/// What was written down.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Lines about each request: status and bytes of the body that were sent.
    pub(crate) lines: BTreeMap<u32, Vec<(u16, u64)>>,
    /// Lines about what had no path that is ours.
    pub(crate) others: usize,
    /// How much of a body was made so far.
    pub(crate) made: BTreeMap<u32, u64>,
    /// Lines of the error log that no peer is to cause.
    pub(crate) alerts: Vec<String>,
    /// Responses and objects of which the other server has sent all.
    pub(crate) sent_whole: BTreeSet<u32>,
    /// It has refused a connection.
    pub(crate) has_refused: bool,
}

static WRITTEN: Mutex<Written> = Mutex::new(Written {
    lines: BTreeMap::new(),
    others: 0,
    made: BTreeMap::new(),
    alerts: Vec::new(),
    sent_whole: BTreeSet::new(),
    has_refused: false,
});

/// What was written down since it was taken last.
pub(crate) fn written() -> MutexGuard<'static, Written> {
    WRITTEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note(exchange: &Exchange<'_, '_>) {
    if !exchange.request.is_main() {
        return;
    }
    let view = exchange.view();
    let value = |name: &str| {
        let value = view.variable_named(name.as_bytes()).unwrap_or_default();
        String::from_utf8_lossy(&value).into_owned()
    };
    let id = numbers(value("request_uri").as_bytes()).first().and_then(|&id| u32::try_from(id).ok());
    let line = (value("status").parse().unwrap_or(0), value("body_bytes_sent").parse().unwrap_or(0));
    let mut written = written();
    match id {
        Some(id) => written.lines.entry(id).or_default().push(line),
        None => written.others += 1,
    }
}

/// Keeps what is a mistake of the server's.
struct Alerts;

impl Sink for Alerts {
    fn enabled(&self, level: LogLevel) -> bool {
        level <= LogLevel::Crit
    }

    fn write(&self, record: &Record<'_>) {
        let message = record.message.to_string();
        if !disks::is_planned(&message) {
            written().alerts.push(message);
        }
    }
}

/// Where such lines go.
pub(crate) fn alerts() -> Arc<dyn Sink> {
    Arc::new(Alerts)
}

static MODULES: [&Module; 12] = [
    &HTTP2,
    &resolver::RESOLVER,
    &UPSTREAM,
    &balancers::BALANCERS,
    &keepalive::KEEPALIVE,
    &REWRITE,
    &HEADERS,
    &LIMIT_CONN,
    &ADDITION,
    &POSTPONE,
    &PROXY_MODULE,
    &ANSWER,
];

/// The server of one run.
pub(crate) struct Site {
    pub(crate) listener: Arc<Listener>,
    lasting: Arc<Lasting>,
    zones: Arc<Zones>,
}

impl Site {
    /// One with a configuration of its own, so that nothing is known from runs before.
    pub(crate) fn new(disks: &Disks, identities: &Arc<Identities>, home: LoopRef) -> Self {
        let lasting = Lasting::new(1);
        let snapshot = Arc::new(load(&http(disks), disks, &lasting));
        disks.zones.open().unwrap_or_else(|why| panic!("{}", String::from_utf8_lossy(&why)));
        disks.caches.begin();
        lasting.begin(&snapshot, home);
        let parts = GenerationParts { number: 1, snapshot, identities: Arc::clone(identities) };
        let listener = Arc::new(Listener::new(Generation::new(parts, drop), 0));
        Self { listener, lasting, zones: Arc::clone(&disks.zones) }
    }

    /// When no request is left none has a server, waits for one, or is counted by a limit.
    pub(crate) fn check_idle(&self) -> Result<(), String> {
        let sum = |show: &dyn Fn(&mut Put<'_>)| {
            let mut sum = 0;
            show(&mut |_, value| {
                if let Value::Number(number) = value {
                    sum += number;
                }
            });
            sum
        };
        let active = sum(&|put| self.lasting.put_active(put));
        let queued = sum(&|put| self.lasting.put_queued(put));
        if active + queued > 0 {
            return Err(format!("{active} attempts and {queued} waiters are left of an upstream"));
        }
        let places = self.zones.declare(b"places", 64 << 10, "limit_conn");
        let places = places.map_err(|_| "the zone of places is another")?;
        match places.count(b"all", 1) {
            Ok(_) => Ok(()),
            Err(why) => Err(format!("a place of limit_conn is not given back: {why:?}")),
        }
    }
}

fn load(http: &str, disks: &Disks, lasting: &Arc<Lasting>) -> Snapshot {
    let services = Services::default()
        .with(Arc::clone(lasting))
        .with(Arc::clone(&disks.zones))
        .with(Arc::clone(&disks.caches));
    load_http(http, &MODULES, &alerts(), services)
}
