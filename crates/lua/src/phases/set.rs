//! `set_by_lua`: code that computes a variable in its place among the directives of the rewrite module. It
//! cannot wait for anything but its VM. In the request's task.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::ready;

use bytes::Bytes;
use clearway_conf::error::message;
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};
use clearway_http::{Exchange, Load, Script, ScriptWait, Scripts, Step, Value, context};

use crate::code::Code;
use crate::current::{self, LuaPhase};
use crate::phases::at_once::{Over, finish, start};
use crate::phases::run::{choose, file_of};
use crate::request_state::RequestState;
use crate::vm::settings::LUA_MAIN;

/// Where the rewrite module has its directives.
pub(super) const PLACES: Contexts =
    context::SERVER.or(context::SERVER_IF).or(context::LOCATION).or(context::LOCATION_IF);

pub(super) static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "set_by_lua_block",
        contexts: PLACES,
        args: Args::BLOCK.or(Args::TAKE1),
        syntax: "set_by_lua_block $VARIABLE { … }",
        default: "",
        doc: "Gives a variable what the code returns, in its place among `set`, `if` and `rewrite`. The code \
              cannot wait: it has no `ngx.sleep` and the like.",
        example: "
            set_by_lua_block $bucket {
                return ngx.crc32_short(ngx.var.remote_addr) % 16
            }",
        see: &["set", "rewrite_by_lua_block"],
        handler: |scope, directive| {
            let text = directive.lua().map_or_else(Bytes::new, |lua| lua.code.clone());
            let code = Code::inline(&scope.conf.conf_prefix(), directive, text);
            append(scope, directive, code, &[])
        },
    },
    Spec {
        name: "set_by_lua",
        contexts: PLACES,
        args: Args::TWO_MORE,
        syntax: "set_by_lua $VARIABLE CODE [ARGUMENT …]",
        default: "",
        doc: "The same as `set_by_lua_block`, with the code as one argument, in which the escapes of the \
              configuration are resolved first. Further arguments, which may have variables in them, are \
              `ngx.arg[1]` and so on.",
        example: "
            set_by_lua $sum 'return ngx.arg[1] + ngx.arg[2]' $arg_a $arg_b;",
        see: &["set_by_lua_block"],
        handler: |scope, directive| {
            let code = Code::inline(&scope.conf.conf_prefix(), directive, directive.args[1].clone());
            append(scope, directive, code, &directive.args[2..])
        },
    },
    Spec {
        name: "set_by_lua_file",
        contexts: PLACES,
        args: Args::TWO_MORE,
        syntax: "set_by_lua_file $VARIABLE FILE [ARGUMENT …]",
        default: "",
        doc: "The same as `set_by_lua`, with code from a file, which is read when it is needed first. A \
              relative name is looked up where relative paths begin; it may have variables in it.",
        example: "
            set_by_lua_file $bucket conf/bucket.lua $remote_addr;",
        see: &["set_by_lua_block"],
        handler: |scope, directive| {
            let path = scope.conf.variables.compile(&directive.args[1], &directive.pos)?;
            append(scope, directive, Code::file(&directive.name, path), &directive.args[2..])
        },
    },
];

fn append(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    code: Arc<Code>,
    args: &[Bytes],
) -> Result<(), Error> {
    *scope.conf.main(&LUA_MAIN).is_used = true;
    let compile = |argument| scope.conf.variables.compile(argument, &directive.pos);
    let args = args.iter().map(compile).collect::<Result<_, _>>()?;
    append_script(scope, directive, Box::new(SetCode { code, args }))
}

/// Has a script set the variable that the first argument names.
///
/// # Errors
/// A name that cannot be set.
pub(super) fn append_script(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    script: Box<dyn Script>,
) -> Result<(), Error> {
    let argument = &directive.args[0];
    let Some(name) = argument.strip_prefix(b"$") else {
        return Err(directive.error(message(&[&"invalid variable name \"", argument, &"\""])));
    };
    let scripts = scope.conf.environment().services.find::<Scripts>().copied();
    let Some(Scripts(append)) = scripts else {
        return Err(directive.error("no rewrite module"));
    };
    append(scope, directive, name, script)
}

/// Code, and what it finds in `ngx.arg`.
struct SetCode {
    code: Arc<Code>,
    args: Vec<Value>,
}

impl Script for SetCode {
    fn run<'e>(&'e self, exchange: &'e mut Exchange<'_, '_>) -> ScriptWait<'e> {
        Box::pin(compute(exchange, self))
    }
}

/// A value as it is for a request.
pub(super) fn text_of(value: &Value, exchange: &Exchange<'_, '_>) -> Vec<u8> {
    let mut text = Vec::new();
    value.append(&exchange.view(), &mut text);
    text
}

async fn compute(exchange: &mut Exchange<'_, '_>, of: &SetCode) -> Result<Vec<u8>, Step<'static>> {
    let args: Vec<Vec<u8>> = of.args.iter().map(|value| text_of(value, exchange)).collect();
    let mut chosen = choose(exchange).await?;
    let code = &*of.code;
    let file = match file_of(exchange, code, &mut chosen).await {
        Ok(file) => file,
        Err(unread) => {
            unread.log(exchange.request);
            return Err(Step::status(500));
        }
    };
    let mut args = Some(args);
    let ended = poll_fn(|cx| {
        let (mut held, slot) = ready!(chosen.poll_with_slot(cx));
        RequestState::settle(exchange.request, &slot);
        let args = current::Args::Set(args.take().unwrap_or_default());
        let started = start(&mut held, code, file.as_ref());
        let ended = started.and_then(|started| finish(&mut held, started, LuaPhase::Set, exchange, args));
        if held.vm.is_poisoned() {
            slot.poison();
        }
        std::task::Poll::Ready(ended)
    })
    .await;
    match ended {
        Ok(Over { text, .. }) => Ok(text.unwrap_or_default()),
        Err(broken) => {
            broken.log(exchange.request, code);
            Err(Step::status(500))
        }
    }
}
