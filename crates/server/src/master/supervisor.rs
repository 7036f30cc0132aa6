//! Which worker processes there are to be, one for each group of loops: starts them, has all of them build a
//! configuration before one of them uses it, starts another one in the place of one that has ended. Beside
//! them the privileged agent, where their code wants one: a new one for each configuration. The master's
//! thread.
//!
//! Invariant: of the groups of a configuration all use it, or none.

use std::time::{Duration, Instant};

use clearway_base::log::{Level, Sink, Verbatim};
use clearway_os::child::{self, Exit};
use clearway_os::poll;
use clearway_os::signal::Signal;

use super::configuration::Configuration;
use super::cycle::{Master, environment};
use super::listening::Listening;
use super::wanted::Want;
use super::workers::{self, Answer, Built, Occasion, WorkerProcess};
use crate::control::Order;
use crate::core_conf::Duty;
use crate::messages::DirectLog;
use crate::start::Failed;

/// The time between two attempts to start a worker where the last one failed.
const RESPAWN_AFTER: Duration = Duration::from_secs(1);

/// A worker that ends with this code cannot be started again (nginx's).
const FATAL_CODE: i32 = 2;

impl Master<'_> {
    /// The groups of the present configuration.
    pub(super) fn groups(&self) -> Vec<Duty> {
        (0..self.config.core.groups()).map(Duty::Group).collect()
    }

    /// Starts a worker in the place of one that should not have ended.
    pub(super) fn replace(&mut self, ended: &WorkerProcess, exit: Exit) {
        if !ended.is_serving() || self.ending.is_some() {
            return;
        }
        if exit == Exit::Code(FATAL_CODE) {
            let (name, pid, code) = (ended.name(), ended.pid, FATAL_CODE);
            let message = format_args!("{name} {pid} exited with fatal code {code} and cannot be respawned");
            self.config.log.log(Level::Alert, message);
            return;
        }
        if ended.is_agent() && ended.age() < RESPAWN_AFTER {
            // To start one keeps the master busy, and workers are not to wait for one that ends at once.
            self.respawn_at = Some(Instant::now() + RESPAWN_AFTER);
            return;
        }
        self.ensure_workers(Occasion::Respawn);
    }

    /// Starts a worker for each group that has none which serves, and the agent where there is to be one.
    pub(super) fn ensure_workers(&mut self, occasion: Occasion) {
        if self.no_accepting || self.ending.is_some() || !self.config.core.wants_worker() {
            return;
        }
        for group in self.groups() {
            if self.workers.iter().any(|worker| worker.is_serving() && worker.duty == group) {
                continue;
            }
            // Each by itself: a group that cannot be started takes no other one with it.
            match self.start_workers(&[group], occasion, &self.log()) {
                Ok(started) => self.workers.extend(started),
                Err(Failed) => self.respawn_at = Some(Instant::now() + RESPAWN_AFTER),
            }
        }
        let has_agent = self.workers.iter().any(|worker| worker.is_serving() && worker.is_agent());
        if self.agent.is_some_and(|connections| connections > 0) && !has_agent {
            self.renew_agent();
        }
    }

    /// Has the agent of the present configuration, if it wants one, take the place of the one before.
    pub(super) fn renew_agent(&mut self) {
        let mut started = Vec::new();
        match self.agent {
            Some(0) => {
                let message = "0 worker_connection is not enough, privileged agent process cannot be spawned";
                self.config.log.log(Level::Alert, format_args!("{message}"));
            }
            Some(connections) => {
                match self.start_workers(&[Duty::Agent { connections }], Occasion::Respawn, &self.log()) {
                    Ok(agent) => started = agent,
                    Err(Failed) => self.respawn_at = Some(Instant::now() + RESPAWN_AFTER),
                }
            }
            None => {}
        }
        self.workers.iter_mut().filter(|worker| worker.is_agent()).for_each(|agent| agent.retire(&[]));
        self.workers.extend(started);
    }

    /// Starts processes for these duties with the present configuration, and waits until all of them serve.
    ///
    /// # Errors
    /// After the reason has been logged; none of them is left.
    pub(super) fn start_workers(
        &mut self,
        duties: &[Duty],
        occasion: Occasion,
        log: &dyn Sink,
    ) -> Result<Vec<WorkerProcess>, Failed> {
        let mut workers = Vec::new();
        match self.bring_to(&mut workers, duties, log) {
            Ok(built) => {
                debug_assert_eq!(workers.len(), duties.len(), "each duty has one process");
                self.commit(&mut workers, built, occasion, log);
                Ok(workers)
            }
            Err(failed) => {
                self.give_up_new(&mut workers, log);
                debug_assert!(workers.is_empty(), "all of them were new");
                Err(failed)
            }
        }
    }

    /// Starts a process for each of these duties that has none among `workers`, and has all of them build the
    /// present configuration. What each has built.
    fn bring_to(
        &mut self,
        workers: &mut Vec<WorkerProcess>,
        duties: &[Duty],
        log: &dyn Sink,
    ) -> Result<Vec<Built>, Failed> {
        for &duty in duties {
            if workers.iter().all(|worker| worker.duty != duty) {
                let environment = environment(&self.config, &self.environment);
                let (name, stderr) = (self.invocation.name(), self.stderr_file());
                let spawned = WorkerProcess::spawn((name, duty), &environment, stderr);
                workers.push(spawned.map_err(|error| workers::cannot_start(&error, log))?);
            }
        }
        self.number += 1;
        let asked = workers.iter_mut().try_for_each(|worker| {
            let hand = self.config.hand((self.number, worker.duty), self.invocation, &self.listening);
            let handover = hand.map_err(|error| workers::cannot_start(&error, log))?;
            worker.ask(&Order::Load(Box::new(handover)));
            Ok(())
        });
        // Also those that are asked in vain answer: their answers are not to be taken for later ones.
        self.await_answers(workers, Want::Terminate);
        asked?;
        workers.iter_mut().map(|worker| self.take_built(worker, log)).collect()
    }

    /// What a process has built.
    fn take_built(&self, worker: &mut WorkerProcess, log: &dyn Sink) -> Result<Built, Failed> {
        match worker.take_answer() {
            Some(Answer::Ready(built)) => return Ok(built),
            Some(Answer::Failed { level, text }) => log.log(level, format_args!("{}", Verbatim(&text))),
            None if self.wanted.has(Want::Terminate) => {}
            None => {
                let (name, pid) = (worker.name(), worker.pid);
                log.log(Level::Alert, format_args!("{name} {pid} ended while it was starting"));
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
        let agent = self.agent.take();
        let result = self.hand_on_to_workers(old, old_listening, log);
        if result.is_err() {
            self.agent = agent;
        }
        result
    }

    fn hand_on_to_workers(
        &mut self,
        old: &Configuration,
        old_listening: &Listening,
        log: &DirectLog,
    ) -> Result<(), Failed> {
        let same_processes = self.config.core.process_traits() == old.core.process_traits()
            && !self.config.core.wants_privileged_start();
        let serves =
            |worker: &WorkerProcess| worker.is_serving() && worker.is_connected() && !worker.is_agent();
        let wants_worker = self.config.core.wants_worker();
        if !same_processes || !wants_worker || !self.workers.iter().any(serves) {
            let groups = if wants_worker { self.groups() } else { Vec::new() };
            let started = self.start_workers(&groups, Occasion::Start, log)?;
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
        let mut workers: Vec<WorkerProcess> = self.workers.extract_if(.., |worker| serves(worker)).collect();
        let built = self.bring_to(&mut workers, &self.groups(), log);
        let result = match built {
            Ok(built) => {
                self.refuse_removed(old_listening);
                self.commit(&mut workers, built, Occasion::Start, &self.log());
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

    /// Has workers use what they have built, and learns of it whether there is to be an agent.
    fn commit(
        &mut self,
        workers: &mut [WorkerProcess],
        built: Vec<Built>,
        occasion: Occasion,
        log: &dyn Sink,
    ) {
        assert_eq!(workers.len(), built.len(), "all of them have built it, or none uses it");
        workers.iter().for_each(|worker| worker.tell(&Order::Commit));
        if occasion == Occasion::Start {
            log.log(Level::Notice, format_args!("start worker processes"));
        }
        for (worker, Built { identities, agent }) in workers.iter_mut().zip(built) {
            if !worker.is_agent() {
                self.agent = agent.or(self.agent);
            }
            worker.begin(identities, log);
        }
        debug_assert!(workers.iter().all(|worker| !worker.is_new()), "all of them use it");
    }
}
