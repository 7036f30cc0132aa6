//! Code in handshakes: `ssl_client_hello_by_lua`, `ssl_certificate_by_lua` and those of sessions. It runs for
//! no request, as that of a timer does, and may wait where a client waits for it. In the connection's task.

use std::future::poll_fn;
use std::sync::Arc;

use clearway_base::log::{Level, Sink, Verbatim};
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};
use clearway_http::{
    About, Denied, HANDSHAKE_CODE, HandshakeCode, HandshakeCodes, HandshakeWait, Load, Module, Setting,
    Wishes, context, set,
};
use clearway_runtime::TaskCell;

use crate::alone::Alone;
use crate::code::{Code, CodeSource};
use crate::current::{LuaPhase, Pause};
use crate::phases::directives::{block_code, file_code_ahead};
use crate::phases::scheduler::{Ended, Failure, Ground, Schedule};
use crate::place::{AloneConf, AlonePlace, Tail};
use crate::request_state::Remembered;
use crate::shaking::Shaking;
use crate::vm::interpreter::Interpreter;
use crate::vm::of_loop::{Chosen, NoVm, Slot};
use crate::vm::settings::LUA_MAIN;
use crate::vm::vms::Described;

/// The module.
pub static LUA_HANDSHAKE: Module = Module { name: "lua_handshake", directives: DIRECTIVES, ..Module::EMPTY };

type Find = fn(&mut HandshakeCodes) -> &mut Setting<Option<Arc<dyn HandshakeCode>>>;

/// A directive in both of its forms.
macro_rules! code {
    // The directives beside a `_file` in its example come first.
    ($beside:literal, $((
        $contexts:expr, $name:literal, $phase:expr, $doc:literal, $example:literal, $see:expr, $find:expr
    )),* $(,)?) => {
        &[$(
            Spec {
                name: concat!($name, "_block"),
                contexts: $contexts,
                args: Args::BLOCK.or(Args::NOARGS),
                syntax: concat!($name, "_block { … }"),
                default: "",
                doc: $doc,
                example: $example,
                see: $see,
                handler: |scope, directive| {
                    let code = block_code(scope.conf, directive)?;
                    put(scope, directive, (code, $phase), $find)
                },
            },
            Spec {
                name: concat!($name, "_file"),
                contexts: $contexts,
                args: Args::TAKE1,
                syntax: concat!($name, "_file FILE"),
                default: "",
                doc: concat!("The same as `", $name, "_block`, with code from a file, which is read when VMs \
                              are made. A relative name is looked up where relative paths begin."),
                example: concat!("\n            ", $name, "_file conf/handshake.lua;", $beside),
                see: &[concat!($name, "_block")],
                handler: |scope, directive| {
                    let code = file_code_ahead(scope.conf, directive)?;
                    put(scope, directive, (code, $phase), $find)
                },
            },
        )*]
    };
}

pub(super) use code;

const SERVERS: Contexts = context::HTTP.or(context::SERVER);

static DIRECTIVES: &[Spec<Load>] = code![
    "",
    (
        SERVERS,
        "ssl_client_hello_by_lua",
        LuaPhase::SslClientHello,
        "Runs when a client has said hello, before its server is chosen: that of the address's default \
         server. It may look at what the client has said (`ngx.ssl.clienthello`), wait for sockets and the \
         like, say which versions are spoken (`set_protocols`), and refuse the client \
         (`ngx.exit(ngx.ERROR)`).",
        "
            ssl_client_hello_by_lua_block {
                local hello = require \"ngx.ssl.clienthello\"
                if hello.get_client_hello_server_name() == \"old.example.com\" then
                    hello.set_protocols({ \"TLSv1.2\" })
                end
            }",
        &["ssl_certificate_by_lua_block"],
        |codes| &mut codes.client_hello
    ),
    (
        SERVERS,
        "ssl_certificate_by_lua",
        LuaPhase::SslCertificate,
        "Runs when the server of a handshake is chosen, and says which certificates and keys the client is \
         shown (`ngx.ssl`). It may wait for sockets and the like. Where it sets none the client is shown \
         those of `ssl_certificate`, which the server needs in any case.",
        "
            ssl_certificate_by_lua_block {
                local ssl = require \"ngx.ssl\"
                assert(ssl.clear_certs())
                assert(ssl.set_der_cert(certificates[ssl.server_name()]))
                assert(ssl.set_der_priv_key(keys[ssl.server_name()]))
            }",
        &["ssl_client_hello_by_lua_block", "ssl_certificate"],
        |codes| &mut codes.certificate
    ),
    (
        context::HTTP,
        "ssl_session_fetch_by_lua",
        LuaPhase::SslSessionFetch,
        "Runs for a client that asks for a session, and may give it (`ngx.ssl.session`): from a server that \
         several machines share, say, for which it may wait.",
        "
            ssl_session_fetch_by_lua_block {
                local session = require \"ngx.ssl.session\"
                local text = sessions_of_all(session.get_session_id())
                if text then
                    session.set_serialized_session(text)
                end
            }",
        &["ssl_session_store_by_lua_block", "ssl_session_cache"],
        |codes| &mut codes.session_fetch
    ),
    (
        context::HTTP,
        "ssl_session_store_by_lua",
        LuaPhase::SslSessionStore,
        "Runs with each session that a client was given (`ngx.ssl.session`), in place of \
         `ssl_session_cache`. It cannot wait; what takes its time is for a timer.",
        "
            ssl_session_store_by_lua_block {
                local session = require \"ngx.ssl.session\"
                local id, text = session.get_session_id(), session.get_serialized_session()
                ngx.timer.at(0, function() store_for_all(id, text) end)
            }",
        &["ssl_session_fetch_by_lua_block", "ssl_session_cache"],
        |codes| &mut codes.session_store
    ),
];

fn put(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    (code, phase): (Arc<Code>, LuaPhase),
    find: Find,
) -> Result<(), Error> {
    *scope.conf.main(&LUA_MAIN).is_used = true;
    let setting = find(scope.conf.server(&HANDSHAKE_CODE));
    set(directive, setting, |_| Ok(Some(Arc::new(ShakingCode { code, phase }))))
}

/// Code of one directive.
struct ShakingCode {
    code: Arc<Code>,
    phase: LuaPhase,
}

impl HandshakeCode for ShakingCode {
    fn run(&self, about: About, wishes: Wishes) -> HandshakeWait {
        Box::pin(run(Arc::clone(&self.code), self.phase, about, wishes))
    }
}

/// The VM of a handshake: that of the phases before.
async fn choose(about: &About, before: Option<&Remembered>) -> Result<Arc<Slot>, Denied> {
    if let Some(before) = before.filter(|before| !before.slot.is_poisoned()) {
        return Ok(Arc::clone(&before.slot));
    }
    let vms = about.snapshot.conf(&LUA_MAIN).vms.get().cloned().ok_or(Denied)?;
    let of_loop = &vms[about.home];
    let chosen = poll_fn(|cx| of_loop.poll_choose(cx)).await.map_err(|why| no_vm(about, why))?;
    Ok(Arc::clone(chosen.slot()))
}

async fn run(code: Arc<Code>, phase: LuaPhase, about: About, mut wishes: Wishes) -> Result<Wishes, Denied> {
    let before = wishes.remembered.take().and_then(|before| before.downcast::<Remembered>().ok());
    let slot = choose(&about, before.as_deref()).await?;
    let before = before.filter(|before| Arc::ptr_eq(&before.slot, &slot));
    let alone = Arc::new(Alone {
        home: about.home,
        place: AlonePlace {
            sinks: about.sinks.as_slice().into(),
            tail: Tail {
                context: phase.context_name(),
                client: Some(about.peer.to_string().into_bytes().into()),
                server: Some(about.listen.as_str().into()),
                tid: about.identity,
                serial: Some(about.serial),
            },
            conf: conf_of(&about),
        },
        slot: Arc::clone(&slot),
        kept: TaskCell::default(),
        shaking: Some(Shaking::new(about, wishes)),
    });
    let mut chosen = Chosen::again(Arc::clone(&slot));
    let mut start = |interpreter: &mut Interpreter| {
        if let Some(before) = &before {
            alone.kept.enter().ctx = Some(interpreter.same(&before.ctx));
        }
        start(interpreter, &code)
    };
    let terms = Terms::of(phase);
    alone.log(Level::Debug, format_args!("reusable connection: 0"));
    alone.log(Level::Debug, format_args!("{}: connection reusable: 0", terms.action));
    let mut schedule = Schedule::new(phase);
    let ended = schedule.run(&mut Ground::Alone(&alone), &mut chosen, &mut start).await;
    let code = conclude(&alone, &terms, ended);
    let is_denied = terms.can_deny && (code == ERROR || code >= SPECIAL_RESPONSE);
    let (name, callback, taken) = (terms.name, terms.callback, u8::from(!is_denied && terms.can_deny));
    if schedule.has_waited() {
        alone.log(Level::Debug, format_args!("{name}: {callback} exit code: {taken}"));
    } else {
        let line = format_args!("{name}: handler return value: {code}, {callback} exit code: {taken}");
        alone.log(Level::Debug, line);
    }
    let mut wishes = alone.shaking.as_ref().map(Shaking::take_wishes).unwrap_or_default();
    if let Some(ctx) = alone.kept.enter().ctx.take() {
        if let Some(before) = &before {
            before.replace();
        }
        let about = alone.shaking.as_ref().map(|shaking| &shaking.about);
        let kept = about.and_then(|about| Remembered::new(slot, ctx, about));
        wishes.remembered = kept.map(|kept| -> clearway_http::Remembered { Arc::new(kept) });
    }
    if is_denied { Err(Denied) } else { Ok(wishes) }
}

/// `ngx.ERROR`.
pub(super) const ERROR: i32 = -1;
/// The first status that is no success.
pub(super) const SPECIAL_RESPONSE: i32 = 300;
/// The exit code for an error of the code.
pub(super) const INTERNAL_SERVER_ERROR: i32 = 500;

/// How upstream's lines speak of a phase, and what it may do.
struct Terms {
    action: &'static str,
    name: &'static str,
    callback: &'static str,
    /// Whether an error ends the handshake.
    can_deny: bool,
}

impl Terms {
    fn of(phase: LuaPhase) -> Self {
        let (action, name, callback, can_deny) = match phase {
            LuaPhase::SslClientHello => {
                ("ssl client hello", "ssl_client_hello_by_lua", "client hello cb", true)
            }
            LuaPhase::SslSessionFetch => {
                ("ssl session fetch", "ssl_session_fetch_by_lua*", "sess get cb", true)
            }
            LuaPhase::SslSessionStore => {
                ("ssl session store", "ssl_session_store_by_lua*", "sess new cb", false)
            }
            _ => ("ssl cert", "ssl_certificate_by_lua", "cert cb", true),
        };
        Self { action, name, callback, can_deny }
    }
}

fn no_vm(about: &About, why: NoVm) -> Denied {
    let text = match why {
        NoVm::Crowded => "too many wait for a Lua VM",
        NoVm::NotMade => "no Lua VM could be made",
    };
    about.sinks.iter().for_each(|sink| sink.log(Level::Error, format_args!("{text}")));
    Denied
}

/// The server's settings for the functions of the code.
fn conf_of(about: &About) -> AloneConf {
    AloneConf::of(about.snapshot.location(about.snapshot.server(about.server).base))
}

/// A thread for the code.
///
/// # Errors
/// It is no Lua, or its file was not there.
pub(super) fn start(
    interpreter: &mut Interpreter,
    code: &Code,
) -> Result<clearway_luajit::Coroutine, Failure> {
    if !interpreter.has_compiled(code) {
        match code.source() {
            CodeSource::Inline(_) => interpreter.compile(code).map_err(|fault| {
                Failure::Load([b"failed to load inlined Lua code: ", fault.text()].concat())
            })?,
            CodeSource::File(_) => {
                let name = code.directive();
                return Err(Failure::Load(format!("the file of {name}_file was not loaded").into_bytes()));
            }
        }
    }
    Ok(interpreter.start(code))
}

/// Logs how the code has failed; the number that it comes to.
fn conclude(alone: &Alone, terms: &Terms, ended: Ended) -> i32 {
    match ended {
        // The store's code has gone on behind its `ngx.exit`.
        Ended::Finished => 0,
        Ended::Asked(Pause::Exit(code)) => code,
        Ended::Failed(Failure::Load(line)) => {
            alone.log(Level::Error, format_args!("{}", Verbatim(&line)));
            INTERNAL_SERVER_ERROR
        }
        Ended::Failed(Failure::Run(fault)) => {
            let fault = Described(&fault);
            match terms.can_deny {
                true => {
                    alone.log(Level::Error, format_args!("lua entry thread aborted: runtime error: {fault}"));
                }
                false => {
                    alone.log(Level::Error, format_args!("failed to run session_store_by_lua*: {fault}"))
                }
            }
            INTERNAL_SERVER_ERROR
        }
        _ => ERROR,
    }
}
