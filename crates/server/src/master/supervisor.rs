//! Which worker processes there are to be, one for each group of loops: starts them, has all of them build a
//! configuration before one of them uses it, starts another one in the place of one that has ended. The
//! master's thread.
//!
//! Invariant: of the groups of a configuration all use it, or none.

use std::ops::Range;
use std::time::{Duration, Instant};

use clearway_base::log::{Level, Sink, Verbatim};
use clearway_os::child::{self, Exit};
use clearway_os::poll;
use clearway_os::signal::Signal;

use super::configuration::Configuration;
use super::cycle::{Master, environment};
use super::listening::Listening;
use super::wanted::Want;
use super::workers::{self, Answer, Occasion, WorkerProcess};
use crate::control::Order;
use crate::messages::DirectLog;
use crate::start::Failed;

/// The time between two attempts to start a worker where the last one failed.
const RESPAWN_AFTER: Duration = Duration::from_secs(1);

/// A worker that ends with this code cannot be started again (nginx's).
const FATAL_CODE: i32 = 2;

impl Master<'_> {
    /// The numbers of the groups of the present configuration.
    pub(super) fn groups(&self) -> Range<usize> {
        0..self.config.core.groups()
    }

    /// Starts a worker in the place of one that should not have ended.
    pub(super) fn replace(&mut self, ended: &WorkerProcess, exit: Exit) {
        if !ended.is_serving() || self.ending.is_some() {
            return;
        }
        if exit == Exit::Code(FATAL_CODE) {
            let (pid, code) = (ended.pid, FATAL_CODE);
            let message =
                format_args!("worker process {pid} exited with fatal code {code} and cannot be respawned");
            self.config.log.log(Level::Alert, message);
            return;
        }
        self.ensure_workers(Occasion::Respawn);
    }

    /// Starts a worker for each group that has none which serves.
    pub(super) fn ensure_workers(&mut self, occasion: Occasion) {
        if self.no_accepting || self.ending.is_some() || !self.config.core.wants_worker() {
            return;
        }
        for group in self.groups() {
            if self.workers.iter().any(|worker| worker.is_serving() && worker.group == group) {
                continue;
            }
            // Each by itself: a group that cannot be started takes no other one with it.
            match self.start_workers(group..group + 1, occasion, &self.log()) {
                Ok(started) => self.workers.extend(started),
                Err(Failed) => self.respawn_at = Some(Instant::now() + RESPAWN_AFTER),
            }
        }
    }

    /// Starts workers of these groups with the present configuration, and waits until all of them serve.
    ///
    /// # Errors
    /// After the reason has been logged; none of them is left.
    pub(super) fn start_workers(
        &mut self,
        groups: Range<usize>,
        occasion: Occasion,
        log: &dyn Sink,
    ) -> Result<Vec<WorkerProcess>, Failed> {
        let (mut workers, wanted) = (Vec::new(), groups.len());
        match self.bring_to(&mut workers, groups, log) {
            Ok(identities) => {
                debug_assert_eq!(workers.len(), wanted, "each group has one worker");
                commit(&mut workers, identities, occasion, log);
                Ok(workers)
            }
            Err(failed) => {
                self.give_up_new(&mut workers, log);
                debug_assert!(workers.is_empty(), "all of them were new");
                Err(failed)
            }
        }
    }

    /// Starts a worker for each of these groups that has none among `workers`, and has all of them build the
    /// present configuration. The identities of their loops.
    fn bring_to(
        &mut self,
        workers: &mut Vec<WorkerProcess>,
        groups: Range<usize>,
        log: &dyn Sink,
    ) -> Result<Vec<Vec<u32>>, Failed> {
        for group in groups {
            if workers.iter().all(|worker| worker.group != group) {
                let environment = environment(&self.config, &self.environment);
                let (name, stderr) = (self.invocation.name(), self.stderr_file());
                let spawned = WorkerProcess::spawn((name, group), &environment, stderr);
                workers.push(spawned.map_err(|error| workers::cannot_start(&error, log))?);
            }
        }
        self.number += 1;
        let asked = workers.iter_mut().try_for_each(|worker| {
            let hand =
                self.config.hand((self.number, worker.group), &self.invocation.options, &self.listening);
            let handover = hand.map_err(|error| workers::cannot_start(&error, log))?;
            worker.ask(&Order::Load(Box::new(handover)));
            Ok(())
        });
        // Also those that are asked in vain answer: their answers are not to be taken for later ones.
        self.await_answers(workers, Want::Terminate);
        asked?;
        let answers: Vec<_> = workers.iter_mut().map(|worker| (worker.pid, worker.take_answer())).collect();
        answers.into_iter().map(|(pid, answer)| self.take(pid, answer, log)).collect()
    }

    /// The identities of the loops of a worker that has built the configuration.
    fn take(&self, pid: u32, answer: Option<Answer>, log: &dyn Sink) -> Result<Vec<u32>, Failed> {
        match answer {
            Some(Answer::Ready(identities)) => return Ok(identities),
            Some(Answer::Failed { level, text }) => log.log(level, format_args!("{}", Verbatim(&text))),
            None if self.wanted.has(Want::Terminate) => {}
            None => {
                log.log(Level::Alert, format_args!("worker process {pid} ended while it was starting"));
            }
        }
        Err(Failed)
    }

    /// Ends those that were started for a configuration which is not used.
    fn give_up_new(&mut self, workers: &mut Vec<WorkerProcess>, log: &dyn Sink) {
        for worker in workers.extract_if(.., |worker| worker.is_new()) {
            let was_there = worker.is_connected();
            worker.kill(Signal::KILL, log);
            if let Ok(exit) = child::wait_for(worker.pid)
                && !was_there
            {
                worker.log_end(exit, log);
            }
            self.config.forget_worker(worker.pid);
        }
        debug_assert!(
            workers.iter().all(|worker| !worker.is_new()),
            "those that are left use a configuration"
        );
    }

    /// Waits until all of these workers, which are in no list, have said something to an order, or are gone;
    /// or something else is wanted.
    pub(super) fn await_answers(&mut self, workers: &mut [WorkerProcess], unless: Want) {
        let log = self.log();
        self.config.clear_up();
        loop {
            let is_wanted = self.wanted.has(Want::Terminate) || self.wanted.has(unless);
            let (mut waiting, mut watched) = (Vec::new(), vec![std::os::fd::AsFd::as_fd(&self.signals)]);
            for (at, worker) in workers.iter().enumerate().filter(|(_, worker)| worker.is_asked()) {
                waiting.extend(worker.channel().map(|_| at));
                watched.extend(worker.channel());
            }
            if is_wanted || waiting.is_empty() {
                return;
            }
            let Ok(ready) = poll::wait(&watched, None) else { return };
            for (&at, _) in waiting.iter().zip(&ready[1..]).filter(|(_, ready)| **ready) {
                workers[at].listen(&log);
            }
            while let Ok(Some(received)) = self.signals.take() {
                self.note(received);
            }
        }
    }

    /// Brings a configuration that has been read to the workers, or to new ones.
    ///
    /// # Errors
    /// After the reason has been logged; all go on with what they had.
    pub(super) fn hand_on(
        &mut self,
        old: &Configuration,
        old_listening: &Listening,
        log: &DirectLog,
    ) -> Result<(), Failed> {
        let same_processes = self.config.core.process_traits() == old.core.process_traits()
            && !self.config.core.wants_privileged_start();
        let serves = |worker: &WorkerProcess| worker.is_serving() && worker.is_connected();
        let wants_worker = self.config.core.wants_worker();
        if !same_processes || !wants_worker || !self.workers.iter().any(serves) {
            let groups = if wants_worker { self.groups() } else { 0..0 };
            let started = self.start_workers(groups, Occasion::Start, log)?;
            self.refuse_removed(old_listening);
            let removed = old_listening.removed_in(&self.listening);
            self.workers.iter_mut().for_each(|worker| worker.retire(&removed));
            self.workers.extend(started);
            self.respawn_at = None;
            return Ok(());
        }
        if self.config.core.wants_trial() {
            self.try_out(log)?;
        }
        let mut workers: Vec<WorkerProcess> =
            self.workers.extract_if(.., |worker| worker.is_serving() && worker.is_connected()).collect();
        let built = self.bring_to(&mut workers, self.groups(), log);
        let result = match built {
            Ok(identities) => {
                self.refuse_removed(old_listening);
                commit(&mut workers, identities, Occasion::Start, &self.config.log);
                self.respawn_at = None;
                Ok(())
            }
            Err(failed) => {
                self.give_up_new(&mut workers, log);
                workers.iter().for_each(|worker| worker.tell(&Order::Abort));
                Err(failed)
            }
        };
        self.workers.extend(workers);
        result
    }
}

/// Has workers use what they have built, whose loops have these identities.
fn commit(workers: &mut [WorkerProcess], identities: Vec<Vec<u32>>, occasion: Occasion, log: &dyn Sink) {
    assert_eq!(workers.len(), identities.len(), "all of them have built it, or none uses it");
    workers.iter().for_each(|worker| worker.tell(&Order::Commit));
    if occasion == Occasion::Start {
        log.log(Level::Notice, format_args!("start worker processes"));
    }
    for (worker, identities) in workers.iter_mut().zip(identities) {
        worker.begin(identities, log);
    }
    debug_assert!(workers.iter().all(|worker| !worker.is_new()), "all of them use it");
}
