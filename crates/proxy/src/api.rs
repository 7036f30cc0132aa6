//! Groups of servers as JSON, and their servers added, changed and removed while serving: what `status
//! write=on` answers below its location. Clients that `allow` and `deny` let in may look; only those of unix
//! sockets change something. Paths and members are those of the commercial nginx, with or without `/N/http`
//! in front.

pub(crate) mod json;
pub(crate) mod said;
pub(crate) mod shown;

use std::borrow::Cow;
use std::sync::Arc;

use clearway_base::Errno;
use clearway_base::json::{put, put_text};
use clearway_base::log::Level;
use clearway_http::{
    Chunk, Cost, Errand, Exchange, GROUP_EDITING, Mark, Module, Phase, PhaseHandler, Request, Step, Store,
};
use clearway_message::Method;
use clearway_net::PeerAddr;
use clearway_offload::{At, Blocking};

use crate::api::said::Said;
use crate::upstreams::draft::UPSTREAMS_CONF;
use crate::upstreams::editing::{Editing, NotEdited};
use crate::upstreams::group::GroupCell;
use crate::upstreams::roster::{Refused, Roster, SERVERS_MAX};

/// The module. Its directive is that of `status`, before which it comes.
pub static API_MODULE: Module = Module { name: "upstream_api", phases: PHASES, ..Module::EMPTY };

/// Largest body of a request, bytes.
const BODY_MAX_BYTES: u64 = 16 * 1024;

static PHASES: &[PhaseHandler] = &[PhaseHandler {
    phase: Phase::Content,
    cost: Cost::Cheap,
    enabled: |enabling| **enabling.confs.of(&GROUP_EDITING),
    handler,
}];

/// The object of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    Groups,
    Group(Vec<u8>),
    Servers(Vec<u8>),
    Server(Vec<u8>, Vec<u8>),
    Unknown,
}

/// A status and a page, or what is wrong.
type Reply = Result<(u16, Vec<u8>), (u16, &'static str, String)>;

fn handler<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    let Some(asked) = asked_for(exchange.request.path()) else { return Step::Declined };
    Step::Wait(Box::pin(async move {
        let reply = answer(&mut exchange, asked).await;
        let reply = match reply {
            Ok(reply) => reply,
            Err(step) => return step,
        };
        let (status, page) = reply.unwrap_or_else(|wrong| refusal(&exchange, wrong));
        debug_assert!(!exchange.output.head_sent(), "a response has one head");
        let head = exchange.output.head();
        head.status = status;
        head.content_length = Some(page.len() as u64);
        head.content_type = Some(Cow::Borrowed(b"application/json"));
        // This chunk is the whole body, so that nothing has to wait for room.
        let _ = exchange.output.write(exchange.request, Chunk::Owned(page), Mark::Last);
        Step::Done
    }))
}

/// Parses the path behind `upstreams`; `None` for other paths.
fn asked_for(path: &[u8]) -> Option<Asked> {
    let mut parts = path.split(|&byte| byte == b'/').skip_while(|part| *part != b"upstreams");
    parts.next()?;
    let mut parts: Vec<Vec<u8>> = parts.map(<[u8]>::to_vec).collect();
    if parts.last().is_some_and(Vec::is_empty) {
        parts.pop();
    }
    let mut parts = parts.into_iter();
    Some(match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (None, ..) => Asked::Groups,
        (Some(group), None, ..) => Asked::Group(group),
        (Some(group), Some(servers), None, _) if servers == b"servers" => Asked::Servers(group),
        (Some(group), Some(servers), Some(id), None) if servers == b"servers" => Asked::Server(group, id),
        _ => Asked::Unknown,
    })
}

/// The answer; or the step that the request takes instead, where its body could not be read.
async fn answer(exchange: &mut Exchange<'_, '_>, asked: Asked) -> Result<Reply, Step<'static>> {
    let method = exchange.request.method();
    let is_look = matches!(method, Method::Get | Method::Head);
    let is_edit = match (&asked, method) {
        (Asked::Servers(_), Method::Post) | (Asked::Server(..), Method::Patch | Method::Delete) => true,
        (Asked::Unknown, _) => false,
        _ if is_look => false,
        _ => return drop_body(exchange, Err((405, "MethodDisabled", "method disabled".to_owned()))),
    };
    if !is_edit {
        let reply = look(exchange.request, &asked);
        return drop_body(exchange, reply);
    }
    if !matches!(exchange.request.peer(), PeerAddr::Unix) {
        let why = "servers are changed by clients of unix sockets alone";
        return drop_body(exchange, Err((403, "Forbidden", why.to_owned())));
    }
    let stored = Box::pin(exchange.read_body(Store::AsConfigured)).await.map_err(Step::Respond)?;
    let body = match &stored {
        None => &b""[..],
        Some(stored) => match stored.in_memory() {
            Some(body) if body.len() as u64 <= BODY_MAX_BYTES => &body[..],
            _ => return Ok(Err((413, "BodyTooLarge", "too large request body".to_owned()))),
        },
    };
    Ok(edit(exchange.request, &asked, body).await)
}

fn drop_body(exchange: &mut Exchange<'_, '_>, reply: Reply) -> Result<Reply, Step<'static>> {
    exchange.discard_body().map_err(Step::Respond)?;
    Ok(reply)
}

fn not_found() -> (u16, &'static str, String) {
    (404, "UpstreamNotFound", "upstream not found".to_owned())
}

fn no_server(id: &[u8]) -> (u16, &'static str, String) {
    let text = format!("server with ID \"{}\" does not exist", String::from_utf8_lossy(id));
    (404, "UpstreamServerNotFound", text)
}

/// The group of this name in the configuration of a request.
fn find<'c>(request: &Request<'c>, name: &[u8]) -> Option<&'c Arc<GroupCell>> {
    let mut cells = request.main_conf(&UPSTREAMS_CONF).cells();
    cells.find(|cell| cell.get().is_some_and(|group| group.name() == name))
}

fn look(request: &Request<'_>, asked: &Asked) -> Reply {
    let (mut out, now_s) = (Vec::new(), request.home().now_ms() / 1000);
    let group_of = |name: &[u8]| find(request, name).and_then(|cell| cell.get()).ok_or_else(not_found);
    match asked {
        Asked::Unknown => return Err((404, "PathNotFound", "path not found".to_owned())),
        Asked::Groups => {
            let groups = request.main_conf(&UPSTREAMS_CONF).cells().filter_map(|cell| cell.get());
            shown::put_list(&mut out, (b'{', b'}'), groups, |out, group| {
                put_text(out, &String::from_utf8_lossy(group.name()));
                out.push(b':');
                shown::put_group(out, group, now_s);
            });
        }
        Asked::Group(name) => shown::put_group(&mut out, group_of(name)?, now_s),
        Asked::Servers(name) => shown::put_servers(&mut out, &group_of(name)?.roster.load()),
        Asked::Server(name, id) => {
            let roster = group_of(name)?.roster.load();
            let (id, server) =
                number_of(id).and_then(|id| Some((id, roster.find(id)?))).ok_or_else(|| no_server(id))?;
            shown::put_server(&mut out, id, server);
        }
    }
    out.push(b'\n');
    Ok((200, out))
}

fn number_of(id: &[u8]) -> Option<u32> {
    std::str::from_utf8(id).ok()?.parse().ok()
}

async fn edit(request: &Request<'_>, asked: &Asked, body: &[u8]) -> Reply {
    let (Asked::Servers(name) | Asked::Server(name, _)) = asked else { return Err(not_found()) };
    let cell = find(request, name).ok_or_else(not_found)?;
    let group = cell.get().ok_or_else(not_found)?;
    let editing = group.editing.as_ref().ok_or_else(|| {
        (400, "UpstreamStatic", "the upstream has no zone, so its servers stay as they are".to_owned())
    })?;
    let (id, roster) = change(editing, request.method(), asked, body)?;
    debug_assert_eq!(
        request.method() == Method::Delete,
        roster.find(id).is_none(),
        "a server is there unless it was removed"
    );
    group.catch_up();
    if let Some(lasting) = request.main_conf(&UPSTREAMS_CONF).lasting.as_ref() {
        lasting.catch_up(name);
    }
    keep(request, cell, editing).await?;
    let mut out = Vec::new();
    match roster.find(id) {
        Some(server) => shown::put_server(&mut out, id, server),
        None => shown::put_servers(&mut out, &roster),
    }
    out.push(b'\n');
    Ok((if request.method() == Method::Post { 201 } else { 200 }, out))
}

/// Writes the change down in the zone: which server it is about, and all of them.
fn change(
    editing: &Editing,
    method: Method,
    asked: &Asked,
    body: &[u8],
) -> Result<(u32, Roster), (u16, &'static str, String)> {
    let (name, id) = match asked {
        Asked::Server(name, id) => (name, &id[..]),
        Asked::Servers(name) => (name, &b""[..]),
        _ => return Err(not_found()),
    };
    let number = || number_of(id).ok_or_else(|| no_server(id));
    let edited = match method {
        Method::Post => {
            let server = Said::read(body)?.added(editing.ranks())?;
            editing.edit(name, |roster| roster.add(server.clone()))
        }
        Method::Patch => {
            let (said, number) = (Said::read(body)?, number()?);
            said.check_change(editing.ranks())?;
            editing.edit(name, |roster| roster.alter(number, |server| said.alter(server)))
        }
        _ => {
            let number = number()?;
            editing.edit(name, |roster| roster.remove(number))
        }
    };
    edited.map_err(|why| match why {
        NotEdited::Refused(Refused::NotFound) => no_server(id),
        NotEdited::Refused(Refused::Exists) => (409, "EntryExists", "such a server is there".to_owned()),
        NotEdited::Refused(Refused::TooMany) => {
            (507, "UpstreamTooManyServers", format!("more than {SERVERS_MAX} servers"))
        }
        NotEdited::NoRoom => (507, "UpstreamOutOfMemory", "no room in the zone of the upstream".to_owned()),
        NotEdited::Busy => (503, "UpstreamBusy", "others change the upstream at present".to_owned()),
    })
}

/// Writes the state file, where there is one.
async fn keep(
    request: &Request<'_>,
    cell: &Arc<GroupCell>,
    editing: &Editing,
) -> Result<(), (u16, &'static str, String)> {
    let Some(state) = editing.state().map(Arc::clone) else { return Ok(()) };
    let unkept = |why: String| (500, "UpstreamNotPersisted", format!("changed, but not kept: {why}"));
    let pool = request.file_pool().ok_or_else(|| unkept("no pool".to_owned()))?;
    let (cell, path) = (Arc::clone(cell), state.path().to_owned());
    let place = At::path(&path);
    let job = move |blocking: &Blocking| {
        let Some((group, editing)) = cell.get().and_then(|group| Some((group, group.editing.as_ref()?)))
        else {
            return Ok(());
        };
        state.keep(blocking, editing, group.name())
    };
    let kept = request.wait_for(pool.submit_at(place, job), Errand::Deed).await;
    let kept = kept.map_err(|_| unkept("the pool has not done it".to_owned()))?;
    kept.map_err(|error| {
        let why = Errno(&error);
        request.log(Level::Crit, format_args!("state file \"{}\" cannot be written {why}", path.display()));
        unkept(format!("the state file cannot be written {why}"))
    })
}

/// The page of an error.
fn refusal(exchange: &Exchange<'_, '_>, (status, code, text): (u16, &'static str, String)) -> (u16, Vec<u8>) {
    let mut out = Vec::new();
    put(&mut out, format_args!("{{\"error\":{{\"status\":{status},\"text\":"));
    put_text(&mut out, &text);
    put(&mut out, format_args!(",\"code\":\"{code}\"}}}}\n"));
    exchange.request.log(Level::Info, format_args!("upstream API: {code}: {text}"));
    (status, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_say_what_is_asked_for() {
        let name = || b"u".to_vec();
        for (path, asked) in [
            ("/status", None),
            ("/status/upstreams", Some(Asked::Groups)),
            ("/api/9/http/upstreams/", Some(Asked::Groups)),
            ("/s/upstreams/u", Some(Asked::Group(name()))),
            ("/s/upstreams/upstreams/", Some(Asked::Group(b"upstreams".to_vec()))),
            ("/s/upstreams/u/servers/", Some(Asked::Servers(name()))),
            ("/s/upstreams/u/servers/12", Some(Asked::Server(name(), b"12".to_vec()))),
            ("/s/upstreams/u/servers/12/x", Some(Asked::Unknown)),
            ("/s/upstreams/u/peers", Some(Asked::Unknown)),
        ] {
            assert_eq!(asked_for(path.as_bytes()), asked, "{path}");
        }
    }
}
