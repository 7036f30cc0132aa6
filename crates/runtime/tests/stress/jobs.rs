//! The tasks of a stress run. Feeders spawn them, which are none of the runtime's threads.

use std::future::{Future, pending, poll_fn};
use std::io;
use std::os::unix::net::UnixStream;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use clearway_runtime::{
    Entering, LoopRef, Runtime, Socket, Tag, Timer, Token, bind, enter, unbind, within, yield_now,
};

use crate::ledger::{Ledger, Life, Random, Watched};

/// What comes later than this, or behind its time by so much, was lost.
const LATE: Duration = Duration::from_secs(20);

/// Something that another thread makes happen.
#[derive(Default)]
struct Event {
    has_happened: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Event {
    async fn wait(self: Arc<Self>, bell: Sender<Arc<Self>>) {
        let mut is_asked = false;
        poll_fn(|cx| {
            *self.waker.lock().unwrap() = Some(cx.waker().clone());
            if !std::mem::replace(&mut is_asked, true) {
                bell.send(Arc::clone(&self)).unwrap();
            }
            if self.has_happened.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Happens, and wakes its task in one way or another.
    fn happen(&self, random: &mut Random) {
        self.has_happened.store(true, Ordering::SeqCst);
        let Some(waker) = self.waker.lock().unwrap().take() else { return };
        match random.below(3) {
            0 => waker.wake(),
            1 => waker.wake_by_ref(),
            _ => {
                let clone = waker.clone();
                drop(waker);
                clone.wake();
            }
        }
    }
}

/// What one poll at a time may touch.
#[derive(Default)]
struct Machine {
    token: Token,
    is_entered: AtomicBool,
}

impl AsRef<Token> for Machine {
    fn as_ref(&self) -> &Token {
        &self.token
    }
}

/// The tasks of one run.
pub(crate) struct Jobs {
    runtime: Runtime,
    pub(crate) ledger: Arc<Ledger>,
    /// Rings a thread that makes events happen.
    bell: Sender<Arc<Event>>,
    machine: Arc<Machine>,
}

impl Jobs {
    pub(crate) fn new(runtime: Runtime, ledger: Arc<Ledger>) -> Self {
        let (bell, events) = channel::<Arc<Event>>();
        thread::spawn(move || {
            let mut random = Random::new(77);
            while let Ok(event) = events.recv() {
                if random.one_in(4) {
                    thread::yield_now();
                }
                event.happen(&mut random);
            }
        });
        Self { runtime, ledger, bell, machine: Arc::default() }
    }

    /// One of them, on one of the loops.
    pub(crate) fn spawn(&self, random: &mut Random) {
        let (home, seed) = (self.any_loop(random), random.fork());
        let life = self.ledger.begin();
        let ledger = Arc::clone(&self.ledger);
        match random.below(12) {
            0 | 1 => start(home, life, timers(home, ledger, seed)),
            2 | 3 => start(home, life, foreign_event(self.bell.clone(), ledger)),
            4 | 5 => self.spawn_pair(home, life, seed),
            6 => start(home, life, blocker(home, seed)),
            7 => start(home, life, open_blocker(home, seed)),
            8 => self.spawn_forgotten(home, life, random),
            9 => start(home, life, panics(seed)),
            10 => start(home, life, machine(home, Arc::clone(&self.machine), ledger, seed)),
            _ => start(home, life, wanderer(seed)),
        }
    }

    fn any_loop(&self, random: &mut Random) -> LoopRef {
        self.runtime.at(random.below(self.runtime.len() as u64) as usize)
    }

    /// Two tasks that speak to each other, until one of them has had enough.
    fn spawn_pair(&self, home: LoopRef, life: Life, mut random: Random) {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        let (other, third) = (self.any_loop(&mut random), self.any_loop(&mut random));
        let seed = random.fork();
        let ledger = Arc::clone(&self.ledger);
        start(other, self.ledger.begin(), echo(Socket::new(other, far.into()), Arc::clone(&ledger), seed));
        start(home, life, ask((home, third), Socket::new(home, near.into()), ledger, random));
    }

    /// A task that nothing but a waker of another thread knows, which is dropped.
    fn spawn_forgotten(&self, home: LoopRef, life: Life, random: &mut Random) {
        let event = Arc::new(Event::default());
        let known: Weak<Event> = Arc::downgrade(&event);
        start(home, life, async move {
            poll_fn(|cx| {
                if let Some(event) = known.upgrade() {
                    *event.waker.lock().unwrap() = Some(cx.waker().clone());
                }
                Poll::<()>::Pending
            })
            .await;
        });
        match random.below(3) {
            0 => {}
            1 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(200)),
        }
        if random.one_in(2) {
            event.happen(random);
        }
    }
}

fn start(home: LoopRef, life: Life, future: impl Future<Output = ()> + Send + 'static) {
    home.spawn(Tag::NONE, Watched::new(life, future));
}

/// A timer that is moved both ways, put off, and waited for in the end.
async fn timers(home: LoopRef, ledger: Arc<Ledger>, mut random: Random) {
    let timer = Timer::new(home);
    timer.arm(home.now_ms() + 100_000);
    for _ in 0..random.below(6) {
        timer.arm(home.now_ms() + random.below(40));
        if random.one_in(3) {
            timer.disarm();
            timer.arm(home.now_ms() + 30);
        }
        let mut is_first = true;
        poll_fn(|cx| {
            let polled = timer.poll_expired(cx);
            if polled.is_pending() && std::mem::take(&mut is_first) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }
    let (begun, at_ms, ms) = (Instant::now(), home.now_ms(), random.below(20));
    timer.arm(at_ms + ms);
    poll_fn(|cx| timer.poll_expired(cx)).await;
    if home.now_ms() < at_ms + ms {
        ledger.note_early();
    }
    if begun.elapsed() > LATE {
        ledger.note_late();
    }
}

async fn foreign_event(bell: Sender<Arc<Event>>, ledger: Arc<Ledger>) {
    let begun = Instant::now();
    Arc::new(Event::default()).wait(bell).await;
    if begun.elapsed() > LATE {
        ledger.note_late();
    }
}

/// Sends back what comes, holds its thread at times, and leaves at any moment.
async fn echo(socket: Socket, ledger: Arc<Ledger>, mut random: Random) {
    let mut buf = Vec::with_capacity(256);
    loop {
        buf.clear();
        match poll_fn(|cx| socket.poll_read_vec(cx, &mut buf)).await {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => return expect_gone(&ledger, &error),
        }
        if random.one_in(16) {
            thread::sleep(Duration::from_millis(5));
        }
        if random.one_in(9) {
            return;
        }
        let mut sent = 0;
        while sent < buf.len() {
            match poll_fn(|cx| socket.poll_write(cx, &buf[sent..])).await {
                Ok(size) => sent += size,
                Err(error) => return expect_gone(&ledger, &error),
            }
        }
    }
}

/// Asks a few times, at times from another loop than before.
async fn ask((home, third): (LoopRef, LoopRef), mut socket: Socket, ledger: Arc<Ledger>, mut random: Random) {
    let (mut buf, timer) = (Vec::with_capacity(256), Timer::new(home));
    for round in 0..random.below(8) {
        if let Err(error) = poll_fn(|cx| socket.poll_write(cx, b"hello, world")).await {
            return expect_gone(&ledger, &error);
        }
        buf.clear();
        timer.arm(home.now_ms() + u64::try_from(LATE.as_millis()).unwrap());
        let read = poll_fn(|cx| match timer.poll_expired(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => socket.poll_read_vec(cx, &mut buf).map(Some),
        });
        match read.await {
            Some(Ok(0)) => return,
            Some(Ok(_)) => {}
            Some(Err(error)) => return expect_gone(&ledger, &error),
            None => return ledger.note_late(),
        }
        if round == 2 && socket.move_to(third).is_err() {
            ledger.note_error();
        }
        if random.one_in(8) {
            yield_now().await;
        }
    }
}

/// The other side has left, which is no error here.
fn expect_gone(ledger: &Ledger, error: &io::Error) {
    if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) {
        ledger.note_error();
    }
}

/// How a job holds its thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Sleeps,
    Burns,
}

impl Manner {
    /// One of them, and a tag that is always held like this: what sleeps now and then needs no turn.
    fn any(random: &mut Random) -> (Self, Tag) {
        let number = random.below(2) as u8;
        match random.one_in(3) {
            true => (Self::Burns, Tag::of(&[b'b', number])),
            false => (Self::Sleeps, Tag::of(&[b's', number])),
        }
    }

    fn hold(self, random: &mut Random) {
        let length = Duration::from_millis(random.below(10));
        if self == Self::Sleeps {
            return thread::sleep(length);
        }
        let end = Instant::now() + length;
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    }
}

/// Blocks under a tag, which may have to wait; some give up then.
async fn blocker(home: LoopRef, mut random: Random) {
    if !random.one_in(8) {
        return yield_now().await;
    }
    let (manner, tag) = Manner::any(&mut random);
    let ms = random.below(30);
    let gives_up = random.one_in(2);
    let blocking = async {
        within(tag, async {
            manner.hold(&mut random);
            yield_now().await;
            manner.hold(&mut random);
        })
        .await;
    };
    let mut blocking = pin!(blocking);
    let timer = Timer::new(home);
    if gives_up {
        timer.arm(home.now_ms() + ms);
    }
    poll_fn(|cx| match timer.poll_expired(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => blocking.as_mut().poll(cx),
    })
    .await;
}

/// The same where later polls as a whole are suspect.
async fn open_blocker(home: LoopRef, mut random: Random) {
    if !random.one_in(12) {
        return;
    }
    let (manner, tag) = Manner::any(&mut random);
    enter(tag).await;
    manner.hold(&mut random);
    let timer = Timer::new(home);
    timer.arm(home.now_ms() + random.below(10));
    poll_fn(|cx| timer.poll_expired(cx)).await;
    manner.hold(&mut random);
    enter(Tag::NONE).await;
}

/// Throws when it is dropped.
struct Throws;

impl Drop for Throws {
    fn drop(&mut self) {
        if !thread::panicking() {
            resume_unwind(Box::new("on purpose"));
        }
    }
}

/// A panic of one kind or another, without a message for each.
async fn panics(mut random: Random) {
    if !random.one_in(8) {
        return yield_now().await;
    }
    yield_now().await;
    match random.below(4) {
        0 => resume_unwind(Box::new("on purpose")),
        1 => resume_unwind(Box::new(Throws)),
        2 => drop(Throws),
        _ => {
            let _throws = Throws;
            pending::<()>().await;
        }
    }
}

/// Enters the machine, blocks or throws in it, or gives up on the way into it.
async fn machine(home: LoopRef, machine: Arc<Machine>, ledger: Arc<Ledger>, mut random: Random) {
    let mut entering = Entering::new(Arc::clone(&machine));
    let timer = Timer::new(home);
    if random.one_in(3) {
        timer.arm(home.now_ms() + random.below(4));
    }
    poll_fn(|cx| {
        if timer.poll_expired(cx).is_ready() {
            return Poll::Ready(());
        }
        entering.poll(cx).map(|_held| {
            if machine.is_entered.swap(true, Ordering::Relaxed) {
                ledger.note_shared_token();
            }
            let does = random.below(40);
            if does == 0 {
                Manner::Sleeps.hold(&mut random);
            }
            machine.is_entered.store(false, Ordering::Relaxed);
            if does == 1 {
                resume_unwind(Box::new("on purpose"));
            }
        })
    })
    .await;
}

/// Is polled here and there, bound and not.
async fn wanderer(mut random: Random) {
    for _ in 0..random.below(5) {
        yield_now().await;
        match random.below(6) {
            0 => bind().await,
            1 => unbind().await,
            _ => {}
        }
    }
}
