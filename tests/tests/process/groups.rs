//! `worker_groups`: loops that are shared out to several worker processes. What they have in common, what a
//! crash ends, and that all of them use a configuration or none.

use std::collections::BTreeSet;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::process::{Pid, is_running};
use clearway_testkit::server::send_signal;
use clearway_testkit::{Binary, Connection, End, Response, Server, Setup, wait_until};
use rustix::process::Signal;

const BIG_BYTES: usize = 24 << 20;

const ZONES: &str = "lua_shared_dict d 1m; limit_req_zone $server_name zone=one:1m rate=1r/m;
    proxy_cache_path cache keys_zone=c:1m inactive=1h;
    init_worker_by_lua_block { ngx.shared.d:set('number ' .. ngx.worker.id(), true) }";

/// The locations of most tests. One path says which process answers.
const LOCATIONS: &str = "root site;
    location = /who { content_by_lua_block {
        ngx.print(ngx.worker.pid(), ' ', ngx.worker.id(), ' ', ngx.worker.count()) } }
    location = /numbers { content_by_lua_block { local own, count = {}, ngx.worker.count()
        for id = 0, count - 1 do own[#own + 1] = ngx.shared.d:get('number ' .. id) and id or nil end
        ngx.print(table.concat(own, ' '), ' of ', count) } }
    location = /word { return 200 old; }
    location = /count { content_by_lua_block { ngx.print((ngx.shared.d:incr('n', 1, 0))) } }
    location = /limited { limit_req zone=one; }
    location = /go { content_by_lua_block { ngx.shared.d:set('go', true) } }
    location = /asked { content_by_lua_block { ngx.print(ngx.shared.d:get('asked') or 0) } }
    location /cached/ { proxy_pass http://127.0.0.1:%%PORT2%%; proxy_cache c; proxy_cache_valid 1h;
        proxy_cache_lock on; proxy_cache_lock_timeout 1h; proxy_cache_lock_age 1h; proxy_read_timeout 1h;
        add_header X-Cache $upstream_cache_status; }";

/// The server that the cache asks.
const ORIGIN: &str = "server { listen 127.0.0.1:%%PORT2%%;
    location /cached/fast { content_by_lua_block { ngx.shared.d:incr('asked', 1, 0) ngx.print('fast') } }
    location /cached/slow { content_by_lua_block { ngx.shared.d:incr('asked', 1, 0)
        while not ngx.shared.d:get('go') do ngx.sleep(0.01) end ngx.print('slow') } } }";

fn config(loops: usize, groups: &str, listen: &str, more: &str) -> String {
    let http = format!(
        "{ZONES} {more} server {{ listen 127.0.0.1:%%PORT%% {listen}; server_name a; {LOCATIONS} }} {ORIGIN}"
    );
    let main = format!("worker_groups {groups};");
    let text = crate::config(&main, &http);
    text.replace("worker_processes 1;", &format!("worker_processes {loops};"))
}

fn setup(config: &str) -> Setup {
    let setup = Setup::new(Binary::under_test(), config).file("site/big", vec![b'x'; BIG_BYTES]);
    setup.file("site/limited", "file")
}

fn start(loops: usize, groups: &str) -> Server {
    setup(&config(loops, groups, "", "")).start()
}

fn ask(connection: &mut Connection, target: &str) -> Response {
    connection.ask(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"))
}

fn text(connection: &mut Connection, target: &str) -> String {
    ask(connection, target).text()
}

/// A kept connection to each of so many worker processes.
fn connections(server: &Server, groups: usize) -> Vec<(Pid, Connection)> {
    let mut found: Vec<(Pid, Connection)> = Vec::new();
    let all = wait_until(PATIENCE, || {
        let mut connection = server.connect();
        let who = text(&mut connection, "/who");
        let pid: Pid = who.split(' ').next().and_then(|pid| pid.parse().ok()).expect(&who);
        if found.iter().all(|(known, _)| *known != pid) {
            found.push((pid, connection));
        }
        found.len() == groups
    });
    assert!(all, "each process accepts: {}", server.described());
    found
}

/// The workers of the master, once there are so many.
fn workers(server: &Server, count: usize) -> BTreeSet<Pid> {
    let there = wait_until(PATIENCE, || server.workers_of(server.pid()).len() == count);
    assert!(there, "{}", server.described());
    server.workers_of(server.pid()).into_iter().collect()
}

fn reload(server: &mut Server, config: &str, word: &str) {
    server.configure(&config.replace("200 old", &format!("200 {word}")));
    server.signal(Signal::HUP);
    assert!(wait_until(PATIENCE, || server.get("/word").text() == word), "{}", server.described());
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no groups")]
fn each_group_has_its_share_of_the_loops() {
    for (groups, processes) in [("2", 2), ("auto", 4)] {
        let server = start(4, groups);
        let pids: BTreeSet<Pid> = connections(&server, processes).iter().map(|(pid, _)| *pid).collect();
        assert_eq!(pids, workers(&server, processes));
        let all = wait_until(PATIENCE, || server.get("/numbers").text() == "0 1 2 3 of 4");
        assert!(all, "{}", server.get("/numbers").text());
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no groups")]
fn a_crash_ends_one_share() {
    for listen in ["", "reuseport"] {
        let server = setup(&config(2, "2", listen, "")).start();
        let [(dead, mut broken), (alive, mut kept)] =
            connections(&server, 2).try_into().unwrap_or_else(|_| panic!("two"));
        assert_eq!(text(&mut broken, "/count"), "1");
        send_signal(dead, Signal::KILL);
        assert_eq!(broken.next_event(PATIENCE), End::Closed);
        server.wait_gone(dead);
        assert_eq!(text(&mut kept, "/count"), "2", "zones stay as they are");
        server.wait_log("logs/error.log", "exited on signal 9");
        let both = workers(&server, 2);
        assert!(both.contains(&alive) && !both.contains(&dead));
        let now: BTreeSet<Pid> = connections(&server, 2).iter().map(|(pid, _)| *pid).collect();
        assert_eq!(now, both, "the new one serves");
        assert_eq!(text(&mut kept, "/who").split(' ').next(), Some(&*alive.to_string()));
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no groups")]
fn zones_count_over_all() {
    let server = start(2, "2");
    let mut both = connections(&server, 2);
    assert_eq!(ask(&mut both[0].1, "/limited").status, 200);
    assert_eq!(ask(&mut both[1].1, "/limited").status, 503);
    for number in 1..=6 {
        assert_eq!(text(&mut both[number % 2].1, "/count"), number.to_string());
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no groups")]
fn what_one_has_cached_the_other_has() {
    let server = start(2, "2");
    let mut both = connections(&server, 2);
    let cached = |connection: &mut Connection| {
        let response = ask(connection, "/cached/fast");
        (response.text(), response.header("X-Cache").unwrap_or_default().to_owned())
    };
    assert_eq!(cached(&mut both[0].1), ("fast".to_owned(), "MISS".to_owned()));
    // The client has its answer before the file has its name.
    assert!(wait_until(PATIENCE, || cached(&mut both[1].1).1 == "HIT"));
    assert!(text(&mut both[0].1, "/asked").parse::<u32>().expect("a number") <= 2);
    // What is written down by both is found again.
    drop(both);
    assert!(wait_until(PATIENCE, || server.prefix().join("cache/.clearway/journal").exists()));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no groups")]
fn one_of_all_processes_fetches() {
    let server = start(2, "2");
    let mut both = connections(&server, 2);
    let mut beside = server.connect();
    for (_, connection) in &mut both {
        connection.send(b"GET /cached/slow HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(wait_until(PATIENCE, || text(&mut beside, "/asked") == "1"));
    }
    assert_eq!(ask(&mut beside, "/go").status, 200);
    let [first, second] = [0, 1].map(|at| both[at].1.response());
    assert_eq!((&*first.text(), first.header("X-Cache")), ("slow", Some("MISS")));
    assert_eq!((&*second.text(), second.header("X-Cache")), ("slow", Some("HIT")));
    assert_eq!(text(&mut beside, "/asked"), "1");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no groups")]
fn one_that_dies_while_it_fetches_holds_nobody() {
    let server = start(2, "2");
    let mut both = connections(&server, 2);
    let origin = |server: &Server| wait_until(PATIENCE, || server.get("/asked").text() == "1");
    both[0].1.send(b"GET /cached/slow HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(origin(&server));
    both[1].1.send(b"GET /cached/slow HTTP/1.1\r\nHost: a\r\n\r\n");
    send_signal(both[0].0, Signal::KILL);
    server.wait_gone(both[0].0);
    workers(&server, 2);
    // The other one asks itself now.
    assert!(wait_until(PATIENCE, || server.get("/asked").text() == "2"));
    assert_eq!(server.get("/go").status, 200);
    assert_eq!(both[1].1.response().text(), "slow");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no groups")]
fn a_reload_reaches_all() {
    let text_of = config(2, "2", "", "");
    let mut server = setup(&text_of).start();
    let mut both = connections(&server, 2);
    let before = workers(&server, 2);
    reload(&mut server, &text_of, "new");
    for (_, connection) in &mut both {
        assert!(wait_until(PATIENCE, || text(connection, "/word") == "new"));
    }
    assert_eq!(workers(&server, 2), before);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no groups")]
fn where_one_cannot_use_a_configuration_none_does() {
    // Run once for each loop at the start, once to try it, and then for each loop again: the last one fails.
    let init = "init_by_lua_block { if ngx.shared.d:incr('inits', 1, 0) == 5 then error('no more') end }";
    let text_of = config(2, "2", "", init);
    let mut server = setup(&text_of).start();
    let mut both = connections(&server, 2);
    let before = workers(&server, 2);
    server.configure(&text_of.replace("200 old", "200 new"));
    server.signal(Signal::HUP);
    server.wait_log("logs/error.log", "no more");
    // What comes behind it is done, so that is over.
    server.signal(Signal::USR1);
    server.wait_lines("logs/error.log", "reopening logs", 3);
    for (_, connection) in &mut both {
        assert_eq!(text(connection, "/word"), "old");
    }
    assert_eq!(workers(&server, 2), before);
    reload(&mut server, &text_of, "newer");
    for (_, connection) in &mut both {
        assert!(wait_until(PATIENCE, || text(connection, "/word") == "newer"));
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no groups")]
fn groups_come_and_go() {
    let mut server = start(2, "1");
    let mut busy = server.connect();
    busy.send(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(busy.next_event(PATIENCE), End::Data);
    let mut seen: BTreeSet<Pid> = workers(&server, 1);
    for (groups, listen, count) in [("2", "", 2), ("1", "reuseport", 1), ("auto", "reuseport", 2)] {
        reload(&mut server, &config(2, groups, listen, ""), &format!("g{groups}{listen}"));
        let mut now = BTreeSet::new();
        let changed = wait_until(PATIENCE, || {
            now = connections(&server, count).iter().map(|(pid, _)| *pid).collect();
            now.is_disjoint(&seen)
        });
        assert!(changed, "others take their places: {}", server.described());
        seen = now;
    }
    assert_eq!(busy.response().body.len(), BIG_BYTES);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no groups")]
fn all_finish_and_end() {
    let mut server = start(2, "2");
    let mut both = connections(&server, 2);
    for (_, connection) in &mut both {
        connection.send(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(connection.next_event(PATIENCE), End::Data);
    }
    server.signal(Signal::QUIT);
    for (pid, connection) in &mut both {
        assert!(is_running(*pid), "it sends");
        assert_eq!(connection.response().body.len(), BIG_BYTES);
    }
    assert_eq!(server.wait_exit(PATIENCE).and_then(|status| status.code()), Some(0));
    assert!(both.iter().all(|(pid, _)| !is_running(*pid)));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no groups")]
fn all_write_to_new_logs() {
    let server = start(2, "2");
    let mut both = connections(&server, 2);
    std::fs::rename(server.prefix().join("logs/access.log"), server.prefix().join("logs/old.log")).unwrap();
    server.signal(Signal::USR1);
    for (number, (_, connection)) in both.iter_mut().enumerate() {
        let line = format!("/word?{number}");
        let written = wait_until(PATIENCE, || {
            text(connection, &line);
            server.read("logs/access.log").contains(&line)
        });
        assert!(written);
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no groups")]
fn another_binary_takes_over() {
    let text_of = config(2, "2", "reuseport", "").replace("daemon off;", "daemon on;");
    let mut server = setup(&text_of).daemon().start();
    let (old, before) = (server.pid(), workers(&server, 2));
    server.signal(Signal::USR2);
    let mut new = None;
    let begun = wait_until(PATIENCE, || {
        new = server.pid_file().filter(|&pid| pid != old);
        new.is_some_and(|new| server.workers_of(new).len() == 2)
    });
    assert!(begun, "{}", server.described());
    send_signal(old, Signal::QUIT);
    server.wait_gone(old);
    server.follow(new.expect("it is there"));
    let now: BTreeSet<Pid> = connections(&server, 2).iter().map(|(pid, _)| *pid).collect();
    assert!(now.is_disjoint(&before));
    assert_eq!(server.get("/word").text(), "old");
    server.signal(Signal::TERM);
    assert!(server.wait_exit(PATIENCE).is_some());
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no groups")]
fn one_that_is_told_to_end_is_replaced_alone() {
    let server = start(2, "2");
    let mut both = connections(&server, 2);
    let (gone, stays) = (both[0].0, both[1].0);
    send_signal(gone, Signal::QUIT);
    server.wait_gone(gone);
    let now = workers(&server, 2);
    assert!(now.contains(&stays) && !now.contains(&gone));
    assert_eq!(text(&mut both[1].1, "/word"), "old");
}
