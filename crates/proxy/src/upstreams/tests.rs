//! Groups as configurations make them, and what one hands on to the next.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clearway_base::log::{Discard, Sink};
use clearway_conf::{Error, Loader, Memory};
use clearway_http::{Environment, Module, Services, Snapshot};
use clearway_log::{Disk, Writer};
use clearway_os::outgoing::Remote;
use clearway_upstream::{Attempt, AttemptOutcome, Key, Lease, Moment};
use clearway_zone::Zones;

use crate::upstreams::draft::UPSTREAMS_CONF;
use crate::upstreams::group::{Members, UpstreamGroup};
use crate::upstreams::refresh;
use crate::upstreams::turns::{self, Found};
use crate::upstreams::{Lasting, UPSTREAM, balancers, keepalive, resolver, sticky};

static MODULES: [&Module; 5] =
    [&resolver::RESOLVER, &UPSTREAM, &balancers::BALANCERS, &keepalive::KEEPALIVE, &sticky::STICKY];

/// What a configuration comes to that follows others.
fn load(lasting: &Arc<Lasting>, http: &str) -> Result<Snapshot, Error> {
    load_with(lasting, &Arc::new(Zones::create(None)), http)
}

fn load_with(lasting: &Arc<Lasting>, zones: &Arc<Zones>, http: &str) -> Result<Snapshot, Error> {
    let path = Path::new("nginx.conf");
    let source = Memory::new().with(path, format!("http {{\n{http}\n}}"));
    let block = Loader::new(&source, path).file(path);
    let sink: Arc<dyn Sink> = Arc::new(Discard);
    let writer = Arc::new(Writer::direct(Box::new(Disk)));
    let environment = Environment {
        prefix: PathBuf::from("/p/"),
        hostname: bytes::Bytes::from_static(b"machine"),
        utc_offset: writer.utc_offset(),
        log_progress: writer.progress(),
        error_log: Arc::clone(&sink),
        open_error_log: Box::new(move |_| Ok(Arc::clone(&sink))),
        default_port: 8000,
        services: Services::default().with(Arc::clone(lasting)).with(Arc::clone(zones)),
    };
    block.end()?;
    clearway_http::loader(&MODULES).load(block.directives[0].clone(), environment, &mut Vec::new())
}

/// The groups of a configuration, in their order.
fn groups(snapshot: &Snapshot) -> Vec<&UpstreamGroup> {
    snapshot.conf(&UPSTREAMS_CONF).cells().map(|cell| cell.get().expect("all is read")).collect()
}

fn names(group: &UpstreamGroup) -> Vec<String> {
    group.peers().iter().map(|peer| peer.config().name.to_string()).collect()
}

const NOW: Moment = Moment { at_loop: 0, now_ms: 100_000 };

/// The next server of a group without variables.
fn lease(group: &UpstreamGroup) -> Option<Lease> {
    let key = Key::default();
    let next = |group: &clearway_upstream::Group| group.next(&mut group.begin(&key), &key, NOW);
    match group.members() {
        Members::Fixed(group) => next(group),
        Members::Changing(group) => next(&group.load()),
    }
}

#[test]
fn what_servers_have_to_do_outlives_a_configuration_and_failures_do_not() {
    let lasting = Lasting::new(2);
    let text =
        "upstream u { server 127.0.0.1:1 max_conns=3; server 127.0.0.1:2 down; server 127.0.0.1:3 down; }";
    let first = load(&lasting, text).unwrap();
    let held = lease(groups(&first)[0]).unwrap();
    assert_eq!(held.peer().config().max_conns, 6, "for each loop");
    lease(groups(&first)[0]).unwrap().finish(Attempt::of(AttemptOutcome::Failed), NOW.now_ms);
    assert!(lease(groups(&first)[0]).is_none(), "it has failed");
    // One that is refused changes nothing.
    assert!(load(&lasting, "upstream u { server 127.0.0.1:1; server unknown.invalid resolve; }").is_err());
    let second = load(&lasting, "upstream u { server 127.0.0.1:1 weight=2; server 127.0.0.1:2; }").unwrap();
    drop(first);
    let peers = groups(&second)[0].peers();
    assert_eq!((peers[0].conns(), peers[0].fails(), peers[0].counts().failed), (1, 0, 1));
    assert_eq!((peers[0].config().weight, peers[1].conns()), (2, 0));
    drop(held);
    assert_eq!(peers[0].conns(), 0);
}

#[test]
fn a_group_with_a_zone_has_one_limit_for_all_loops() {
    let snapshot =
        load(&Lasting::new(4), "upstream u { zone u 64k; server 127.0.0.1:1 max_conns=3; }").unwrap();
    assert_eq!(groups(&snapshot)[0].peers()[0].config().max_conns, 3);
}

#[test]
fn sessions_know_servers_by_their_route_or_the_hash_of_their_address() {
    let text = "upstream u { server 127.0.0.1:8080 route=a; server unix:/x; server [::1]:80; }";
    let snapshot = load(&Lasting::new(1), text).unwrap();
    let peers = groups(&snapshot)[0].peers();
    let sids: Vec<_> = peers.iter().map(|peer| String::from_utf8_lossy(&peer.config().sid)).collect();
    // `printf unix:/x | md5sum`
    assert_eq!(sids, ["a", "a482c54c8e3f2fa68598985e24c30f42", "c1308178d10b33ec4a853215e9af4ea2"]);
}

const RESOLVED: &str = "
    resolver 127.0.0.1;
    upstream u {
        zone u 64k;
        server a.example:81 resolve weight=3;
        server 127.0.0.1:9;
        server b.example service=http resolve;
        server 127.0.0.1:8 backup;
    }";

fn found(addresses: &[&str]) -> Vec<Found> {
    let remote = |text: &&str| Remote::Inet(text.parse().unwrap());
    addresses.iter().map(|text| Found::address(remote(text))).collect()
}

#[test]
fn servers_come_and_go_with_what_names_lead_to() {
    let lasting = Lasting::new(1);
    let snapshot = load(&lasting, RESOLVED).unwrap();
    let group = groups(&snapshot)[0];
    assert_eq!(names(group), ["127.0.0.1:9", "127.0.0.1:8"]);
    refresh::change(group, 0, &found(&["10.0.0.1:81", "10.0.0.2:81"]));
    assert_eq!(names(group), ["127.0.0.1:9", "10.0.0.1:81", "10.0.0.2:81", "127.0.0.1:8"]);
    let known = group.peers();
    refresh::change(group, 0, &found(&["10.0.0.3:81", "10.0.0.2:81"]));
    assert_eq!(names(group), ["127.0.0.1:9", "10.0.0.2:81", "10.0.0.3:81", "127.0.0.1:8"]);
    assert!(Arc::ptr_eq(&known[2], &group.peers()[1]), "one that stays is the same");
    assert_eq!(group.peers()[1].config().weight, 3);
    // A service says weights, and which come first.
    let target =
        |text: &str, weight, rank| Found::target(Remote::Inet(text.parse().unwrap()), "t", weight, rank);
    let (first, later) = (turns::FIRST, turns::LATER);
    refresh::change(group, 2, &[target("10.1.0.1:85", 7, first), target("10.1.0.2:86", 2, later)]);
    let shown: Vec<_> =
        group.peers().iter().map(|peer| (peer.config().name.to_string(), peer.config().weight)).collect();
    let expected = [
        ("127.0.0.1:9", 1),
        ("10.0.0.2:81", 3),
        ("10.0.0.3:81", 3),
        ("10.1.0.1:85", 7),
        ("127.0.0.1:8", 1),
        ("10.1.0.2:86", 2),
    ];
    assert_eq!(shown, expected.map(|(name, weight)| (name.to_owned(), weight)));
    // A reload begins with what was known of names.
    let held = lease(group).unwrap();
    let next = load(&lasting, RESOLVED).unwrap();
    let expected = ["10.0.0.2:81", "10.0.0.3:81", "127.0.0.1:9", "10.1.0.1:85", "10.1.0.2:86", "127.0.0.1:8"];
    assert_eq!(names(groups(&next)[0]), expected);
    assert_eq!(groups(&next)[0].peers()[3].config().weight, 7);
    assert_eq!(groups(&next)[0].peers().iter().map(|peer| peer.conns()).sum::<u32>(), 1);
    drop(held);
    refresh::change(group, 0, &[]);
    assert_eq!(names(group), ["127.0.0.1:9", "10.1.0.1:85", "127.0.0.1:8", "10.1.0.2:86"]);
}

#[test]
fn the_same_resolver_serves_all_that_say_the_same() {
    let lasting = Lasting::new(1);
    let spec = |snapshot: &Snapshot| {
        let refreshing =
            groups(snapshot)[0].refreshing.as_ref().map(|refreshing| Arc::clone(&refreshing.resolver));
        refreshing.unwrap()
    };
    let first = load(&lasting, RESOLVED).unwrap();
    let second = load(&lasting, RESOLVED).unwrap();
    assert!(Arc::ptr_eq(&spec(&first), &spec(&second)));
    let other = load(&lasting, &RESOLVED.replace("127.0.0.1;", "127.0.0.1 valid=3s;")).unwrap();
    assert!(!Arc::ptr_eq(&spec(&first), &spec(&other)));
}

#[test]
fn a_name_that_nobody_knows_yet_can_be_left_for_later() {
    let lasting = Lasting::new(1);
    let text = "upstream u { server 127.0.0.1:1; server nosuchhost.invalid:81; }";
    assert!(load(&lasting, text).is_err());
    let on = "upstream_start_unresolved on;";
    assert!(load(&lasting, &format!("{on} {text}")).is_err(), "nobody would resolve it");
    let snapshot = load(&lasting, &format!("{on} resolver 127.0.0.1; {text}")).unwrap();
    let group = groups(&snapshot)[0];
    assert_eq!(names(group), ["127.0.0.1:1"]);
    refresh::change(group, 1, &found(&["10.0.0.1:81"]));
    assert_eq!(names(group), ["127.0.0.1:1", "10.0.0.1:81"]);
}

#[test]
fn a_block_may_have_another_budget_than_http() {
    let text = "
        upstream_retry_budget 7%;
        upstream a { server 127.0.0.1:1; }
        upstream b { server 127.0.0.1:1; upstream_retry_budget 20%; }
        upstream c { server 127.0.0.1:1; upstream_retry_budget off; }";
    let lasting = Lasting::new(1);
    let snapshot = load(&lasting, text).unwrap();
    let budgets = || groups(&snapshot).into_iter().map(|group| group.budget.as_ref());
    assert_eq!(
        budgets().map(|budget| Some(budget?.percent())).collect::<Vec<_>>(),
        [Some(7), Some(20), None]
    );
    let next = load(&lasting, text).unwrap();
    let same = |(before, group): (Option<&Arc<_>>, &UpstreamGroup)| match (before, &group.budget) {
        (Some(before), Some(budget)) => Arc::ptr_eq(before, budget),
        (before, budget) => before.is_none() && budget.is_none(),
    };
    assert!(budgets().zip(groups(&next)).all(same));
    assert!(load(&lasting, "upstream_retry_budget 101%;").is_err());
}

/// A group in a zone that is open, as one that serves.
fn open(zones: &Arc<Zones>, lasting: &Arc<Lasting>, http: &str) -> Snapshot {
    let snapshot = load_with(lasting, zones, http).unwrap();
    zones.open().unwrap();
    groups(&snapshot).iter().for_each(|group| group.catch_up());
    snapshot
}

fn added(address: &str) -> crate::upstreams::line::ServerDraft {
    let name = bytes::Bytes::copy_from_slice(address.as_bytes());
    let mut server = crate::upstreams::line::said_of(&name, &[]).unwrap();
    server.addresses = vec![Remote::Inet(address.parse().unwrap())];
    server
}

const EDITED: &str = "upstream u { zone u 64k; server 127.0.0.1:1; server 127.0.0.1:2 weight=2; }";

#[test]
fn servers_are_changed_while_serving_and_stay_so() {
    let (lasting, zones) = (Lasting::new(1), Arc::new(Zones::create(None)));
    let first = open(&zones, &lasting, EDITED);
    let group = groups(&first)[0];
    let editing = group.editing.as_ref().unwrap();
    let held = lease(group).unwrap();
    let before = Arc::clone(held.peer());
    before.fall_ill();
    assert_eq!(editing.edit(b"u", |roster| roster.add(added("127.0.0.1:3"))).unwrap().0, 2);
    editing.edit(b"u", |roster| roster.remove(0)).unwrap();
    editing.edit(b"u", |roster| roster.alter(1, |server| server.weight = 5)).unwrap();
    group.catch_up();
    assert_eq!(names(group), ["127.0.0.1:2", "127.0.0.1:3"]);
    let altered = &group.peers()[0];
    assert!(altered.is_same(&before) && altered.config().weight == 5);
    assert_eq!((altered.conns(), altered.is_healthy()), (1, false), "how it fares goes on");
    // The next configuration of the same servers, and another worker, have them too.
    let next = Arc::new(Zones::create(Some(&zones)));
    let second = open(&next, &lasting, EDITED);
    assert_eq!(names(groups(&second)[0]), ["127.0.0.1:2", "127.0.0.1:3"]);
    assert_eq!(groups(&second)[0].peers()[0].conns(), 1);
    let elsewhere = open(&Arc::new(Zones::create(Some(&next))), &Lasting::new(1), EDITED);
    assert_eq!(groups(&elsewhere)[0].peers()[0].config().weight, 5);
    // One that says something else begins anew, and goes on from there.
    let other = "upstream u { zone u 64k; server 127.0.0.1:9; }";
    let zones = Arc::new(Zones::create(Some(&next)));
    let third = open(&zones, &lasting, other);
    assert_eq!(names(groups(&third)[0]), ["127.0.0.1:9"]);
    let group = groups(&third)[0];
    group.editing.as_ref().unwrap().edit(b"u", |roster| roster.add(added("127.0.0.1:8"))).unwrap();
    group.catch_up();
    assert_eq!(names(group), ["127.0.0.1:9", "127.0.0.1:8"]);
}

#[test]
fn a_zone_without_room_refuses_a_change() {
    let (lasting, zones) = (Lasting::new(1), Arc::new(Zones::create(None)));
    let snapshot = open(&zones, &lasting, "upstream u { zone u 32k; server 127.0.0.1:1; }");
    let group = groups(&snapshot)[0];
    let editing = group.editing.as_ref().unwrap();
    let mut count = 1;
    let refused = loop {
        let address = format!("127.0.0.1:{}", 1000 + count);
        match editing.edit(b"u", |roster| roster.add(added(&address))) {
            Ok(_) => count += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, crate::upstreams::editing::NotEdited::NoRoom);
    group.catch_up();
    assert!(count > 40 && group.peers().len() == count, "{count}");
}

#[test]
fn names_that_are_resolved_can_be_changed_and_removed() {
    let (lasting, zones) = (Lasting::new(1), Arc::new(Zones::create(None)));
    let snapshot = open(&zones, &lasting, RESOLVED);
    let group = groups(&snapshot)[0];
    refresh::change(group, 0, &found(&["10.0.0.1:81", "10.0.0.2:81"]));
    let editing = group.editing.as_ref().unwrap();
    editing.edit(b"u", |roster| roster.alter(0, |server| server.weight = 7)).unwrap();
    group.catch_up();
    refresh::change(group, 0, &found(&["10.0.0.2:81", "10.0.0.3:81"]));
    let weights: Vec<u32> = group.peers().iter().map(|peer| peer.config().weight).collect();
    assert_eq!(names(group), ["10.0.0.2:81", "127.0.0.1:9", "10.0.0.3:81", "127.0.0.1:8"]);
    assert_eq!(weights, [7, 1, 7, 1]);
    editing.edit(b"u", |roster| roster.remove(0)).unwrap();
    group.catch_up();
    refresh::change(group, 0, &found(&["10.0.0.4:81"]));
    assert_eq!(names(group), ["127.0.0.1:9", "127.0.0.1:8"]);
}

#[test]
fn a_state_file_needs_a_zone_and_no_servers_beside_it() {
    let lasting = Lasting::new(1);
    let refused = |text: &str| load(&lasting, text).err().map(|error| error.to_string()).unwrap_or_default();
    let said = refused("upstream u { state /nowhere/u.conf; }");
    assert!(said.contains("requires it to be in shared memory"), "{said}");
    let said = refused("upstream u { zone u 64k; server 127.0.0.1:1; state /nowhere/u.conf; }");
    assert!(said.contains("cannot be used together"), "{said}");
    let snapshot = load(&lasting, "upstream u { zone u 64k; state /nowhere/u.conf; }").unwrap();
    assert!(groups(&snapshot)[0].peers().is_empty());
}
