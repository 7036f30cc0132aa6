//! Looks after a connection while it is put aside, by the rules of [`crate::aside`]. Each connection that was
//! put aside once has a keeper, with a task of its own that lives as long as the connection: to put it aside
//! again, or to take it, makes and ends no task, and wakes none.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker, ready};

use clearway_base::log::{Level, Sink};
use clearway_runtime::{LoopRef, Tag, Timer};

use super::connection::Conn;
use super::pool::IsNew;
use crate::aside::{Aside, Taken};

/// What looks after one connection.
pub(super) struct Keeper {
    aside: Aside<Arc<Conn>>,
    /// How often the connection that is put aside was used before.
    used: AtomicU32,
    home: LoopRef,
    timer: Timer,
    /// Takes lines about the connection while it is put aside.
    sink: Option<Arc<dyn Sink>>,
}

/// A connection's hold on its keeper, which ends with the connection.
pub(super) struct Kept(Arc<Keeper>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.aside.end();
    }
}

impl Keeper {
    /// The keeper of a connection. One that is made is to be begun ([`Keeper::begin`]).
    pub(super) fn of(conn: &Conn, sink: Option<&Arc<dyn Sink>>) -> (Arc<Self>, IsNew) {
        let mut is_new = IsNew::No;
        let kept = conn.keeper.get_or_init(|| {
            is_new = IsNew::Yes;
            let home = conn.home();
            Kept(Arc::new(Self {
                aside: Aside::default(),
                used: AtomicU32::new(0),
                home,
                timer: Timer::new(home),
                sink: sink.cloned(),
            }))
        });
        (Arc::clone(&kept.0), is_new)
    }

    /// Begins its task.
    pub(super) fn begin(self: Arc<Self>) {
        self.home.spawn_bound(Tag::NONE, self.run());
    }

    /// Whether the connection has ended.
    pub(super) fn is_over(&self) -> bool {
        self.aside.is_over()
    }

    /// Puts its connection aside, for so long at most (0: for as long as its peer keeps it). The loop watches
    /// the connection.
    pub(super) fn put(&self, conn: Arc<Conn>, used: u32, limit_ms: u64) {
        match limit_ms {
            0 => self.timer.disarm(),
            ms => self.timer.arm(self.home.now_ms() + ms),
        }
        self.used.store(used, Ordering::Relaxed);
        self.aside.put(conn, |conn, waker| self.watch(conn, waker));
    }

    /// Has the task woken by the connection and the timer; whether it is to look at once.
    fn watch(&self, conn: &Conn, waker: &Waker) -> bool {
        let is_expired = self.timer.poll_expired(&mut Context::from_waker(waker)).is_ready();
        let is_watched = conn.with_socket(|socket| socket.watch_idle(waker));
        is_expired || !matches!(is_watched, Some(Ok(())))
    }

    /// Takes its connection, and how often that was used.
    pub(super) fn take(&self) -> Taken<(Arc<Conn>, u32)> {
        match self.aside.take() {
            Taken::Conn(conn) => Taken::Conn((conn, self.used.load(Ordering::Relaxed))),
            Taken::Nothing => Taken::Nothing,
            Taken::Busy => Taken::Busy,
        }
    }

    /// Ends its connection, if that is put aside.
    pub(super) fn end(&self) {
        drop(self.aside.wait_and_take());
    }

    fn log(&self, text: &str) {
        if let Some(sink) = &self.sink {
            sink.log(Level::Debug, format_args!("{text}"));
        }
    }

    async fn run(self: Arc<Self>) {
        let mut byte = Vec::with_capacity(1);
        poll_fn(|cx| self.poll(&mut byte, cx)).await;
    }

    /// Ready when the connection has ended.
    fn poll(&self, byte: &mut Vec<u8>, cx: &mut Context<'_>) -> Poll<()> {
        let conn = ready!(self.aside.poll(cx, |conn, cx| self.poll_idle(conn, byte, cx)));
        if conn.is_some() {
            self.log("lua tcp socket keepalive close handler");
        }
        Poll::Ready(())
    }

    /// Ready when a connection that is put aside is to end.
    fn poll_idle(&self, conn: &Conn, byte: &mut Vec<u8>, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.poll_expired(cx).is_ready() {
            self.log("lua tcp socket keepalive max idle timeout");
            return Poll::Ready(());
        }
        conn.poll_read(cx, byte).map(drop)
    }
}
