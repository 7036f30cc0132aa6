//! `ngx.balancer`: code sets the server of an attempt (`balancer_by_lua`).

use clearway_http::{BalancedKeepalive, BalancedPeer, Balancing, LastAttempt};
use clearway_luajit::{Call, Fault, Raise, Returns};
use clearway_net::url::{Names, UrlPath, UrlRules, parse_url};

use super::room::{Install, put};
use crate::current::{Args, Current, LuaPhase, Phases, current};

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("_balancer", |stack| {
        put(stack, "set_current_peer", set_current_peer);
        put(stack, "enable_keepalive", enable_keepalive);
        put(stack, "set_more_tries", set_more_tries);
        put(stack, "get_last_failure", get_last_failure);
        put(stack, "set_timeouts", set_timeouts);
        put(stack, "recreate_request", |call| {
            say(call, |balancing| {
                balancing.is_made_anew = true;
                Ok(())
            })
        });
        put(stack, "set_upstream_tls", |call| {
            let is_on = call.stack.is_true(1);
            say(call, |balancing| {
                balancing.tls = Some(is_on);
                Ok(())
            })
        });
        put(stack, "bind_to_local_addr", bind_to_local_addr);
    });
    install.run(include_str!("balancer.lua"), c"=ngx.balancer")
}

/// Changes what is said of the attempt: `true`, or nil and why not.
fn say(
    call: &mut Call<'_>,
    change: impl FnOnce(&mut Balancing) -> Result<(), String>,
) -> Result<Returns, Raise> {
    match with(call, change)? {
        Ok(()) => {
            call.stack.push(true);
            Ok(Returns::Values(1))
        }
        Err(text) => {
            call.stack.push(());
            call.stack.push(&*text);
            Ok(Returns::Values(2))
        }
    }
}

/// Where a server may have been asked already.
const AFTERWARDS: Phases = Phases::of(&[LuaPhase::HeaderFilter, LuaPhase::BodyFilter, LuaPhase::Log]);

fn with<R>(
    call: &mut Call<'_>,
    work: impl FnOnce(&mut Balancing) -> Result<R, String>,
) -> Result<Result<R, String>, Raise> {
    current(call, |current| with_attempt(current, work))
}

/// Does something with what is said of the attempt.
///
/// # Errors
/// There is none.
pub(super) fn with_attempt<R>(
    current: &mut Current<'_>,
    work: impl FnOnce(&mut Balancing) -> Result<R, String>,
) -> Result<R, String> {
    match &mut current.args {
        Args::Balancing(balancing) => work(balancing),
        _ if AFTERWARDS.has(current.phase) => Err("API disabled in the current context".to_owned()),
        _ => Err("no upstream found".to_owned()),
    }
}

/// The server that is asked.
///
/// # Errors
/// What is wrong with the address.
pub(super) fn choose_peer(
    balancing: &mut Balancing,
    address: &[u8],
    port: u16,
    host: Option<Vec<u8>>,
) -> Result<(), String> {
    let rules = UrlRules { default_port: port, path: UrlPath::Refused, names: Names::Kept };
    let url = parse_url(address, rules).map_err(|error| error.to_string())?;
    let remote = url.addresses.into_iter().next().ok_or("no host allowed")?;
    let host = host.filter(|host| !host.is_empty());
    balancing.peer = Some(BalancedPeer { remote, host });
    Ok(())
}

/// How long its connection is kept, and for how many requests.
///
/// # Errors
/// There is no server yet.
pub(super) fn keep_alive(
    balancing: &mut Balancing,
    timeout_ms: u64,
    requests_max: u32,
) -> Result<(), String> {
    if balancing.peer.is_none() {
        return Err("no current peer set".to_owned());
    }
    balancing.keepalive = Some(BalancedKeepalive { timeout_ms, requests_max });
    Ok(())
}

/// Attempts behind this one; whether they are fewer than was wanted.
pub(super) fn add_tries(balancing: &mut Balancing, wanted: i64) -> bool {
    let wanted = usize::try_from(wanted).unwrap_or(0);
    let total = (balancing.calls + balancing.tries).saturating_sub(1);
    let most = balancing.tries_max;
    let is_reduced = most > 0 && total + wanted > most;
    balancing.more_tries = if is_reduced { most.saturating_sub(total) } else { wanted };
    is_reduced
}

/// The warning for more attempts than are allowed.
pub(super) const REDUCED: &str = "reduced tries due to limit";

/// Milliseconds to connect, to send and to receive; 0 leaves one as it is.
pub(super) fn limit_times(balancing: &mut Balancing, said_ms: [u64; 3]) {
    for (timeout_ms, said_ms) in balancing.timeouts_ms.iter_mut().zip(said_ms) {
        if said_ms > 0 {
            *timeout_ms = Some(said_ms);
        }
    }
}

/// The address that the connection comes from.
///
/// # Errors
/// It is none.
pub(super) fn bind(balancing: &mut Balancing, text: &str) -> Result<(), String> {
    let address = text.parse().map(|ip: std::net::IpAddr| (ip, 0).into());
    let address = address.or_else(|_| text.parse()).map_err(|_| format!("invalid addr {text}"))?;
    balancing.local = Some(address);
    Ok(())
}

/// (address, port, name of the host or nil)
fn set_current_peer(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let address = call.text(1)?.to_vec();
    let port = call.number(2)? as i64 as u16;
    let host = if call.arguments() > 2 { call.stack.text(3).map(<[u8]>::to_vec) } else { None };
    say(call, |balancing| choose_peer(balancing, &address, port, host))
}

/// (milliseconds, requests)
fn enable_keepalive(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let (timeout_ms, requests_max) = (call.number(1)? as u64, call.number(2)? as u32);
    say(call, |balancing| keep_alive(balancing, timeout_ms, requests_max))
}

/// (number): true, and a warning where it is more than there may be.
fn set_more_tries(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let wanted = call.number(1)? as i64;
    let done = with(call, |balancing| Ok(add_tries(balancing, wanted)))?;
    match done {
        Ok(is_reduced) => {
            call.stack.push(true);
            if is_reduced {
                call.stack.push(REDUCED);
            }
            Ok(Returns::Values(1 + i32::from(is_reduced)))
        }
        Err(text) => {
            call.stack.push(());
            call.stack.push(&*text);
            Ok(Returns::Values(2))
        }
    }
}

/// nil where there was no attempt before; else how it ended, and its status.
fn get_last_failure(call: &mut Call<'_>) -> Result<Returns, Raise> {
    match with(call, |balancing| Ok(balancing.last))? {
        Ok(None) => {
            call.stack.push(());
            Ok(Returns::Values(1))
        }
        Ok(Some((last, status))) => {
            call.stack.push(match last {
                LastAttempt::Next => "next",
                LastAttempt::Failed => "failed",
            });
            call.stack.push(f64::from(status));
            Ok(Returns::Values(2))
        }
        Err(text) => {
            call.stack.push(());
            call.stack.push(());
            call.stack.push(&*text);
            Ok(Returns::Values(3))
        }
    }
}

/// (to connect, to send, to receive), milliseconds; 0 leaves one as it is.
fn set_timeouts(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let said_ms = [call.number(1)? as u64, call.number(2)? as u64, call.number(3)? as u64];
    say(call, |balancing| {
        limit_times(balancing, said_ms);
        Ok(())
    })
}

fn bind_to_local_addr(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let text = String::from_utf8_lossy(call.text(1)?).into_owned();
    say(call, |balancing| bind(balancing, &text))
}

#[cfg(test)]
mod tests {
    use crate::api::testing::Lua;

    #[test]
    fn elsewhere_nothing_can_be_said_and_wrong_arguments_are_refused() {
        let mut lua = Lua::new();
        lua.says(
            "local b = require 'ngx.balancer' \
             local ok, err = b.set_current_peer('127.0.0.1', 80) \
             return ok, err, b.set_more_tries(1)",
            "nil no upstream found nil no upstream found",
        );
        lua.raises("require('ngx.balancer').set_timeouts(0)", "bad connect timeout");
        lua.raises("require('ngx.balancer').enable_keepalive(-1)", "(expected >= 0)");
        lua.raises("require('ngx.balancer').set_current_peer('::1', 1, 2)", "(string expected, got number)");
    }
}
