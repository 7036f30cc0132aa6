//! Tasks of plugins (lua-resty-ffi): code that has posted one waits for its answer. The queues are those of
//! `clearway_luajit::resty_ffi`; runtimes are begun by a thread of their own (`plugin_library`).

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use clearway_base::log::{Discard, Level, Sink};
use clearway_luajit::plugin_library::{Failed, Visibility, Wanted, begin};
use clearway_luajit::resty_ffi::{Posting, Waiting, is_open, set_poster};
use clearway_luajit::{Call, Fault, Raise, Returns, Stack, Value};
use clearway_offload::{Pool, PoolConfig, Task};
use clearway_runtime::{LoopRef, Timer};

use super::room::{Install, put};
use crate::current::{Current, LuaPhase, Pause, Phases, Run, YIELDABLE, allow, current, pause};
use crate::threads::{Answers, Operation};
use crate::vm::settings::LUA_MAIN;

/// Where code may wait for a plugin, or has no others to wait for it.
const LOADING: Phases = Phases::of(&[LuaPhase::Init, LuaPhase::InitWorker]).or(YIELDABLE);

/// Runtimes that wait to be begun.
const LOADS_MAX: u32 = 1024;

/// Begins runtimes of plugins: one thread, which stays for as long as the process lives.
static LOADER: OnceLock<Option<Pool>> = OnceLock::new();

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    set_poster(post);
    install.table("", |stack| {
        stack.push_host();
        // What is shown, and the replies, are others' business.
        stack.pop(2);
        stack.raw_set_field(-2, "_host");
        put(stack, "_load_runtime", load_runtime);
        put(stack, "_runtime_is_open", |call| {
            let is_open = is_open(call.number(1)? as usize);
            call.stack.push(is_open);
            Ok(Returns::Values(1))
        });
    });
    install.run(include_str!("resty_ffi.lua"), c"=resty_ffi")
}

/// Has the code wait that posts, where it may.
fn post(posting: &mut Posting<'_>) -> bool {
    let posted = posting.with_context::<Run, _>(|current, waiting| {
        // One that was posted before and not waited for is given up.
        let may_wait = YIELDABLE.has(current.phase);
        if may_wait {
            let watch = Watch::of(current);
            let expected = current.home().map(LoopRef::expect_answer);
            current.pause = Some(Pause::Operation(Operation::new(async move {
                let _expected = expected;
                answer(waiting, watch).await
            })));
        }
        may_wait
    });
    posted.unwrap_or(false)
}

/// One in so many tasks is watched: a plugin that answers none of its tasks is found out by the first one.
const WATCHED_EACH: u64 = 64;

/// After how long a task that is watched is late, milliseconds.
const LATE_MS: u64 = 5000;

static POSTS: AtomicU64 = AtomicU64::new(0);

/// Has the log told of a task that is not answered.
struct Watch {
    timer: Timer,
    sink: Arc<dyn Sink>,
}

impl Watch {
    fn of(current: &mut Current<'_>) -> Option<Self> {
        if !POSTS.fetch_add(1, Ordering::Relaxed).is_multiple_of(WATCHED_EACH) {
            return None;
        }
        let (home, sink) = (current.home()?, current.vm.sink.clone()?);
        let timer = Timer::new(home);
        timer.arm(home.now_ms() + LATE_MS);
        Some(Self { timer, sink })
    }
}

/// True and the answer, or false, a number, and the answer.
async fn answer(mut waiting: Waiting, mut watch: Option<Watch>) -> Answers {
    let answer = poll_fn(|cx| {
        let answered = Pin::new(&mut waiting).poll(cx);
        if answered.is_pending()
            && watch.as_ref().is_some_and(|watch| watch.timer.poll_expired(cx).is_ready())
            && let Some(Watch { sink, .. }) = watch.take()
        {
            let seconds = LATE_MS / 1000;
            sink.log(Level::Warn, format_args!("a plugin has not answered a task of Lua for {seconds} s"));
        }
        answered
    })
    .await;
    let push = move |stack: &mut Stack<'_>| {
        stack.push(answer.code == 0);
        if answer.code != 0 {
            stack.push(answer.code);
        }
        stack.push(answer.text());
        if answer.code == 0 {
            stack.push(());
        }
    };
    Answers::Push(Box::new(push), None)
}

/// (library, configuration, owner, whether its symbols are global, tasks that may wait): the address of the
/// queue, or nothing and a number or a text.
fn load_runtime(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let phase = allow(call, LOADING)?;
    let configuration = match call.stack.get(2) {
        Value::Nil => None,
        _ => Some(call.text(2)?.to_vec()),
    };
    let wanted = Wanted {
        library: call.text(1)?.to_vec(),
        configuration,
        owner: call.text(3)?.to_vec(),
        visibility: if call.stack.is_true(4) { Visibility::Global } else { Visibility::Local },
        max_queue: call.number(5)? as i32,
    };
    if !YIELDABLE.has(phase) {
        let begun = begin_apart(wanted);
        let before = call.stack.len();
        push_begun(&mut call.stack, begun);
        return Ok(Returns::Values(call.stack.len() - before));
    }
    // Loops start no threads.
    let pool = current(call, |current| Option::clone(&current.vm.snapshot.upgrade()?.conf(&LUA_MAIN).pool))?;
    let Some(pool) = pool else { return Err(call.raise("no thread pool")) };
    let task = pool.submit(move |_| begin_apart(wanted));
    let operation = Operation::new(async move {
        let begun = task.await.unwrap_or_else(Err);
        Answers::Push(Box::new(move |stack| push_begun(stack, begun)), None)
    });
    pause(call, Pause::Operation(operation))
}

/// Has the thread for it begin a runtime, and waits. **Blocks**: on no loop.
fn begin_apart(wanted: Wanted) -> Begun {
    let loader = LOADER.get_or_init(|| {
        let config = PoolConfig { threads: 1, max_queue: LOADS_MAX, ..PoolConfig::new("plugins") };
        Pool::start(config, Arc::new(Discard)).ok()
    });
    match loader {
        Some(loader) => wait_for(loader.submit(move |_| begin(&wanted))),
        None => Ok(Err(Failed::Library(b"no thread for plugins".to_vec()))),
    }
}

type Begun = Result<Result<usize, Failed>, clearway_offload::Error>;

fn push_begun(stack: &mut Stack<'_>, begun: Begun) {
    let failed = match begun {
        // An address of a process has fewer bits than the whole part of a number.
        Ok(Ok(queue)) => return stack.push(queue as f64),
        Ok(Err(failed)) => failed,
        Err(error) => Failed::Library(error.to_string().into_bytes()),
    };
    stack.push(());
    match failed {
        Failed::Refused(code) => stack.push(code),
        Failed::Library(text) => stack.push(&text[..]),
    }
}

/// Has the thread sleep until it is done.
fn wait_for(task: Task<Result<usize, Failed>>) -> Begun {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut task = pin!(task);
    loop {
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(begun) => return begun,
            Poll::Pending => std::thread::park(),
        }
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
