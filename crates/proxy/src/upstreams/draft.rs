//! The groups of a configuration while it is read: those of `upstream` blocks, and those that a directive
//! means that names a host (`ngx_http_upstream_add`). A group may be named before its block stands. When all
//! is read each becomes an [`UpstreamGroup`]. Boot and reload only.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use clearway_conf::error::{message, printed};
use clearway_conf::{Directive, Error, Pos};
use clearway_http::{ConfKey, Level, Load, Own, Request, settings};
use clearway_net::url::{Names, Url, UrlKind, UrlPath, UrlRules, parse_url};
use clearway_os::outgoing::Remote;

use crate::upstreams::found::FoundGroups;
use crate::upstreams::group::{self, GroupCell, UpstreamGroup};
use crate::upstreams::lasting::Lasting;
use crate::upstreams::said::{BlockDraft, EjectionDraft, RESOLVER_CONF, ResolverSpec, RetryShare};

pub(crate) static UPSTREAMS_CONF: ConfKey<UpstreamsConf> = ConfKey::new(Level::Main);

settings! {
    /// All groups, in the order in which they were mentioned first.
    pub(crate) struct UpstreamsConf {
        pub(crate) drafts: Own<Vec<GroupDraft>>,
        /// The number of the group whose block is being read.
        pub(crate) open: Own<usize>,
        /// `upstream_retry_budget` of groups that say nothing.
        pub(crate) retry_budget: Own<Option<RetryShare>>,
        /// `upstream_ejection` of groups that say nothing.
        pub(crate) ejection: Own<Option<EjectionDraft>>,
        /// `upstream_start_unresolved`.
        pub(crate) start_unresolved: Own<Option<bool>>,
        /// Whether code chooses the servers of a group, and so how they are asked.
        pub(crate) has_balancer: Own<bool>,
        /// Their groups, by the same numbers.
        pub(crate) groups: Own<Vec<GroupEntry>>,
        /// Groups that variables name.
        pub(crate) found: Own<Option<Arc<FoundGroups>>>,
        /// The state that outlives the configuration.
        pub(crate) lasting: Own<Option<Arc<Lasting>>>,
    }
}

impl UpstreamsConf {
    /// All groups, for what goes on beside requests.
    pub(crate) fn cells(&self) -> impl Iterator<Item = &Arc<GroupCell>> {
        self.groups.iter().map(|entry| &entry.group.0)
    }

    /// Groups that variables name.
    ///
    /// # Panics
    /// While the configuration is being read.
    pub(crate) fn found(&self) -> &FoundGroups {
        self.found.as_ref().expect("they are there when all is read")
    }
}

/// A group that a directive has named: there when all is read.
#[derive(Clone, Debug, Default)]
pub struct GroupRef(Arc<GroupCell>);

impl GroupRef {
    /// The group.
    ///
    /// # Panics
    /// While the configuration is being read.
    #[must_use]
    pub fn group(&self) -> &UpstreamGroup {
        self.0.get().expect("groups are made when all is read")
    }

    /// A reference for work beside requests, which must not keep the configuration.
    pub(crate) fn downgrade(&self) -> Weak<GroupCell> {
        Arc::downgrade(&self.0)
    }
}

/// A group, as requests look for it that name a host.
pub(crate) struct GroupEntry {
    host: Bytes,
    /// 0 is that of a block.
    port: u16,
    group: GroupRef,
}

impl GroupEntry {
    /// The name by which a group is known from one configuration to the next.
    fn name(&self) -> Vec<u8> {
        lasting_name(&self.host, self.port)
    }
}

/// The name by which a group is known from one configuration to the next.
pub(crate) fn lasting_name(host: &[u8], port: u16) -> Vec<u8> {
    let host = host.to_ascii_lowercase();
    if port == 0 { host } else { [&host, format!(":{port}").as_bytes()].concat() }
}

/// The groups of a configuration while it is read.
pub(crate) struct GroupDraft {
    pub(crate) host: Bytes,
    /// The port that goes with it, 0 if there is none.
    pub(crate) port: u16,
    port_origin: PortOrigin,
    /// The position of the first mention.
    pub(crate) pos: Pos,
    /// The settings of its block.
    pub(crate) block: Option<Box<BlockDraft>>,
    /// The address, if the host is one.
    pub(crate) literal: Option<Remote>,
    cell: GroupRef,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortOrigin {
    /// The port was written.
    Written,
    /// The port is the default one.
    Default,
}

/// The group that an address of a directive means, such as that of `proxy_pass`: that of the `upstream` block
/// of this name, wherever it stands, or one that consists of this host. `address` has no scheme and no path.
///
/// # Errors
/// In nginx's words.
pub fn reference(
    load: &mut Load,
    directive: &Directive,
    address: &Bytes,
    default_port: u16,
) -> Result<(GroupRef, Url), Error> {
    let rules = UrlRules { default_port, path: UrlPath::Allowed, names: Names::Kept };
    reference_by(load, directive, address, rules)
}

/// A reference to a group by an address without a path, which has a port unless it is the name of a block.
///
/// # Errors
/// In nginx's words.
pub fn reference_bare(load: &mut Load, directive: &Directive, address: &Bytes) -> Result<GroupRef, Error> {
    let rules = UrlRules { default_port: 0, path: UrlPath::Refused, names: Names::Kept };
    reference_by(load, directive, address, rules).map(|(group, _)| group)
}

fn reference_by(
    load: &mut Load,
    directive: &Directive,
    address: &Bytes,
    rules: UrlRules<'_>,
) -> Result<(GroupRef, Url), Error> {
    let url = parse_url(address, rules).map_err(|error| {
        directive.error(message(&[&error.to_string(), &" in upstream \"", &printed(address), &"\""]))
    })?;
    let origin = match (url.kind, &url.port_text) {
        (UrlKind::Unix, _) | (_, Some(_)) => PortOrigin::Written,
        _ => PortOrigin::Default,
    };
    let host = address.slice(url.host.clone());
    let drafts = &mut load.main(&UPSTREAMS_CONF).drafts;
    for draft in drafts.iter().filter(|draft| draft.host.eq_ignore_ascii_case(&host)) {
        if draft.block.is_some() && origin == PortOrigin::Written {
            return Err(directive.error(no_port_allowed(&host, url.port)));
        }
        if draft.port == 0 || url.port == 0 || draft.port == url.port {
            return Ok((draft.cell.clone(), url));
        }
    }
    let is_whole = url.kind == UrlKind::Unix || url.port != 0;
    let draft = GroupDraft {
        host,
        port: url.port,
        port_origin: origin,
        pos: directive.pos.clone(),
        block: None,
        literal: url.addresses.first().filter(|_| is_whole).cloned(),
        cell: GroupRef::default(),
    };
    let cell = draft.cell.clone();
    drafts.push(draft);
    Ok((cell, url))
}

/// The group that the value of a variable means, if it is one of those that the configuration names.
#[must_use]
pub fn find<'c>(request: &Request<'c>, host: &[u8], url: &Url) -> Option<&'c UpstreamGroup> {
    let groups = &request.main_conf(&UPSTREAMS_CONF).groups;
    let is_it = |entry: &&GroupEntry| {
        let is_port = entry.port == url.port || entry.port == 0 && url.port_text.is_none();
        is_port && entry.host.eq_ignore_ascii_case(host)
    };
    groups.iter().find(is_it).map(|entry| entry.group.group())
}

/// A block of this name begins: its number.
pub(crate) fn begin_block(load: &mut Load, directive: &Directive) -> Result<usize, Error> {
    let host = directive.args[0].clone();
    let pos = directive.pos.clone();
    let drafts = &mut load.main(&UPSTREAMS_CONF).drafts;
    let known = drafts.iter_mut().enumerate().find(|(_, draft)| draft.host.eq_ignore_ascii_case(&host));
    if let Some((number, draft)) = known {
        if draft.block.is_some() {
            return Err(directive.error(message(&[&"duplicate upstream \"", &host, &"\""])));
        }
        if draft.port_origin == PortOrigin::Written {
            let text = no_port_allowed(&host, draft.port);
            return Err(Error::unplaced(message(&[&text, &" in ", &draft.pos.to_string()])));
        }
        draft.port = 0;
        draft.block = Some(Box::default());
        return Ok(number);
    }
    drafts.push(GroupDraft {
        host,
        port: 0,
        port_origin: PortOrigin::Default,
        pos,
        block: Some(Box::default()),
        literal: None,
        cell: GroupRef::default(),
    });
    Ok(drafts.len() - 1)
}

/// The block that is being read.
pub(crate) fn block(load: &mut Load) -> &mut BlockDraft {
    let conf = load.main(&UPSTREAMS_CONF);
    let open = *conf.open;
    conf.drafts[open].block.as_deref_mut().expect("its directives stand in a block")
}

fn no_port_allowed(host: &[u8], port: u16) -> Vec<u8> {
    message(&[&"upstream \"", &host, &"\" may not have port ", &port.to_string()])
}

/// Makes the groups, when all is read.
pub(crate) fn finish(load: &mut Load) -> Result<(), Error> {
    let http = HttpDefaults::of(load);
    let drafts = std::mem::take(&mut *load.main(&UPSTREAMS_CONF).drafts);
    let lasting = Lasting::of(load);
    let mut groups = Vec::with_capacity(drafts.len());
    for draft in drafts {
        let entry = GroupEntry { host: draft.host.clone(), port: draft.port, group: draft.cell.clone() };
        let cell = draft.cell.clone();
        let made = cell.0.set(group::make((load, &lasting), draft, &http)?);
        debug_assert!(made.is_ok(), "each group is made once");
        groups.push(entry);
    }
    groups.iter().for_each(|entry| lasting.add_group(&entry.name(), &entry.group.0));
    let conf = load.main(&UPSTREAMS_CONF);
    *conf.groups = groups;
    *conf.found = Some(lasting.found());
    *conf.lasting = Some(lasting);
    Ok(())
}

/// How names are found where a block does not say it: what stands in `http`.
pub(crate) struct HttpResolver {
    pub(crate) resolver: Option<ResolverSpec>,
    pub(crate) timeout: Duration,
}

/// The settings of `http` for all groups.
pub(crate) struct HttpDefaults {
    pub(crate) resolver: HttpResolver,
    pub(crate) retry_budget: RetryShare,
    pub(crate) ejection: EjectionDraft,
    pub(crate) unresolved: Unresolved,
}

/// The treatment of names that the system does not know when a configuration is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unresolved {
    /// The address is refused.
    Refused,
    /// Names are resolved while serving.
    Resolved,
}

impl HttpDefaults {
    fn of(load: &mut Load) -> Self {
        let resolver = HttpResolver::of(load);
        let unresolved = unresolved(load);
        let retry_budget = load.main(&UPSTREAMS_CONF).retry_budget.unwrap_or(RetryShare::Unlimited);
        let ejection = load.main(&UPSTREAMS_CONF).ejection.unwrap_or(EjectionDraft::Off);
        Self { resolver, retry_budget, ejection, unresolved }
    }
}

/// The value of `upstream_start_unresolved`, as far as it was read.
pub(crate) fn unresolved(load: &mut Load) -> Unresolved {
    match load.main(&UPSTREAMS_CONF).start_unresolved.unwrap_or(false) {
        true => Unresolved::Resolved,
        false => Unresolved::Refused,
    }
}

impl HttpResolver {
    /// The groups of `http`: at this point no location is being read.
    fn of(load: &mut Load) -> Self {
        let conf = load.location(&RESOLVER_CONF);
        Self { resolver: (*conf.resolver).clone(), timeout: *conf.resolver_timeout }
    }
}
