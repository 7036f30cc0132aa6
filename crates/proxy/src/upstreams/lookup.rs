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
use clearway_upstream::{Group, GroupConfig, Peer};

use crate::upstreams::choice::Choice;
use crate::upstreams::draft::find;
use crate::upstreams::group::{UpstreamGroup, plain};
use crate::upstreams::said::{RESOLVER_CONF, ResolverSpec};

/// What a value means.
#[derive(Debug)]
pub enum Destination<'c> {
    /// A group of the configuration.
    Configured(&'c UpstreamGroup),
    /// Servers that only this request knows.
    Found(Arc<Group>),
    /// A name, to be resolved.
    Name(Question<'c>),
}

/// A name that is to be resolved.
#[derive(Debug)]
pub struct Question<'c> {
    name: Box<[u8]>,
    port: u16,
    resolver: Option<&'c ResolverSpec>,
    timeout: Duration,
}

/// What an address means that was read from `text`, without its scheme.
#[must_use]
pub fn destination<'c>(request: &Request<'c>, text: &[u8], url: &Url) -> Destination<'c> {
    let host = &text[url.host.clone()];
    if let Some(group) = find(request, host, url) {
        return Destination::Configured(group);
    }
    if !url.addresses.is_empty() {
        return Destination::Found(group_of(host, url.addresses.iter().cloned()));
    }
    let conf = request.conf(&RESOLVER_CONF);
    Destination::Name(Question {
        name: host.into(),
        port: url.port,
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
        let (addresses, first) = match resolver.find(home, &self.name) {
            // Each request begins with another one, as nothing else spreads them.
            Some(known) => {
                let first = usize::from(rand::random::<u16>()) % known.addresses.len().max(1);
                (known.addresses, first)
            }
            // As in nginx those that wait for the answer take it as it comes.
            None => {
                let answer = resolver.resolve(home, &self.name, self.timeout).await;
                let failed = |failure| format!("{name} could not be resolved ({failure})");
                (answer.map_err(failed)?.addresses, 0)
            }
        };
        let turned = addresses[first..].iter().chain(&addresses[..first]);
        let remotes = turned.map(|&address| Remote::Inet(SocketAddr::new(address, self.port)));
        Ok(group_of(&self.name, remotes))
    }
}

fn group_of(host: &[u8], remotes: impl Iterator<Item = Remote>) -> Arc<Group> {
    let primary = remotes.map(|remote| Peer::new(plain(remote, host))).collect();
    let name = String::from_utf8_lossy(host).into_owned().into();
    Arc::new(Group::new(GroupConfig { name, primary, ..GroupConfig::default() }, 1))
}
