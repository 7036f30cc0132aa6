//! Slices of time: code that computes yields wherever it is, compiled or not, and its result is what it would
//! have been; where it cannot yield it goes on.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test has no loop to block")]

use std::sync::mpsc;
use std::time::{Duration, Instant};

use clearway_luajit::samples::Sampler;
use clearway_luajit::{FaultKind, Resumed, Vm};
use clearway_os::{sampling, thread};

/// How often the code was interrupted, and how it ended.
fn run(code: &'static str, limit: Option<Duration>) -> (usize, Result<f64, FaultKind>) {
    let (sender, receiver) = mpsc::channel();
    let (over, is_over) = mpsc::channel();
    let running = std::thread::spawn(move || {
        let mut vm = Vm::new(None).unwrap();
        vm.limit_runs(limit, Some(Duration::from_millis(1)));
        let handler = vm.load(code.as_bytes(), c"=code").unwrap();
        let here = 0_u8;
        sampling::allow();
        sender.send((thread::current(), (&raw const here).addr())).unwrap();
        let (mut coroutine, mut slices) = (vm.start(&handler), 0);
        let ended = loop {
            match vm.resume(&mut coroutine) {
                Resumed::Yielded(values) => {
                    assert_eq!(values, 0);
                    slices += 1;
                }
                Resumed::Finished(_) => break Ok(vm.stack(&coroutine).number(1).unwrap()),
                Resumed::Failed(fault) => break Err(fault.kind()),
            }
        };
        over.send(()).unwrap();
        (slices, ended)
    });
    let (tid, base) = receiver.recv().unwrap();
    let sampler = Sampler::start(tid, base, Duration::from_millis(1)).unwrap();
    let began = Instant::now();
    let (mut native, mut lua) = (Vec::new(), clearway_luajit::walk::LuaStack::default());
    // As the watchdog, which looks at stuck polls: it takes samples, and says for how long it has been.
    while is_over.try_recv().is_err() {
        sampler.set_held(began.elapsed());
        sampler.take(&mut native, &mut lua);
        std::thread::sleep(Duration::from_micros(300));
        assert!(began.elapsed() < Duration::from_secs(120));
    }
    running.join().unwrap()
}

#[test]
fn code_that_computes_is_interrupted_and_goes_on() {
    const SUM: &str = "local sum = 0 for i = 1, 3e7 do sum = sum + i % 3 end return sum";
    let (slices, ended) = run(SUM, None);
    assert!(slices > 1, "{slices}");
    assert_eq!(ended, Ok(3e7));
    let (slices, ended) = run(
        "jit.off(true, true)
         local sum = 0
         local ok = pcall(function() for i = 1, 1e7 do sum = sum + i % 3 end end)
         return ok and sum",
        None,
    );
    assert!(slices > 1, "{slices}");
    assert_eq!(ended, Ok(1e7));
}

#[test]
fn where_it_cannot_yield_it_goes_on() {
    let (slices, ended) = run(
        "local function spin() local s = 0 for i = 1, 2e7 do s = s + i % 3 end return s end
         local thread = coroutine.create(spin)
         local ok, sum = coroutine.resume(thread)
         string.gsub('a', 'a', function() sum = sum + spin() end)
         return sum",
        None,
    );
    assert_eq!((slices, ended), (0, Ok(40_000_002.0)));
}

#[test]
fn slices_do_not_make_a_limit_longer() {
    let limit = Duration::from_millis(300);
    let began = Instant::now();
    let (slices, ended) = run("while true do end", Some(limit));
    assert_eq!(ended, Err(FaultKind::TimeLimit));
    assert!(slices > 1 && began.elapsed() > limit / 2, "{slices} in {:?}", began.elapsed());
}
