//! A request and the servers that it tries. The choice owns what it needs of the request, so the request may
//! be used while it is there; it borrows from the configuration.

use std::net::IpAddr;
use std::sync::Arc;

use clearway_http::{Balancer, Text, View};
use clearway_upstream::{Ejection, Group, Key, Lease, Moment, QueuePlace, Where};

use crate::upstreams::group::{Members, UpstreamGroup};
use crate::upstreams::session::LearnWhen;

/// The choice of servers for one request.
#[derive(Debug)]
pub struct Choice<'c> {
    upstream: Option<&'c UpstreamGroup>,
    group: Held<'c>,
    choice: clearway_upstream::Choice,
    client: Option<IpAddr>,
    key: Text<'c>,
    /// The request's session.
    session: Text<'c>,
    /// The server that its session is with.
    sid: Text<'c>,
}

/// The servers that a request chooses from; they stay the same for it.
#[derive(Debug)]
enum Held<'c> {
    Configured(&'c Group),
    Shared(Arc<Group>),
    /// A group whose state is known from other requests only.
    Found(Arc<Group>),
}

/// The result of a look for a server.
#[derive(Debug)]
pub enum Next {
    /// This server is asked.
    Server(Lease),
    /// The request waits until one can be used, so many milliseconds at most.
    Waits(QueuePlace, u64),
    /// As many wait as may.
    Full,
    /// None can be used.
    None,
}

impl Held<'_> {
    fn group(&self) -> &Group {
        match self {
            Self::Configured(group) => group,
            Self::Shared(group) | Self::Found(group) => group,
        }
    }
}

impl UpstreamGroup {
    /// A request begins: what decides about its servers is evaluated now.
    #[must_use]
    pub fn begin<'c>(&'c self, view: &View<'_, 'c>) -> Choice<'c> {
        let group = match self.members() {
            Members::Fixed(group) => Held::Configured(group),
            Members::Changing(group) => Held::Shared(group.load_full()),
        };
        let key = self.key.as_ref().map(|key| key.eval(view)).unwrap_or_default();
        let session = self.sticky.as_ref().map(|sticky| sticky.session(view)).unwrap_or_default();
        let sid = self.sticky.as_ref().map(|sticky| sticky.sid(&session, group.group())).unwrap_or_default();
        let client = view.request.peer().ip();
        if let Some(budget) = &self.budget {
            budget.deposit();
        }
        let choice = group.group().begin(&Key { client, text: &key, sid: &sid });
        Choice { upstream: Some(self), group, choice, client, key, session, sid }
    }
}

impl<'c> Choice<'c> {
    /// Among servers that no configuration names.
    #[must_use]
    pub fn among(group: Arc<Group>) -> Self {
        let choice = group.begin(&Key::default());
        let none = Text::default;
        Self {
            upstream: None,
            group: Held::Found(group),
            choice,
            client: None,
            key: none(),
            session: none(),
            sid: none(),
        }
    }

    /// How many servers may be tried at most.
    #[must_use]
    pub fn tries(&self) -> usize {
        self.group.group().tries()
    }

    /// Whether the only server is tried once, whatever becomes of it.
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.group.group().is_single()
    }

    /// The group as messages call it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.group.group().name()
    }

    /// The group of the configuration, unless the servers were found for this request.
    #[must_use]
    pub fn upstream(&self) -> Option<&'c UpstreamGroup> {
        self.upstream
    }

    /// The code that chooses in place of the group's rule, if there is some.
    #[must_use]
    pub fn balancer(&self) -> Option<&'c dyn Balancer> {
        self.upstream.and_then(UpstreamGroup::balancer)
    }

    /// Whether the group has no servers of its own, as code chooses them.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.group.group().peers().next().is_none()
    }

    /// Whether the request may have a further attempt (`upstream_retry_budget`), which it makes then.
    #[must_use]
    pub fn may_try_again(&self) -> bool {
        let budget = self.upstream.and_then(|upstream| upstream.budget.as_ref());
        budget.is_none_or(|budget| budget.withdraw())
    }

    /// Servers of the group that are left alone from now on, as they are worse than others.
    #[must_use]
    pub fn eject(&self, now_ms: u64) -> Vec<Ejection> {
        self.group.group().eject(now_ms)
    }

    /// The next server, or where to wait for one (`queue`).
    pub fn next_or_wait(&mut self, moment: Moment) -> Next {
        let Some(conf) = self.upstream.and_then(|upstream| upstream.queue.as_ref()) else {
            return self.next(moment).map_or(Next::None, Next::Server);
        };
        let place = self.group.group().place_to_wait(&self.choice);
        // Requests that wait in the line are not overtaken.
        if (place != Some(Where::InLine) || conf.queue.is_empty())
            && let Some(lease) = self.try_again(moment)
        {
            return Next::Server(lease);
        }
        let Some(place) = place else { return Next::None };
        debug_assert!(conf.limit > 0, "a queue has room");
        match conf.queue.enter(conf.limit, place) {
            Some(waiting) => Next::Waits(waiting, conf.timeout_ms),
            None => Next::Full,
        }
    }

    /// The next server for a request that waits.
    pub fn try_again(&mut self, moment: Moment) -> Option<Lease> {
        let key = Key { client: self.client, text: &self.key, sid: &self.sid };
        self.group.group().next_or_same(&mut self.choice, &key, moment)
    }

    /// The next server; `None` where none can be used ("no live upstreams").
    fn next(&mut self, moment: Moment) -> Option<Lease> {
        let key = Key { client: self.client, text: &self.key, sid: &self.sid };
        let next = self.group.group().next(&mut self.choice, &key, moment);
        match &self.group {
            // nginx, which remembers nothing of them, tries each.
            Held::Found(group) => next.or_else(|| group.next_of_failed(&mut self.choice, moment)),
            _ => next,
        }
    }

    /// The value of the `Set-Cookie` line that goes with an answer of this server (`sticky cookie`). A
    /// further attempt has another one in its place.
    #[must_use]
    pub fn cookie(&self, view: &View<'_, '_>, lease: &Lease) -> Option<Vec<u8>> {
        self.upstream?.sticky.as_ref()?.cookie(view, lease.peer())
    }

    /// Tells of a response that is not passed over: that its head has come, or, before the attempt is
    /// finished as answered, that it is complete (`sticky learn`).
    pub fn learn(&self, view: &View<'_, '_>, lease: &Lease, when: LearnWhen) {
        if let Some(sticky) = self.upstream.and_then(|upstream| upstream.sticky.as_ref()) {
            sticky.learn(view, &self.session, (self.group.group(), lease.peer()), when);
        }
    }
}
