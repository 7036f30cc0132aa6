//! A small part of nginx's directives, enough for its messages to be compared.

use clearway_conf::{Args, Block, Contexts, Directive, Error, Handler, Scope, Spec, Table, Template};
use std::time::Duration;

pub(crate) const MAIN: Contexts = Contexts::bit(0);
pub(crate) const EVENTS: Contexts = Contexts::bit(1);
pub(crate) const HTTP: Contexts = Contexts::bit(2);
pub(crate) const SERVER: Contexts = Contexts::bit(3);
pub(crate) const LOCATION: Contexts = Contexts::bit(4);
const LEVELS: Contexts = HTTP.or(SERVER).or(LOCATION);

/// What the directives of one level set.
#[derive(Debug, Default)]
pub(crate) struct Conf {
    pub(crate) events: Option<()>,
    pub(crate) http: Option<()>,
    pub(crate) daemon: Option<bool>,
    pub(crate) keepalive_requests: Option<u64>,
    pub(crate) client_header_buffer_size: Option<u64>,
    pub(crate) client_max_body_size: Option<u64>,
    pub(crate) client_header_timeout: Option<Duration>,
    pub(crate) large_client_header_buffers: Option<(u64, u64)>,
    pub(crate) client_body_in_file_only: Option<u8>,
    pub(crate) types: Vec<String>,
    pub(crate) lua: Vec<String>,
}

const fn spec(name: &'static str, contexts: Contexts, args: Args, handler: Handler<Conf>) -> Spec<Conf> {
    Spec { name, contexts, args, syntax: "", default: "", doc: "", example: "", see: &[], handler }
}

const BLOCK: Args = Args::BLOCK.or(Args::NOARGS);

static CORE: &[Spec<Conf>] = &[
    spec("user", MAIN, Args::TAKE12, accept),
    spec("daemon", MAIN, Args::FLAG, |s, d| d.set(&mut s.conf.daemon, |d| d.flag(0))),
    spec("events", MAIN, BLOCK, |s, d| {
        d.set(&mut s.conf.events, |_| Ok(()))?;
        s.block(d, EVENTS)
    }),
    spec("use", EVENTS, Args::TAKE1, accept),
    spec("http", MAIN, BLOCK, |s, d| {
        d.set(&mut s.conf.http, |_| Ok(()))?;
        s.block_into(d, HTTP, &mut Conf::default())
    }),
];

static HTTP_CORE: &[Spec<Conf>] = &[
    spec("server", HTTP, BLOCK, |s, d| s.block_into(d, SERVER, &mut Conf::default())),
    spec("location", SERVER.or(LOCATION), Args::BLOCK.or(Args::TAKE12), |s, d| {
        s.block_into(d, LOCATION, &mut Conf::default())
    }),
    spec("listen", SERVER, Args::ONE_MORE, accept),
    spec("types", LEVELS, BLOCK, |s, d| types(s.conf, d.block().expect("the rule says so"))),
    spec("keepalive_timeout", LEVELS, Args::TAKE12, accept),
    spec("keepalive_requests", LEVELS, Args::TAKE1, |s, d| {
        d.set(&mut s.conf.keepalive_requests, |d| d.number(0))
    }),
    spec("server_names_hash_max_size", HTTP, Args::TAKE1, |_, d| d.number_within(0, 1, None).map(drop)),
    spec("client_header_buffer_size", HTTP.or(SERVER), Args::TAKE1, |s, d| {
        d.set(&mut s.conf.client_header_buffer_size, |d| d.size(0))
    }),
    spec("client_max_body_size", LEVELS, Args::TAKE1, |s, d| {
        d.set(&mut s.conf.client_max_body_size, |d| d.offset(0))
    }),
    spec("client_header_timeout", HTTP.or(SERVER), Args::TAKE1, |s, d| {
        d.set(&mut s.conf.client_header_timeout, |d| d.msec(0))
    }),
    spec("large_client_header_buffers", HTTP.or(SERVER), Args::TAKE2, |s, d| {
        d.set(&mut s.conf.large_client_header_buffers, |d| d.buffers(0))
    }),
    spec("client_body_in_file_only", LEVELS, Args::TAKE1, |s, d| {
        let words = [("off", 0), ("on", 1), ("clean", 2)];
        d.set(&mut s.conf.client_body_in_file_only, |d| d.choice(0, &words))
    }),
    spec("return", SERVER.or(LOCATION), Args::TAKE12, |_, d| {
        let value = d.args.last().expect("the rule says so");
        Template::compile(value, &d.pos, |name| Ok(name.to_vec())).map(drop)
    }),
    spec("content_by_lua_block", LOCATION.or(HTTP), BLOCK, |s, d| {
        let code = &d.lua().expect("the rule says so").code;
        s.conf.lua.push(String::from_utf8_lossy(code).into_owned());
        Ok(())
    }),
];

pub(crate) fn table() -> Table<Conf> {
    Table::new(&[CORE, HTTP_CORE])
}

fn accept(_: &mut Scope<'_, Conf>, _: &Directive) -> Result<(), Error> {
    Ok(())
}

fn types(conf: &mut Conf, block: &Block) -> Result<(), Error> {
    block.entries(&mut |entry| {
        if entry.name == "include" {
            return Err(entry.error("invalid number of arguments in \"include\" directive"));
        }
        for extension in &entry.args {
            conf.types.push(String::from_utf8_lossy(extension).into_owned());
        }
        Ok(())
    })
}
