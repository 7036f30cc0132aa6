//! Code in handshakes with servers: `proxy_ssl_certificate_by_lua` and `proxy_ssl_verify_by_lua`. It runs for
//! the request, as a stage of its handler, and may wait. In the request's task.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use clearway_base::log::{Level, Verbatim};
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{
    Consulting, Denied, Exchange, Load, Met, Module, Request, Setting, UPSTREAM_CODE, UpstreamCode,
    UpstreamCodes, context, set,
};

use crate::code::Code;
use crate::current::{LuaPhase, Pause};
use crate::phases::directives::{block_code, file_code_ahead};
use crate::phases::filters::Entrance;
use crate::phases::handshake::{self, ERROR, INTERNAL_SERVER_ERROR, SPECIAL_RESPONSE, code};
use crate::phases::run::log_no_vm;
use crate::phases::scheduler::{Ended, Failure, Ground, Schedule};
use crate::request_state::RequestState;
use crate::shaking::Meeting;
use crate::vm::interpreter::Interpreter;
use crate::vm::settings::LUA_MAIN;
use crate::vm::vms::Described;

/// The module.
pub static LUA_UPSTREAM_HANDSHAKE: Module =
    Module { name: "lua_upstream_handshake", directives: DIRECTIVES, ..Module::EMPTY };

/// The module of the flag beside them.
pub static LUA_UPSTREAM_VERIFY: Module =
    Module { name: "lua_upstream_verify", directives: FLAGS, ..Module::EMPTY };

static FLAGS: &[Spec<Load>] = &[Spec {
    name: "lua_upstream_skip_openssl_default_verify",
    contexts: context::LOCATION,
    args: Args::FLAG,
    syntax: "lua_upstream_skip_openssl_default_verify on | off",
    default: "lua_upstream_skip_openssl_default_verify off;",
    doc: "Whether the code of `proxy_ssl_verify_by_lua_block` alone looks at the certificate of a server. \
          Where it is off, the code runs for certificates with which nothing is wrong otherwise.",
    example: "
            location /partners/ {
                lua_upstream_skip_openssl_default_verify on;
                proxy_ssl_verify_by_lua_file conf/partners.lua;
                proxy_pass https://127.0.0.1:8443;
            }",
    see: &["proxy_ssl_verify_by_lua_block", "proxy_ssl_verify"],
    handler: |scope, directive| {
        set(directive, &mut scope.conf.location(&UPSTREAM_CODE).skips_default, |directive| directive.flag(0))
    },
}];

type Find = fn(&mut UpstreamCodes) -> &mut Setting<Option<Arc<dyn UpstreamCode>>>;

static DIRECTIVES: &[Spec<Load>] = code![
    "\n            proxy_pass https://127.0.0.1:8443;",
    (
        context::LOCATION,
        "proxy_ssl_certificate_by_lua",
        LuaPhase::ProxySslCertificate,
        "Runs when the server that a request is passed to asks for a certificate, and says which one it is \
         shown (`ngx.ssl.proxysslcert`), in place of that of `proxy_ssl_certificate`. It may wait for \
         sockets and the like, for as long as `proxy_connect_timeout` lets it.",
        "
            location / {
                proxy_ssl_certificate_by_lua_block {
                    local shown = require \"ngx.ssl.proxysslcert\"
                    assert(shown.set_der_cert(certificates[ngx.var.host]))
                    assert(shown.set_der_priv_key(keys[ngx.var.host]))
                }
                proxy_pass https://127.0.0.1:8443;
            }",
        &["proxy_ssl_certificate", "proxy_ssl_verify_by_lua_block"],
        |codes| &mut codes.certificate
    ),
    (
        context::LOCATION,
        "proxy_ssl_verify_by_lua",
        LuaPhase::ProxySslVerify,
        "Runs with the certificate of the server that a request is passed to (`ngx.ssl.proxysslverify`), \
         before the request is sent. It may refuse it (`ngx.exit(ngx.ERROR)`, or a number of OpenSSL's with \
         `set_verify_result` where `proxy_ssl_verify` is on), and wait, for as long as \
         `proxy_connect_timeout` lets it.",
        "
            location / {
                proxy_ssl_verify_by_lua_block {
                    local server = require \"ngx.ssl.proxysslverify\"
                    if not is_known(server.get_verify_cert()) then
                        ngx.exit(ngx.ERROR)
                    end
                }
                proxy_pass https://127.0.0.1:8443;
            }",
        &["proxy_ssl_verify", "lua_upstream_skip_openssl_default_verify"],
        |codes| &mut codes.verify
    ),
];

fn put(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    (code, phase): (Arc<Code>, LuaPhase),
    find: Find,
) -> Result<(), Error> {
    *scope.conf.main(&LUA_MAIN).is_used = true;
    let setting = find(scope.conf.location(&UPSTREAM_CODE));
    set(directive, setting, |_| Ok(Some(Arc::new(MeetingCode { code, phase }))))
}

/// Code of one directive.
struct MeetingCode {
    code: Arc<Code>,
    phase: LuaPhase,
}

impl UpstreamCode for MeetingCode {
    fn begin(&self) -> Box<dyn Consulting> {
        Box::new(Run {
            code: Arc::clone(&self.code),
            phase: self.phase,
            entrance: None,
            schedule: Schedule::new(self.phase),
        })
    }

    fn name(&self) -> &'static str {
        match self.phase {
            LuaPhase::ProxySslVerify => "proxy_ssl_verify_by_lua",
            _ => "proxy_ssl_certificate_by_lua",
        }
    }
}

/// Code that runs.
struct Run {
    code: Arc<Code>,
    phase: LuaPhase,
    entrance: Option<Entrance>,
    schedule: Schedule,
}

impl Consulting for Run {
    fn poll(
        &mut self,
        exchange: &mut Exchange<'_, '_>,
        met: &mut Met,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Denied>> {
        let entrance = match &mut self.entrance {
            Some(entrance) => entrance,
            none => {
                let Some(entrance) = enter(exchange, self.phase, met) else {
                    return Poll::Ready(Err(Denied));
                };
                none.insert(entrance)
            }
        };
        let chosen = match ready!(entrance.poll(exchange.request, cx)) {
            Ok(chosen) => chosen,
            Err(why) => {
                log_no_vm(exchange.request, why);
                return Poll::Ready(Err(Denied));
            }
        };
        let code = &self.code;
        let mut start = |interpreter: &mut Interpreter| handshake::start(interpreter, code);
        let mut ground = Ground::Request(exchange);
        let ended = ready!(self.schedule.poll_ended(&mut ground, chosen, &mut start, cx));
        let comes_to = conclude(exchange.request, ended);
        Poll::Ready(leave(exchange, self.phase, met, (comes_to, self.schedule.has_waited())))
    }
}

/// Notes what was met, and finds the VM.
fn enter(exchange: &mut Exchange<'_, '_>, phase: LuaPhase, met: &mut Met) -> Option<Entrance> {
    if RequestState::of(exchange.request).is_none() {
        RequestState::begin(exchange.request);
    }
    let what = if phase == LuaPhase::ProxySslVerify { "verify" } else { "cert" };
    exchange.request.log(Level::Debug, format_args!("proxy ssl {what}: connection reusable: 0"));
    let state = RequestState::of(exchange.request)?;
    state.kept.enter().meeting = Some(Meeting::new(std::mem::take(met)));
    Entrance::of(exchange.request)
}

/// Hands over what the code has said.
fn leave(
    exchange: &Exchange<'_, '_>,
    phase: LuaPhase,
    met: &mut Met,
    (comes_to, has_waited): (i32, bool),
) -> Result<(), Denied> {
    let meeting = RequestState::of(exchange.request).and_then(|state| state.kept.enter().meeting.take());
    if let Some(meeting) = meeting {
        *met = meeting.into_met();
    }
    let is_denied = comes_to == ERROR || comes_to >= SPECIAL_RESPONSE;
    let (name, callback) = match phase {
        LuaPhase::ProxySslVerify => ("proxy_ssl_verify_by_lua", "cert verify callback"),
        _ => ("proxy_ssl_certificate_by_lua", "cert cb"),
    };
    let taken = u8::from(!is_denied);
    if has_waited {
        exchange.request.log(Level::Debug, format_args!("{name}: {callback} exit code: {taken}"));
    } else {
        let line = format_args!("{name}: handler return value: {comes_to}, {callback} exit code: {taken}");
        exchange.request.log(Level::Debug, line);
    }
    if is_denied { Err(Denied) } else { Ok(()) }
}

/// Logs how the code has failed; the number that it comes to.
fn conclude(request: &Request<'_>, ended: Ended) -> i32 {
    match ended {
        Ended::Finished => 0,
        Ended::Asked(Pause::Exit(code)) => code,
        Ended::Failed(Failure::Load(line)) => {
            request.log(Level::Error, format_args!("{}", Verbatim(&line)));
            INTERNAL_SERVER_ERROR
        }
        Ended::Failed(Failure::Run(fault)) => {
            let fault = Described(&fault);
            request.log(Level::Error, format_args!("lua entry thread aborted: runtime error: {fault}"));
            INTERNAL_SERVER_ERROR
        }
        _ => ERROR,
    }
}
