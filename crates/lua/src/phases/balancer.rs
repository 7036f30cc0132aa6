//! `balancer_by_lua`: code that chooses the server of each attempt of a request. It cannot wait for anything
//! but its VM, which the request waits for before the attempt. In the request's task.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use clearway_base::units::parse_number;
use clearway_conf::error::{message, printed};
use clearway_conf::{Args as Arguments, Directive, Error, Scope, Spec};
use clearway_http::{
    Balanced, Balancer, Balancers, Balancing, Choosing, Exchange, Load, Module, Said, context,
};

use crate::code::Code;
use crate::current::{Args, LuaPhase, Pause};
use crate::phases::at_once::run_at_once;
use crate::phases::directives::{block_code, file_code_ahead};
use crate::phases::filters::Entrance;
use crate::phases::run::log_no_vm;
use crate::request_state::RequestState;
use crate::vm::settings::LUA_MAIN;

/// The module.
pub static LUA_BALANCER: Module = Module { name: "lua_balancer", directives: DIRECTIVES, ..Module::EMPTY };

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "balancer_by_lua_block",
        contexts: context::UPSTREAM,
        args: Arguments::BLOCK.or(Arguments::NOARGS),
        syntax: "balancer_by_lua_block { … }",
        default: "",
        doc: "Chooses the server of each attempt of a request with `ngx.balancer`, in place of the group's \
              rule, which has its say where no server is set. The group needs no `server` then. The code \
              cannot wait: it has no sockets and no `ngx.sleep`.",
        example: "
            upstream backend {
                balancer_by_lua_block {
                    local balancer = require \"ngx.balancer\"
                    assert(balancer.set_current_peer(\"127.0.0.1\", 8081))
                }
            }",
        see: &["balancer_by_lua_file", "balancer_keepalive", "upstream"],
        handler: |scope, directive| {
            let code = block_code(scope.conf, directive)?;
            choose_by(scope, directive, code)
        },
    },
    Spec {
        name: "balancer_by_lua_file",
        contexts: context::UPSTREAM,
        args: Arguments::TAKE1,
        syntax: "balancer_by_lua_file FILE",
        default: "",
        doc: "The same as `balancer_by_lua_block`, with code from a file, which is read when VMs are made. A \
              relative name is looked up where relative paths begin.",
        example: "
            upstream backend {
                balancer_by_lua_file conf/balancer.lua;
            }",
        see: &["balancer_by_lua_block"],
        handler: |scope, directive| {
            let code = file_code_ahead(scope.conf, directive)?;
            choose_by(scope, directive, code)
        },
    },
    Spec {
        name: "balancer_keepalive",
        contexts: context::UPSTREAM,
        args: Arguments::TAKE1,
        syntax: "balancer_keepalive CONNECTIONS",
        default: "balancer_keepalive 32;",
        doc: "How many connections each loop keeps of those for which code has called \
              `ngx.balancer.enable_keepalive`. Where `keepalive` says more, that holds.",
        example: "
            upstream backend {
                balancer_by_lua_file conf/balancer.lua;
                balancer_keepalive 100;
            }",
        see: &["balancer_by_lua_block", "keepalive"],
        handler: |scope, directive| {
            let number = parse_number(&directive.args[0]).filter(|&number| number > 0);
            let number = number.ok_or_else(|| {
                let value = printed(&directive.args[0]);
                directive.error(message(&[
                    &"invalid value \"",
                    &value,
                    &"\" in \"balancer_keepalive\" directive",
                ]))
            })?;
            tell(scope, directive, Said::Keepalive(u32::try_from(number).unwrap_or(u32::MAX)))
        },
    },
];

fn choose_by(scope: &mut Scope<'_, Load>, directive: &Directive, code: Arc<Code>) -> Result<(), Error> {
    *scope.conf.main(&LUA_MAIN).is_used = true;
    tell(scope, directive, Said::Balancer(Arc::new(BalancerCode { code })))
}

fn tell(scope: &mut Scope<'_, Load>, directive: &Directive, said: Said) -> Result<(), Error> {
    let balancers = scope.conf.environment().services.find::<Balancers>().copied();
    let Some(Balancers(set)) = balancers else {
        return Err(directive.error("no upstream module"));
    };
    set(scope, directive, said)
}

/// Code of a group.
struct BalancerCode {
    code: Arc<Code>,
}

impl Balancer for BalancerCode {
    fn begin(&self) -> Box<dyn Choosing> {
        Box::new(Attempt { code: Arc::clone(&self.code), entrance: None })
    }
}

/// Waits for the VM, once for each attempt.
struct Attempt {
    code: Arc<Code>,
    entrance: Option<Entrance>,
}

impl Choosing for Attempt {
    fn poll(
        &mut self,
        exchange: &mut Exchange<'_, '_>,
        balancing: &mut Balancing,
        cx: &mut Context<'_>,
    ) -> Poll<Balanced> {
        if RequestState::of(exchange.request).is_none() {
            RequestState::begin(exchange.request);
        }
        let entrance = match &mut self.entrance {
            Some(entrance) => entrance,
            none => match Entrance::of(exchange.request) {
                Some(entrance) => none.insert(entrance),
                None => return Poll::Ready(Balanced::Ends(500)),
            },
        };
        let chosen = match ready!(entrance.poll(exchange.request, cx)) {
            Ok(chosen) => chosen,
            Err(why) => return Poll::Ready(Balanced::Ends(log_no_vm(exchange.request, why))),
        };
        let is_settled = chosen.is_settled();
        let (mut held, slot) = ready!(chosen.poll_with_slot(cx));
        if !is_settled {
            RequestState::settle(exchange.request, &slot);
        }
        let args = Args::Balancing(Box::new(std::mem::take(balancing)));
        let outcome = run_at_once(&mut held, (&*self.code, None), LuaPhase::Balancer, exchange, args);
        if held.vm.is_poisoned() {
            slot.poison();
        }
        drop(held);
        match outcome {
            Ok(over) => {
                if let Args::Balancing(said) = over.args {
                    *balancing = *said;
                }
                Poll::Ready(outcome_of(over.pause))
            }
            Err(broken) => {
                broken.log(exchange.request, &self.code);
                Poll::Ready(Balanced::Ends(500))
            }
        }
    }
}

/// The meaning of `ngx.exit` in a balancer. `ngx.ERROR` and statuses below 300 end the request with 500;
/// `ngx.OK` has no effect.
fn outcome_of(pause: Option<Pause>) -> Balanced {
    const BUSY: i32 = -3;
    const DECLINED: i32 = -5;
    match pause {
        Some(Pause::Exit(BUSY)) => Balanced::NoneAlive,
        Some(Pause::Exit(DECLINED)) => Balanced::Failed,
        Some(Pause::Exit(status @ 300..)) => Balanced::Ends(u16::try_from(status).unwrap_or(500)),
        Some(Pause::Exit(-1 | 1..)) => Balanced::Ends(500),
        _ => Balanced::Goes,
    }
}
