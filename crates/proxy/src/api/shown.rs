//! Groups and their servers as JSON: members that the commercial nginx has are called the same. Pure
//! functions.

use clearway_upstream::{Checked, Peer, ServerState};

use crate::upstreams::UpstreamGroup;
use crate::upstreams::line::{Rank, ServerDraft};
use crate::upstreams::metrics::state_of;
use crate::upstreams::roster::Roster;
use clearway_base::json::{put, put_text};

/// Writes the members of a server.
pub(crate) fn put_server(out: &mut Vec<u8>, id: u32, server: &ServerDraft) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    put(out, format_args!("{{\"id\":{id},\"server\":"));
    put_text(out, &text(&server.name));
    let ServerDraft { weight, max_conns, max_fails, fail_timeout_s, slow_start_ms, .. } = server;
    put(out, format_args!(",\"weight\":{weight},\"max_conns\":{max_conns},\"max_fails\":{max_fails}"));
    put(out, format_args!(",\"fail_timeout\":\"{fail_timeout_s}s\",\"slow_start\":\""));
    match slow_start_ms % 1000 {
        0 => put(out, format_args!("{}s\"", slow_start_ms / 1000)),
        _ => put(out, format_args!("{slow_start_ms}ms\"")),
    }
    put(out, format_args!(",\"route\":"));
    put_text(out, &text(server.route.as_deref().unwrap_or_default()));
    if let Some(lookup) = &server.lookup {
        put(out, format_args!(",\"resolve\":true,\"service\":"));
        put_text(out, &text(lookup.service.as_deref().unwrap_or_default()));
    }
    let is_backup = server.rank == Rank::Backup;
    put(out, format_args!(",\"backup\":{is_backup},\"down\":{}", server.state == ServerState::Down));
    if server.state == ServerState::Draining {
        put(out, format_args!(",\"drain\":true"));
    }
    out.push(b'}');
}

/// All that a group has.
pub(crate) fn put_servers(out: &mut Vec<u8>, roster: &Roster) {
    put_list(out, (b'[', b']'), &roster.servers, |out, (id, server)| put_server(out, *id, server));
}

/// A list with something for each.
pub(crate) fn put_list<T>(
    out: &mut Vec<u8>,
    (open, close): (u8, u8),
    list: impl IntoIterator<Item = T>,
    mut show: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(open);
    for (at, one) in list.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        show(out, one);
    }
    out.push(close);
}

/// How the servers of a group fare.
pub(crate) fn put_group(out: &mut Vec<u8>, group: &UpstreamGroup, now_s: u64) {
    out.extend_from_slice(b"{\"peers\":");
    let roster = group.roster.load();
    put_list(out, (b'[', b']'), group.peers(), |out, peer| put_peer(out, &peer, &roster, now_s));
    if let Some(editing) = &group.editing {
        out.extend_from_slice(b",\"zone\":");
        put_text(out, &String::from_utf8_lossy(editing.zone_name()));
    }
    if let Some(counts) = group.idle_counts() {
        put(out, format_args!(",\"keepalive\":{}", counts.idle));
    }
    if let Some(conf) = &group.queue {
        let counts = conf.queue.counts();
        let (size, overflows) = (counts.waiting, counts.refused);
        let max = conf.limit;
        put(out, format_args!(",\"queue\":{{\"size\":{size},\"max_size\":{max},\"overflows\":{overflows}}}"));
    }
    out.push(b'}');
}

fn put_peer(out: &mut Vec<u8>, peer: &Peer, roster: &Roster, now_s: u64) {
    let config = peer.config();
    put(out, format_args!("{{\"id\":{},\"server\":", config.source));
    put_text(out, &config.name);
    out.extend_from_slice(b",\"name\":");
    put_text(out, &config.server);
    let is_backup = roster.find(config.source).is_some_and(|server| server.rank == Rank::Backup);
    put(out, format_args!(",\"backup\":{is_backup},\"weight\":{},\"state\":", config.weight));
    put_text(out, state_of(peer, now_s));
    put(out, format_args!(",\"active\":{}", peer.conns()));
    if config.max_conns > 0 {
        put(out, format_args!(",\"max_conns\":{}", config.max_conns));
    }
    let counts = peer.counts();
    let requests = counts.answered + counts.passed + counts.failed;
    put(
        out,
        format_args!(
            ",\"requests\":{requests},\"answered\":{},\"passed\":{},\"fails\":{},\"ejections\":{}",
            counts.answered,
            counts.passed,
            counts.failed,
            peer.ejections()
        ),
    );
    let [passed, failed] = [Checked::Passed, Checked::Failed].map(|checked| peer.state().checks(checked));
    put(
        out,
        format_args!(
            ",\"health_checks\":{{\"checks\":{},\"fails\":{failed},\"unhealthy\":{}}}}}",
            passed + failed,
            !peer.is_healthy()
        ),
    );
}
