//! What the safe interface promises: errors that come back, functions of ours and their panics, limits.

use std::cell::Cell;

use crate::{Address, Call, Context, FaultKind, Raise, Resumed, Returns, Value, Vm};

fn vm() -> Vm {
    Vm::new(None).unwrap()
}

/// Gives the VM a function of ours as a global.
fn define<F: crate::HostFunction>(vm: &mut Vm, name: &str, function: F) {
    let mut stack = vm.enter();
    stack.push_globals();
    stack.push_function(function);
    stack.raw_set_field(-2, name);
    stack.pop(1);
}

/// Runs code in a coroutine and gives its only result as text.
fn run(vm: &mut Vm, code: &str) -> Result<String, crate::Fault> {
    run_for::<crate::NoContext>(vm, code, &mut ())
}

fn run_for<C: Context>(vm: &mut Vm, code: &str, context: &mut C::Of<'_>) -> Result<String, crate::Fault> {
    let handler = vm.load(code.as_bytes(), c"=test")?;
    let mut coroutine = vm.start(&handler);
    let resumed = vm.resume_for::<C>(&mut coroutine, context);
    match resumed {
        Resumed::Failed(fault) => Err(fault),
        Resumed::Finished(count) => {
            let mut stack = vm.stack(&coroutine);
            assert_eq!(count, stack.len());
            let text = stack.text(1).map(|text| String::from_utf8(text.to_vec()).unwrap());
            vm.give_back(coroutine);
            Ok(text.unwrap_or_default())
        }
        Resumed::Yielded(_) => panic!("it does not yield"),
    }
}

#[test]
fn items_of_a_table_are_looked_at_together() {
    let mut vm = vm();
    let function = vm.load(b"return { 'a', 2, nil, true }", c"=test").unwrap();
    let mut stack = vm.enter();
    stack.push(&function);
    stack.call(0, Some(1)).unwrap();
    let len = stack.len();
    let seen = stack.look_at_items(-1, [4, 1, 3, 2], |value| format!("{value:?}"));
    assert_eq!(
        seen.map(|value| value.split('(').next().unwrap().to_owned()),
        ["Boolean", "Text", "Nil", "Number"]
    );
    assert_eq!(stack.len(), len, "nothing is left behind");
}

#[test]
fn errors_come_back_with_their_line_and_traceback() {
    let mut vm = vm();
    assert_eq!(run(&mut vm, "return 6 * 7").unwrap(), "42");
    let fault = run(&mut vm, "local x = 1\nreturn = 2").unwrap_err();
    assert_eq!(
        (fault.kind(), fault.to_string().as_str()),
        (FaultKind::Syntax, "test:2: unexpected symbol near '='")
    );
    let fault = run(&mut vm, "local function f()\n  error('oh')\nend\nf()").unwrap_err();
    assert_eq!((fault.kind(), fault.text()), (FaultKind::Runtime, b"test:2: oh".as_slice()));
    let traceback = String::from_utf8(fault.traceback().to_vec()).unwrap();
    assert!(traceback.contains("test:2: in function 'f'") && traceback.contains("test:4:"), "{traceback}");
    assert_eq!(run(&mut vm, "end return 1 --").unwrap_err().kind(), FaultKind::Syntax);
    let fault = run(&mut vm, "error({})").unwrap_err();
    assert_eq!(fault.text(), b"unknown reason");
    assert_eq!(
        run(&mut vm, "local function f() return 1 + f() end return f()").unwrap_err().kind(),
        FaultKind::Runtime
    );
    assert_eq!(run(&mut vm, "return 'goes on'").unwrap(), "goes on");
}

fn add(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let sum = call.number(1)? + call.number(2)?;
    call.stack.push(sum);
    Ok(Returns::Values(1))
}

#[test]
fn functions_of_ours_take_arguments_and_object_as_luas_do() {
    let mut vm = vm();
    define(&mut vm, "add", add);
    define(&mut vm, "refuse", |call: &mut Call<'_>| {
        let text = call.text(1)?.to_vec();
        Err(call.raise(text.as_slice()))
    });
    assert_eq!(run(&mut vm, "return add(2, '3')").unwrap(), "5");
    let fault = run(&mut vm, "add(1)").unwrap_err();
    assert_eq!(fault.to_string(), "test:1: bad argument #2 to 'add' (number expected, got no value)");
    let fault = run(&mut vm, "return (pcall(add, 1, {}))").unwrap();
    assert_eq!(fault, "");
    let fault = run(&mut vm, "\nrefuse('no')").unwrap_err();
    assert_eq!(fault.to_string(), "test:2: no");
    assert_eq!(run(&mut vm, "return select(2, pcall(refuse, 'x'))").unwrap(), "x");
}

#[test]
fn a_stack_that_a_function_leaves_as_it_should_not_breaks_nothing() {
    let mut vm = vm();
    define(&mut vm, "taken", |call: &mut Call<'_>| {
        let raise = call.raise("gone");
        let len = call.stack.len();
        call.stack.pop(len);
        Err(raise)
    });
    assert_eq!(run(&mut vm, "return tostring(select(2, pcall(taken, 1)))").unwrap(), "nil");
    assert!(!vm.is_poisoned());
    define(&mut vm, "more", |_: &mut Call<'_>| Ok(Returns::Values(1000)));
    assert_eq!(run(&mut vm, "return more()").unwrap_err().kind(), FaultKind::Poisoned);
}

#[test]
fn a_loop_that_calls_us_gives_the_same_compiled() {
    let mut vm = vm();
    define(&mut vm, "add", add);
    let sum = run(&mut vm, "local s = 0 for i = 1, 10000 do s = add(s, i) end return s").unwrap();
    assert_eq!(sum, "50005000");
}

struct Counter;

impl Context for Counter {
    type Of<'a> = (&'a Cell<u32>, Vec<&'a str>);
}

struct Other;

impl Context for Other {
    type Of<'a> = u64;
}

#[test]
fn a_context_is_there_for_its_run_and_for_its_kind_alone() {
    let mut vm = vm();
    define(&mut vm, "count", |call: &mut Call<'_>| {
        assert!(call.with_context::<Other, _>(|_| ()).is_none());
        let count = call.with_context::<Counter, _>(|(count, seen)| {
            count.set(count.get() + 1);
            seen.push("seen");
            count.get()
        });
        call.stack.push(count.map(f64::from));
        Ok(Returns::Values(1))
    });
    let cell = Cell::new(6);
    let mut context = (&cell, Vec::new());
    assert_eq!(run_for::<Counter>(&mut vm, "count() return count()", &mut context).unwrap(), "8");
    assert_eq!((cell.get(), context.1), (8, vec!["seen", "seen"]));
    assert_eq!(run(&mut vm, "return tostring(count())").unwrap(), "nil");
}

#[test]
fn a_coroutine_yields_to_us_through_pcall_and_is_used_again() {
    let mut vm = vm();
    define(&mut vm, "wait", |call: &mut Call<'_>| Ok(Returns::Yield(call.arguments())));
    let code = "local a = wait('one') local ok, b = pcall(wait, a .. 'two') return b .. tostring(ok)";
    let handler = vm.load(code.as_bytes(), c"=test").unwrap();
    let mut states = Vec::new();
    for _ in 0..3 {
        let mut coroutine = vm.start(&handler);
        states.push(vm.stack(&coroutine).state());
        let mut answers = vec!["x", "y"];
        let result = loop {
            match vm.resume(&mut coroutine) {
                Resumed::Yielded(count) => {
                    let mut stack = vm.stack(&coroutine);
                    stack.pop(count);
                    stack.push(answers.remove(0));
                }
                Resumed::Finished(1) => break vm.stack(&coroutine).text(1).unwrap().to_vec(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(result, b"ytrue");
        vm.give_back(coroutine);
    }
    assert!(states.iter().all(|state| *state == states[0]), "one coroutine is enough");
    let fault = run(&mut vm, "table.sort({1, 2}, function() wait() end)").unwrap_err();
    assert!(fault.to_string().contains("attempt to yield across C-call boundary"), "{fault}");
}

#[test]
fn nothing_is_allocated_for_a_run() {
    let mut vm = vm();
    define(&mut vm, "add", add);
    let handler = vm.load(b"return add(1, 2)", c"=test").unwrap();
    let mut once = || {
        let mut coroutine = vm.start(&handler);
        assert!(matches!(vm.resume(&mut coroutine), Resumed::Finished(1)));
        vm.give_back(coroutine);
        vm.memory()
    };
    // The compiler is done with it then.
    let before = (0..1000).map(|_| once()).last();
    let after = (0..10_000).map(|_| once()).last();
    assert_eq!(before, after);
}

/// What is dropped between runs is let go by the next one, without anything else that enters the VM.
#[test]
fn references_of_one_run_are_gone_in_the_next() {
    let mut vm = vm();
    define(&mut vm, "keep", |call| {
        call.stack.push_slot(1);
        drop(call.stack.take_reference());
        Ok(Returns::Values(0))
    });
    let handler = vm.load(b"keep(('x'):rep(10000, tostring({})))", c"=test").unwrap();
    let once = |vm: &mut Vm| {
        let mut coroutine = vm.start(&handler);
        assert!(matches!(vm.resume(&mut coroutine), Resumed::Finished(0)));
        vm.give_back(coroutine);
    };
    (0..2000).for_each(|_| once(&mut vm));
    assert!(vm.memory() < 10_000_000, "{}", vm.memory());
}

#[test]
fn a_panic_poisons_the_vm_and_nothing_catches_it() {
    let mut vm = vm();
    define(&mut vm, "fail", |_: &mut Call<'_>| -> Result<Returns, Raise> { panic!("on purpose") });
    let fault = run(&mut vm, "while true do pcall(fail) end").unwrap_err();
    assert_eq!(fault.kind(), FaultKind::Poisoned);
    assert!(vm.is_poisoned());
    assert_eq!(run(&mut vm, "return 1").unwrap_err().kind(), FaultKind::Poisoned);
}

#[test]
fn memory_has_its_limit_and_what_was_used_comes_back() {
    let mut vm = Vm::new(Some(16 << 20)).unwrap();
    define(&mut vm, "bytes", |call: &mut Call<'_>| {
        let count = call.number(1)?;
        call.stack.push(vec![b'x'; count as usize].as_slice());
        Ok(Returns::Values(1))
    });
    for code in [
        "local t = {} for i = 1, 1e9 do t[i] = {} end",
        "return ('x'):rep(1e9)",
        "return bytes(64 * 1024 * 1024)",
        "local s = 'x' while true do s = s .. s end",
    ] {
        let fault = run(&mut vm, code).unwrap_err();
        assert!(fault.to_string().contains("not enough memory"), "{code}: {fault}");
        vm.collect();
    }
    // Garbage beyond the limit is no reason to refuse.
    let code = "local s = 0 for i = 1, 300 do s = s + #(('x'):rep(262144) .. i) end return s";
    assert_eq!(
        run(&mut vm, code).unwrap(),
        (1..=300).fold(0, |s, i: u32| s + 262_144 + i.to_string().len()).to_string()
    );
}

#[test]
fn finalizers_run_in_luas_time_alone() {
    let mut vm = vm();
    define(&mut vm, "make", |call: &mut Call<'_>| {
        for i in 0..50_000 {
            call.stack.push_table(8, 8);
            call.stack.push(i);
            call.stack.raw_set_item(-2, 1);
            call.stack.pop(1);
        }
        call.stack.push_globals();
        call.stack.raw_field(-1, "finalized");
        Ok(Returns::Values(1))
    });
    let code = "finalized = 0
        local function count() finalized = finalized + 1 end
        local function object() getmetatable(newproxy(true)).__gc = count end
        for i = 1, 10 do object() end
        local within = make() collectgarbage() return within .. ' ' .. finalized";
    assert_eq!(run(&mut vm, code).unwrap(), "0 10");
}

#[test]
fn tables_are_read_and_written_with_and_without_metamethods() {
    let mut vm = vm();
    let handler = vm.load(
        b"return setmetatable({a = 1, 'x'}, {
            __index = function(_, k) if k == 'bad' then error('no') end return k end,
            __newindex = function(t, k, v) rawset(t, k, v .. '!') end,
            __tostring = function() return 'T' end})",
        c"=test",
    );
    let handler = handler.unwrap();
    let mut stack = vm.enter();
    stack.push(&handler);
    assert_eq!(stack.call(0, None).unwrap(), 1);
    stack.raw_field(1, "b");
    assert_eq!(stack.get(-1), Value::Nil);
    stack.pop(1);
    stack.push("b");
    stack.get_field(1).unwrap();
    assert_eq!(stack.get(-1), Value::Text(b"b"));
    stack.pop(1);
    stack.push("bad");
    assert_eq!(stack.get_field(1).unwrap_err().to_string(), "test:2: no");
    stack.push("c");
    stack.push("v");
    stack.set_field(1).unwrap();
    stack.raw_field(1, "c");
    assert_eq!(stack.get(-1), Value::Text(b"v!"));
    stack.pop(1);
    stack.push_as_text(1).unwrap();
    assert_eq!(stack.get(-1), Value::Text(b"T"));
    stack.pop(1);
    let (mut keys, mut numbers) = (0, 0);
    stack.push(());
    while stack.next(1).unwrap() {
        keys += 1;
        numbers += i32::from(matches!(stack.get(-2), Value::Number(_)));
        stack.pop(1);
    }
    assert_eq!((keys, numbers, stack.len(), stack.raw_len(1)), (3, 1, 1, 1));
    stack.push("absent");
    assert!(stack.next(1).unwrap_err().to_string().contains("invalid key to 'next'"));
    stack.push(7);
    stack.push("field");
    assert_eq!(stack.get_field(2).unwrap_err().to_string(), "attempt to index a number value");
}

#[test]
fn too_deep_or_too_many_is_an_error_of_luas() {
    let mut vm = vm();
    define(&mut vm, "add", add);
    let code = "local function f() add(1, 2) return 1 + f() end return f()";
    assert!(run(&mut vm, code).unwrap_err().to_string().contains("stack overflow"));
    let many = run(&mut vm, "return add(unpack({}, 1, 7990))").unwrap_err();
    assert!(many.to_string().contains("stack overflow"), "{many}");
    assert!(!vm.is_poisoned());
}

#[test]
fn a_vm_closes_with_what_is_left_in_it() {
    let mut vm = vm();
    define(&mut vm, "add", add);
    let kept = vm.load(b"return 1", c"=test").unwrap();
    let coroutine = vm.start(&kept);
    run(&mut vm, "x = newproxy(true) getmetatable(x).__gc = function() y = add(1, 2) end").unwrap();
    drop(vm);
    drop((kept, coroutine));
}

#[test]
#[should_panic(expected = "belongs to one VM")]
fn what_is_anothers_is_refused() {
    let (mut one, mut other) = (vm(), vm());
    let handler = one.load(b"return 1", c"=test").unwrap();
    let _ = other.start(&handler);
}

#[test]
fn bytecode_is_taken_as_it_is() {
    let mut vm = vm();
    let dumped = vm.load(b"return string.dump(function() return 'from bytecode' end)", c"=test").unwrap();
    let mut stack = vm.enter();
    stack.push(&dumped);
    stack.call(0, Some(1)).unwrap();
    let bytes = stack.text(-1).unwrap().to_vec();
    stack.pop(1);
    let handler = vm.load(&bytes, c"=dumped").unwrap();
    let mut coroutine = vm.start(&handler);
    assert!(matches!(vm.resume(&mut coroutine), Resumed::Finished(1)));
    assert_eq!(vm.stack(&coroutine).get(1), Value::Text(b"from bytecode"));
}

#[test]
fn a_function_knows_where_it_was_called() {
    let mut vm = Vm::new(None).unwrap();
    let mut stack = vm.enter();
    stack.push_globals();
    stack.push_function(|call: &mut Call<'_>| {
        let caller = call.stack.caller(1).expect("Lua has called");
        let name = caller.function.map(|name| String::from_utf8(name).unwrap());
        let text = format!("{}:{} {name:?}", String::from_utf8_lossy(&caller.chunk), caller.line);
        call.stack.push(&*text);
        Ok(Returns::Values(1))
    });
    stack.raw_set_field(-2, "place");
    stack.push(Address(0));
    assert_eq!(stack.get(-1), Value::Address(0));
    stack.pop(2);
    let code = b"\nlocal function f()\nlocal text = place()\nreturn text\nend\nlocal text = f()\nreturn text";
    let function = vm.load(code, c"=chunk").unwrap();
    let mut stack = vm.enter();
    stack.push(&function);
    stack.call(0, Some(1)).unwrap();
    assert_eq!(stack.text(-1), Some(&b"chunk:3 Some(\"f\")"[..]));
}
