//! Jobs of a thread pool that a request waits for: no longer than `send_timeout`, and as long as its client
//! is there (`link::departure`). Polled by the request's task; a job that is given up is not run if no
//! thread has begun it.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use clearway_base::Errno;
use clearway_base::log::Level;
use clearway_offload::{Error, TIMEOUTS, Task};
use clearway_runtime::{LoopRef, Timer};

use crate::request::Request;
use crate::request::strands::StrandId;

/// The purpose of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errand {
    /// The job finds something out. Its result is worthless once its waiter has left.
    Question,
    /// The job changes something. Once it has begun it is waited for, however long it takes and even if the
    /// client leaves: the log tells how it ended.
    Deed,
}

impl Request<'_> {
    /// Waits for a job.
    ///
    /// # Errors
    /// The answer to give: 503 if the job was not taken or there was no answer in time, 500 if it panicked.
    pub async fn wait_for<T>(&self, mut task: Task<T>, errand: Errand) -> Result<T, u16> {
        let (mut timer, mut deed) = (None, None);
        let ended = poll_fn(|cx| {
            if let Poll::Ready(result) = Pin::new(&mut task).poll(cx) {
                return Poll::Ready(Some(result));
            }
            if errand == Errand::Deed && task.has_begun() {
                deed.get_or_insert_with(|| self.link.deeds().begin());
                return Poll::Pending;
            }
            self.poll_send_timeout(&mut timer, cx).map(|()| None)
        });
        match ended.await {
            Some(result) => result.map_err(|error| if error == Error::Overflow { 503 } else { 500 }),
            None => {
                TIMEOUTS.increment();
                self.log(Level::Error, format_args!("thread pool timed out (110: Connection timed out)"));
                Err(503)
            }
        }
    }

    /// The loop that it is at home on.
    pub fn home(&self) -> LoopRef {
        self.client.home
    }

    /// The address that its connection was made to, as configured.
    pub fn listen_address(&self) -> &str {
        &self.setup.address().text
    }

    /// The thread that stands for its loop in lines of the log.
    pub fn identity(&self) -> u32 {
        self.setup.identity(self.client.home)
    }

    /// Ready when the client has ended its direction, which may mean that it has left, or with an error when
    /// the connection broke; never where nothing of the request is for a client.
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.strand() {
            _ if !self.is_for_client() => Poll::Pending,
            StrandId::ROOT => self.link.poll_closed(cx),
            _ => self.strands().poll_closed(self.link),
        }
    }

    /// Has the task that waits be woken when its connection is to be closed at once
    /// (`worker_shutdown_timeout`): for what waits for nothing that has to do with the client's socket.
    pub fn await_cut(&self, cx: &mut Context<'_>) {
        if self.strand() == StrandId::ROOT {
            let _ = self.link.poll_closed(cx);
        }
    }

    /// Says that the client has left.
    pub(crate) fn log_left(&self, left: &io::Result<()>) {
        let error = left.as_ref().err().map(|error| format!(" {}", Errno(error)));
        let broken = error.unwrap_or_default();
        self.log(Level::Info, format_args!("client prematurely closed connection{broken}"));
    }

    fn poll_send_timeout(&self, timer: &mut Option<Timer>, cx: &mut Context<'_>) -> Poll<()> {
        let timer = timer.get_or_insert_with(|| {
            let timer = Timer::new(self.client.home);
            timer.arm(self.client.home.now_ms() + *self.location().core.sending.send_timeout_ms);
            timer
        });
        timer.poll_expired(cx)
    }
}
