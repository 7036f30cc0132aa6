//! `lua PROOF`: what is promised of Lua. `blocked`: connections without Lua, and healthy Lua, beside a
//! location whose Lua spins or sleeps; `soak`: the same for minutes; `cpu`: CPU per request of what is
//! short; `garbage`: what a request leaves behind; `loops`: `incr` from two loops; `report`: what a report
//! says of a workload that blocks; `reload`: reloads under a load of Lua, some of which fail. `redis`,
//! `capture`, `threads`: what waits beside requests; `faults`: servers of sockets that fail, and clients that
//! leave; `worker-thread`: calls that run in threads of pools, and their VMs; `plugins`: tasks of a plugin in
//! C; `remedies`: handlers that block, seen by others, and the same work elsewhere.

mod beside;
mod blocked;
mod calls;
mod faults;
mod figures;
mod reloads;
mod report;

use clearway_testkit::{Binary, Product};

use crate::args::Args;
use crate::servers;

const USAGE: &str = "lua blocked | soak MINUTES | cpu | garbage | loops | report | reload | redis | \
                     capture | threads | faults MINUTES | worker-thread | plugins | \
                     remedies";

pub(crate) fn command(mut args: Args) -> Result<(), String> {
    let words = args.words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["blocked"] => blocked::command(args),
        ["soak", minutes] => {
            let minutes = minutes.parse().map_err(|_| format!("{minutes}: not a number of minutes"))?;
            blocked::soak(args, minutes)
        }
        ["cpu"] => figures::cpu(args),
        ["garbage"] => figures::garbage(args),
        ["loops"] => figures::loops(args),
        ["report"] => report::command(args),
        ["reload"] => reloads::command(args),
        ["redis"] => beside::redis(args),
        ["capture"] => beside::capture(args),
        ["threads"] => beside::threads(args),
        ["faults", minutes] => {
            let minutes = minutes.parse().map_err(|_| format!("{minutes}: not a number of minutes"))?;
            faults::command(args, minutes)
        }
        ["worker-thread"] => calls::command(args),
        ["plugins"] => calls::plugins(args),
        ["remedies"] => blocked::remedies(args),
        _ => Err(USAGE.to_owned()),
    }
}

/// The program of a server of a `--servers` list, and what its configuration begins with.
fn server(name: &str) -> Result<(Binary, String), String> {
    match name {
        "clearway" => Ok((Binary::under_test(), String::new())),
        "nginx" => Ok((Binary::oracle(), servers::lua_modules())),
        _ => Err(format!("--servers {name}: clearway or nginx")),
    }
}

/// The server under test, which may be an nginx with Lua.
fn under_test() -> (Binary, String) {
    let binary = Binary::under_test();
    let main = if binary.product == Product::Nginx { servers::lua_modules() } else { String::new() };
    (binary, main)
}

/// What a proof comes to: nothing, or all that was not as it was promised.
fn verdict(promises: &[(bool, String)]) -> Result<(), String> {
    let broken: Vec<&str> =
        promises.iter().filter(|(kept, _)| !kept).map(|(_, what)| what.as_str()).collect();
    if broken.is_empty() {
        println!("good");
        return Ok(());
    }
    Err(broken.join("; "))
}
