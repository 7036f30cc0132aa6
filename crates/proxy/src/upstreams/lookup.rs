//! Where a request goes whose server is the value of a variable: to a group of the configuration, to an
//! address, or to what a name server says. Runs on loops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clearway_base::log::Verbatim;
use clearway_http::{Request, View};
use clearway_net::url::Url;
use clearway_os::outgoing::Remote;
use clearway_runtime::LoopRef;
use clearway_upstream::Group;

use crate::upstreams::choice::Choice;
use crate::upstreams::draft::{UPSTREAMS_CONF, find};
use crate::upstreams::found::FoundGroups;
use crate::upstreams::group::UpstreamGroup;
use crate::upstreams::said::{RESOLVER_CONF, ResolverSpec};

/// The meaning of a value.
#[derive(Debug)]
pub enum Destination<'c> {
    /// A group of the configuration.
    Configured(&'c UpstreamGroup),
    /// Servers that no configuration names.
    Found(Arc<Group>),
    /// A name, to be resolved.
    Name(Question<'c>),
}

/// A name that is to be resolved.
#[derive(Debug)]
pub struct Question<'c> {
    name: Box<[u8]>,
    port: u16,
    found: &'c FoundGroups,
    resolver: Option<&'c ResolverSpec>,
    timeout: Duration,
}

/// The meaning of an address that was read from `text`, without its scheme.
#[must_use]
pub fn destination<'c>(request: &Request<'c>, text: &[u8], url: &Url) -> Destination<'c> {
    let host = &text[url.host.clone()];
    if let Some(group) = find(request, host, url) {
        return Destination::Configured(group);
    }
    let found = request.main_conf(&UPSTREAMS_CONF).found();
    if !url.addresses.is_empty() {
        let now_ms = request.home().now_ms();
        return Destination::Found(found.group((host, url.port), url.addresses.iter().cloned(), now_ms));
    }
    let conf = request.conf(&RESOLVER_CONF);
    Destination::Name(Question {
        name: host.into(),
        port: url.port,
        found,
        resolver: conf.resolver.as_ref(),
        timeout: *conf.resolver_timeout,
    })
}

impl<'c> Destination<'c> {
    /// A request goes there.
    ///
    /// # Errors
    /// For a name: gives the question back, which is to be asked first.
    pub fn begin(self, view: &View<'_, 'c>) -> Result<Choice<'c>, Question<'c>> {
        match self {
            Self::Configured(group) => Ok(group.begin(view)),
            Self::Found(group) => Ok(Choice::among(group)),
            Self::Name(question) => Err(question),
        }
    }
}

impl Question<'_> {
    /// Asks for the servers, from a task of this loop.
    ///
    /// # Errors
    /// What to log, in nginx's words; the request is answered with 502.
    pub async fn ask(self, home: LoopRef) -> Result<Arc<Group>, String> {
        let name = Verbatim(&self.name);
        let Some(resolver) = self.resolver.and_then(|spec| spec.0.running(home)) else {
            return Err(format!("no resolver defined to resolve {name}"));
        };
        let addresses = match resolver.find(home, &self.name) {
            Some(known) => known.addresses,
            None => {
                let answer = resolver.resolve(home, &self.name, self.timeout).await;
                answer.map_err(|failure| format!("{name} could not be resolved ({failure})"))?.addresses
            }
        };
        let remotes = addresses.iter().map(|&address| Remote::Inet(SocketAddr::new(address, self.port)));
        Ok(self.found.group((&self.name, self.port), remotes, home.now_ms()))
    }
}
