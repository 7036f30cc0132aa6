//! Where Lua is, told from a signal and from another thread; and the end of what runs for too long.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test has no loop to block")]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clearway_luajit::registry::Run;
use clearway_luajit::samples::Sampler;
use clearway_luajit::walk::{Activity, LuaStack};
use clearway_luajit::{Call, FaultKind, Resumed, Returns, Vm};
use clearway_os::{sampling, thread};

/// A thread that is in one handler over and over again, until it is told to end or the handler fails.
struct Busy {
    tid: u32,
    stack: Range<usize>,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Option<FaultKind>>,
}

impl Busy {
    fn start(code: impl Into<String>) -> Self {
        Self::start_limited(code, None)
    }

    fn start_limited(code: impl Into<String>, limit: Option<Duration>) -> Self {
        let code = code.into();
        let ends = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        let told = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            let mut vm = Vm::new(None).unwrap();
            vm.limit_runs(limit, None);
            let mut stack = vm.enter();
            stack.push_globals();
            stack.push_function(|call: &mut Call<'_>| {
                std::thread::sleep(Duration::from_micros(call.number(1)? as u64));
                Ok(Returns::Values(0))
            });
            stack.raw_set_field(-2, "doze");
            stack.pop(1);
            let handler = vm.load(code.as_bytes(), c"@/etc/lua/handler.lua").unwrap();
            let here = 0_u8;
            let base = (&raw const here).addr();
            sampling::allow();
            sender.send((thread::current(), base - (1 << 20)..base)).unwrap();
            while !told.load(Ordering::Relaxed) {
                let mut coroutine = vm.start(&handler);
                match vm.resume(&mut coroutine) {
                    Resumed::Finished(_) => assert!(vm.give_back(coroutine)),
                    Resumed::Failed(fault) if fault.kind() == FaultKind::TimeLimit => {
                        assert!(!fault.traceback().is_empty());
                        return Some(fault.kind());
                    }
                    other => panic!("{other:?}"),
                }
            }
            None
        });
        let (tid, stack) = receiver.recv().unwrap();
        Self { tid, stack, ends, thread }
    }

    fn end(self) -> Option<FaultKind> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }

    /// What `count` samples in Lua say.
    fn sampled(&self, count: usize) -> Vec<LuaStack> {
        let sampler = Sampler::start(self.tid, self.stack.end, Duration::from_millis(1)).unwrap();
        let (begun, mut native, mut found) = (Instant::now(), Vec::new(), Vec::new());
        while found.len() < count {
            assert!(begun.elapsed() < Duration::from_secs(120), "{} samples", found.len());
            let mut lua = LuaStack::default();
            if sampler.take(&mut native, &mut lua).is_some() {
                found.push(lua);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        found
    }
}

/// Whether the innermost function of Lua is in the file, between these lines. Where compiled code has
/// called the collector the line is not known, but the function is.
fn is_at(stack: &LuaStack, lines: Range<u32>) -> bool {
    let frame = stack.frames().iter().find(|frame| frame.native == 0);
    frame.is_some_and(|frame| {
        let line = if stack.activity == Activity::Collecting { frame.first_line } else { frame.line };
        frame.chunk() == b"/etc/lua/handler.lua" && lines.contains(&line)
    })
}

/// At least 95 of 100.
fn assert_most(stacks: &[LuaStack], lines: Range<u32>) {
    let hits = stacks.iter().filter(|stack| is_at(stack, lines.clone())).count();
    let missed = stacks.iter().find(|stack| !is_at(stack, lines.clone()));
    assert!(hits * 100 >= stacks.len() * 95, "{hits} of {}, not {missed:?}", stacks.len());
}

const SUMS: &str = "local function inner(n)
  local s = 0
  for i = 1, n do
    s = s + i % 7
  end
  return s
end
local t = 0
for i = 1, 50 do
  t = t + inner(100000)
end
return t";

#[test]
fn compiled_code_is_found_with_its_function_and_callers() {
    let busy = Busy::start(SUMS);
    // It is interpreted until it is compiled.
    busy.sampled(5);
    let stacks = busy.sampled(100);
    busy.end();
    assert_most(&stacks, 1..12);
    let compiled = stacks.iter().filter(|stack| stack.activity == Activity::Compiled);
    let (mut count, mut with_caller) = (0, 0);
    for stack in compiled {
        count += 1;
        let is_called = stack.frames().iter().any(|frame| frame.line == 10 && frame.first_line == 1);
        with_caller += usize::from(is_called);
    }
    assert!(count >= 90, "{count} of 100 compiled");
    assert!(with_caller * 100 >= count * 95, "{with_caller} of {count} with the caller");
}

#[test]
fn interpreted_code_is_found_with_its_function_and_callers() {
    let busy = Busy::start(format!("jit.off(true, true) {SUMS}"));
    let stacks = busy.sampled(100);
    busy.end();
    assert_most(&stacks, 3..6);
    let interpreted = stacks.iter().filter(|stack| stack.activity == Activity::Interpreted).count();
    assert!(interpreted >= 90, "{interpreted} of 100 interpreted");
    let is_called = |stack: &&LuaStack| stack.frames().iter().any(|frame| frame.line == 10);
    let with_caller = stacks.iter().filter(is_called).count();
    assert!(with_caller >= 95, "{with_caller} with the caller");
}

#[test]
fn garbage_and_functions_of_c_are_found_below_their_callers() {
    let busy = Busy::start(
        "local t = {}
for i = 1, 20000 do
  t[i % 100] = { tostring(i), ('x'):rep(i % 50):upper() }
end
return #t",
    );
    let stacks = busy.sampled(100);
    busy.end();
    assert_most(&stacks, 1..6);
}

/// What other threads say of one that sleeps in `doze`.
fn sleeping(code: &'static str, lines: Range<u32>) {
    let busy = Busy::start(code);
    let (begun, mut stacks) = (Instant::now(), Vec::new());
    while stacks.len() < 100 {
        assert!(begun.elapsed() < Duration::from_secs(120), "{} looks", stacks.len());
        std::thread::sleep(Duration::from_millis(1));
        let Some(run) = Run::on(&busy.stack) else { continue };
        let mut stack = LuaStack::default();
        stack.read(&run, None);
        if run.goes_on() {
            stacks.push(stack);
        }
    }
    busy.end();
    assert_most(&stacks, lines);
}

#[test]
fn a_thread_that_sleeps_is_read_by_another_one() {
    sleeping("local function nap()\n  doze(20000)\nend\nnap()\nreturn 1", 2..3);
}

#[test]
fn a_thread_that_sleeps_in_a_function_of_the_ffi_is_read_by_another_one() {
    sleeping(
        "local ffi = require 'ffi'
ffi.cdef 'int usleep(unsigned);'
for i = 1, 20 do
  ffi.C.usleep(10000)
end",
        3..6,
    );
}

/// Ends `code` after a while, and says how long that took.
fn ended(code: &'static str) -> Duration {
    let limit = Duration::from_millis(100);
    let busy = Busy::start_limited(code, Some(limit));
    let sampler = Sampler::start(busy.tid, busy.stack.end, Duration::from_millis(1)).unwrap();
    let (begun, mut native, mut lua) = (Instant::now(), Vec::new(), LuaStack::default());
    let mut told = None;
    while !busy.thread.is_finished() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{lua:?}");
        let _ = sampler.take(&mut native, &mut lua);
        sampler.set_held(begun.elapsed());
        if begun.elapsed() > limit {
            told.get_or_insert_with(Instant::now);
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    assert_eq!(busy.end(), Some(FaultKind::TimeLimit));
    told.expect("it ended because it was told").elapsed()
}

#[test]
fn an_endless_loop_ends_compiled_interpreted_and_under_pcall() {
    for code in [
        "local i = 0 while true do i = i + 1 end",
        "jit.off(true, true) local i = 0 while true do i = i + 1 end",
        "while true do pcall(function() local i = 0 while true do i = i + 1 end end) end",
        "while true do coroutine.wrap(function() local i = 0 while true do i = i + 1 end end)() end",
        "local function f() return f() end return f()",
    ] {
        let took = ended(code);
        assert!(took < Duration::from_secs(10), "{code}: {took:?}");
    }
}
