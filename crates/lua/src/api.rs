//! The functions that Lua finds in `ngx`. Each file below is a *room*: a function that installs what it has
//! in a new VM, before any code of the configuration runs. Runs where VMs are made: a pool.
//!
//! To write one: a function item `fn(&mut Call) -> Result<Returns, Raise>` reads its arguments from
//! `call.stack` (slot 1 on), pushes what it answers and says how many values that are. What it is called
//! for, it gets by `current`. Host functions answer `nil, err`; they raise for wrong arguments only.

mod abort;
pub(crate) mod args;
pub mod arguments;
mod balancer;
mod body_socket;
mod capture;
mod compiled;
mod constants;
mod control;
mod core;
pub(crate) mod coroutine;
pub mod encoding;
#[cfg(feature = "tls")]
mod handshake;
mod header;
mod json;
mod loaded;
mod log;
pub mod modules;
mod ndk;
#[cfg(feature = "tls")]
mod ocsp;
pub(crate) mod output;
mod pipe;
mod properties;
pub mod regex;
mod request;
mod request_body;
mod resty_ffi;
pub mod room;
mod semaphore;
pub mod shared;
mod socket_options;
mod tcp;
mod tcp_connect;
#[cfg(test)]
pub(crate) mod testing;
pub mod time;
mod timer;
#[cfg(feature = "tls")]
mod tls;
mod udp;
mod variables;
pub(crate) mod worker_thread;

use clearway_luajit::{Fault, Vm};

pub use properties::say_configured;

use crate::vm::state::VmState;
use room::Install;

/// Installs what a room has.
pub type Room = fn(&mut Install<'_>) -> Result<(), Fault>;

/// All rooms, in this order.
const ROOMS: &[Room] = &[
    core::install,
    constants::install,
    coroutine::install,
    log::install,
    output::install,
    control::install,
    abort::install,
    capture::install,
    header::install,
    request::install,
    request_body::install,
    variables::install,
    properties::install,
    encoding::install,
    ndk::install,
    regex::install,
    shared::install,
    semaphore::install,
    balancer::install,
    body_socket::install,
    socket_options::install,
    tcp::install,
    #[cfg(feature = "tls")]
    tls::install,
    #[cfg(feature = "tls")]
    handshake::install,
    #[cfg(feature = "tls")]
    ocsp::install,
    udp::install,
    time::install,
    timer::install,
    worker_thread::install,
    resty_ffi::install,
    // Behind all that it puts something before.
    compiled::install,
    // Behind all that makes globals.
    modules::install,
    pipe::install,
    json::install,
    loaded::install,
];

/// Makes `ngx` and everything in it.
///
/// # Errors
/// What a chunk of the server's own Lua raised.
pub fn install(vm: &mut Vm, state: &mut VmState) -> Result<(), Fault> {
    {
        let mut stack = vm.enter();
        stack.push_globals();
        stack.push_table(0, 128);
        stack.raw_set_field(-2, "ngx");
        stack.pop(1);
    }
    let mut install = Install { vm, state };
    ROOMS.iter().try_for_each(|room| room(&mut install))
}

#[cfg(test)]
mod tests {
    use clearway_luajit::{Returns, Value};

    use super::room::put;

    use super::*;

    #[test]
    fn a_room_puts_functions_into_tables_of_ngx() {
        let mut vm = Vm::new(None).unwrap();
        let mut state = VmState::default();
        install(&mut vm, &mut state).unwrap();
        let mut install = Install { vm: &mut vm, state: &mut state };
        install.table("re", |stack| {
            put(stack, "twice", |call| {
                let number = call.number(1)?;
                call.stack.push(number * 2.0);
                Ok(Returns::Values(1))
            });
        });
        install.run("ngx.answer = ngx.re.twice(21)", c"=test").unwrap();
        install.table("", |stack| {
            stack.raw_field(-1, "answer");
            assert_eq!(stack.get(-1), Value::Number(42.0));
        });
    }

    #[test]
    fn what_needs_a_run_says_so_where_there_is_none() {
        let mut vm = Vm::new(None).unwrap();
        let mut state = VmState::default();
        install(&mut vm, &mut state).unwrap();
        let mut install = Install { vm: &mut vm, state: &mut state };
        install.table("", |stack| {
            put(stack, "phase", |call| {
                let phase = crate::current::current(call, |current| current.phase)?;
                call.stack.push(phase.name());
                Ok(Returns::Values(1))
            });
        });
        let fault = install.run("ngx.phase()", c"=test").unwrap_err();
        assert!(fault.to_string().ends_with("no request found"), "{fault}");
    }
}
