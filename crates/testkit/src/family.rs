//! The processes of a server: masters, workers, which of them serve, what they use. They are found by the
//! directory that they run in, which is the server's own, so that those whose parent has died are found too,
//! and nobody else's ever are.

use rustix::process::Signal;

use crate::client::PATIENCE;
use crate::process::{Pid, children, family, is_running, pss_bytes, rss_bytes, running_in, title};
use crate::server::{Leader, Server, send_signal};
use crate::wait_until;

impl Server {
    /// All of them.
    pub fn processes(&self) -> Vec<Pid> {
        let mut all = running_in(self.prefix());
        if let (Leader::Child(child), None) = (&self.leader, self.exited) {
            // Not waited for yet: the number is still its own. It may have gone to another directory.
            all.extend(family(child.id()));
        }
        all.retain(|&pid| is_running(pid));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The workers that serve, of all masters, oldest first: not those that are shutting down.
    pub fn workers(&self) -> Vec<Pid> {
        self.processes().into_iter().filter(|&pid| serves(pid)).collect()
    }

    /// The workers of one master that serve.
    pub fn workers_of(&self, master: Pid) -> Vec<Pid> {
        children(master).into_iter().filter(|&pid| is_running(pid) && serves(pid)).collect()
    }

    /// The worker of the master, once it is there.
    ///
    /// # Panics
    /// If it never is.
    pub fn worker(&self) -> Pid {
        self.worker_of(self.pid())
    }

    /// The worker of a master, once it is there.
    ///
    /// # Panics
    /// If it never is.
    pub fn worker_of(&self, master: Pid) -> Pid {
        self.next_worker(master, None)
    }

    /// The worker of the master that has come after this one.
    ///
    /// # Panics
    /// If none ever does.
    pub fn worker_after(&self, old: Pid) -> Pid {
        self.next_worker(self.pid(), Some(old))
    }

    fn next_worker(&self, master: Pid, not: Option<Pid>) -> Pid {
        let mut found = None;
        wait_until(PATIENCE, || {
            found = self.workers_of(master).into_iter().find(|&pid| Some(pid) != not);
            found.is_some()
        });
        found.unwrap_or_else(|| panic!("{master} has no worker process (but {not:?}): {}", self.described()))
    }

    /// Has a new program take over beside the running one (USR2): its master, once that has a worker.
    ///
    /// # Panics
    /// If there is none.
    pub fn begin_upgrade(&self) -> Pid {
        let old = self.pid();
        send_signal(old, Signal::USR2);
        let mut new = None;
        wait_until(PATIENCE, || {
            new = self.pid_file().filter(|&pid| pid != old && self.pid_in("nginx.pid.oldbin") == Some(old));
            new.is_some()
        });
        let new = new.unwrap_or_else(|| panic!("no new master: {}", self.described()));
        self.worker_of(new);
        new
    }

    /// Waits until a process of it is gone.
    ///
    /// # Panics
    /// If it never is.
    pub fn wait_gone(&self, pid: Pid) {
        let gone = wait_until(PATIENCE, || !is_running(pid));
        assert!(gone, "{pid} ({}) goes on: {}", title(pid), self.described());
    }

    /// Resident memory of all processes, bytes; what they share counts for each.
    pub fn rss_bytes(&self) -> u64 {
        self.processes().into_iter().map(rss_bytes).sum()
    }

    /// Memory of all processes, bytes; what they share counts once.
    pub fn pss_bytes(&self) -> u64 {
        self.processes().into_iter().map(pss_bytes).sum()
    }

    /// The processes and the error log, for a message.
    pub fn described(&self) -> String {
        let of = |pid: Pid| format!("{pid} {}\n", title(pid));
        let processes: String = self.processes().into_iter().map(of).collect();
        format!("\n{processes}{}{}", self.read("stderr.log"), self.error_log())
    }
}

/// Whether a process calls itself a worker and not one on its way out.
fn serves(pid: Pid) -> bool {
    let title = title(pid);
    title.contains("worker process") && !title.contains("shutting down")
}
