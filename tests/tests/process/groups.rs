//! `worker_groups`: loops that are shared out to several worker processes. What they have in common, what a
//! crash ends, and that all of them use a configuration or none.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

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
        ngx.print(io.open('/proc/self/stat'):read('*n'), ' ', ngx.worker.id(), ' ', ngx.worker.count()) } }
    location = /numbers { content_by_lua_block { local own, count = {}, ngx.worker.count()
        for id = 0, count - 1 do own[#own + 1] = ngx.shared.d:get('number ' .. id) and id or nil end
        ngx.print(table.concat(own, ' '), ' of ', count) } }
    location = /pids { content_by_lua_block { local all, own = ngx.worker.pids(), 0
        for at, pid in ipairs(all) do own = pid == ngx.worker.pid() and at - 1 or own end
        ngx.print(own == ngx.worker.id(), ' ', table.concat(all, ' ')) } }
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
        // All name all loops alike, each its own where its number says.
        let mut named = BTreeSet::new();
        for (_, mut connection) in connections(&server, processes) {
            let mut pids = String::new();
            let are_there = wait_until(PATIENCE, || {
                pids = text(&mut connection, "/pids");
                pids.starts_with("true ") && pids.split(' ').collect::<BTreeSet<_>>().len() == 1 + 4
            });
            assert!(are_there, "{pids}");
            named.insert(pids);
        }
        assert_eq!(named.len(), 1, "{named:?}");
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

/// What all processes show together, and servers of which one is not there.
const TOGETHER: &str = "upstream broken { zone u 64k; server unix:%%PREFIX%%/nobody fail_timeout=1h;
        server 127.0.0.1:%%PORT2%%; }
    upstream narrow { zone u; server 127.0.0.1:%%PORT2%% max_conns=1; server 127.0.0.1:%%PORT2%% down; }
    upstream turns { zone u; server 127.0.0.1:%%PORT2%%; server 127.0.0.1:%%PORT%%; }
    server { listen 127.0.0.1:%%PORT%%; server_name together;
        location = /serial { return 200 $connection; }
        location = /stub { stub_status; }
        location = /status { status json; }
        location = /active { return 200 $connections_active; }
        location = /spin { content_by_lua_block {
            local began = os.clock() while os.clock() - began < 0.3 do end } }
        location /cached/ { proxy_pass http://broken; add_header X-Upstream $upstream_addr; }
        location /narrow/ { proxy_pass http://narrow/cached/; }
        location /turns/ { proxy_pass http://turns/cached/; add_header X-Turn $upstream_addr; } }";

fn start_together() -> Server {
    setup(&config(2, "2", "", TOGETHER)).start()
}

fn ask_together(connection: &mut Connection, target: &str) -> Response {
    connection.ask(&format!("GET {target} HTTP/1.1\r\nHost: together\r\n\r\n"))
}

/// `Active connections`, then accepts, handled and requests.
fn stub(connection: &mut Connection) -> [u64; 4] {
    let text = ask_together(connection, "/stub").text();
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    numbers[..4].try_into().unwrap_or_else(|_| panic!("{text}"))
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no groups")]
fn each_shows_what_all_have_counted() {
    let server = start_together();
    let mut both = connections(&server, 2);
    let [active, accepts, handled, requests] = stub(&mut both[0].1);
    let [_, _, _, more] = stub(&mut both[1].1);
    assert_eq!(more, requests + 1, "one request later");
    assert!(active >= 2 && accepts == handled, "{active} {accepts} {handled}");
    for _ in 0..5 {
        text(&mut both[1].1, "/word");
    }
    assert_eq!(stub(&mut both[0].1)[3], requests + 7);
    // Each loop stands there once, whichever process is asked.
    let shown = both.iter_mut().map(|(_, connection)| ask_together(connection, "/status").text());
    for shown in shown {
        let at = shown.find("connections_handled_total\"").expect(&shown);
        let part = &shown[at..at + shown[at..].find("]}").expect("an end")];
        assert_eq!((part.matches("\"loop\":\"0\"").count(), part.matches("\"loop\":\"1\"").count()), (1, 1));
    }
    // A variable waits for nobody: it has what was told last.
    let active = stub(&mut both[0].1)[0];
    for (_, connection) in &mut both {
        assert!(wait_until(PATIENCE, || {
            ask_together(connection, "/active").text().parse::<u64>() == Ok(active)
        }));
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no groups")]
fn what_a_process_has_counted_outlives_it() {
    let server = start_together();
    let mut both = connections(&server, 2);
    for _ in 0..50 {
        text(&mut both[0].1, "/word");
    }
    let before = stub(&mut both[1].1);
    send_signal(both[0].0, Signal::KILL);
    server.wait_gone(both[0].0);
    workers(&server, 2);
    let after = stub(&mut both[1].1);
    assert!(after[1] >= before[1] && after[3] > before[3], "{before:?} {after:?}");
    // The connection to the one that is gone counts as none.
    drop(both.remove(0));
    let few = wait_until(PATIENCE, || stub(&mut both[0].1)[0] <= before[0]);
    assert!(few, "{before:?} {:?}", stub(&mut both[0].1));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no groups")]
fn what_held_one_process_all_show() {
    let server = start_together();
    let mut both = connections(&server, 2);
    let pids = [both[0].0, both[1].0];
    for (_, connection) in &mut both {
        assert_eq!(ask_together(connection, "/spin").status, 200);
    }
    let is_known = |connection: &mut Connection| {
        let shown = ask_together(connection, "/status").text();
        let reports = shown.split("{\"number\":").skip(1);
        let of_spin: Vec<&str> = reports.filter(|report| report.contains("\"location\":\"/spin\"")).collect();
        let of = |pid: Pid| of_spin.iter().any(|report| report.contains(&format!("\"process\":{pid},")));
        let loops = ["\"loop\":0,", "\"loop\":1,"].map(|it| of_spin.iter().any(|text| text.contains(it)));
        // The sums are those of both.
        let summary = shown.split("\"summary\":").nth(1).expect(&shown);
        let rows = summary.split("{\"location\":").filter(|row| row.starts_with("\"/spin\""));
        let stalls_of = |row: &str| row.split("\"stalls\":").nth(1)?.split(',').next()?.parse::<u64>().ok();
        let stalls: u64 = rows.filter_map(stalls_of).sum();
        pids.iter().all(|&pid| of(pid)) && loops == [true; 2] && stalls >= 2
    };
    for (_, connection) in &mut both {
        assert!(
            wait_until(PATIENCE, || is_known(connection)),
            "{}",
            ask_together(connection, "/status").text()
        );
    }
    send_signal(both[0].0, Signal::KILL);
    server.wait_gone(both[0].0);
    workers(&server, 2);
    for (_, mut connection) in connections(&server, 2) {
        assert!(wait_until(PATIENCE, || is_known(&mut connection)), "reports outlive their process");
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no groups")]
fn connections_have_numbers_of_their_own() {
    let server = start_together();
    let mut seen = BTreeSet::new();
    let mut kept = Vec::new();
    for (_, mut connection) in connections(&server, 2) {
        assert!(seen.insert(ask_together(&mut connection, "/serial").text()));
        kept.push(connection);
    }
    for _ in 0..40 {
        let mut connection = server.connect();
        let serial = ask_together(&mut connection, "/serial").text();
        assert!(seen.insert(serial.clone()), "{serial} twice");
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no groups")]
fn a_server_that_one_has_found_broken_is_left_alone_by_all() {
    let server = start_together();
    let mut both = connections(&server, 2);
    let mut tried = |at: usize| {
        let response = ask_together(&mut both[at].1, "/cached/fast");
        assert_eq!(response.text(), "fast");
        response.header("X-Upstream").unwrap_or_default().matches(',').count()
    };
    assert_eq!(tried(0) + tried(0), 1, "one of two begins with the broken one");
    let further: usize = (0..8).map(|number| tried(1 - number % 2)).sum();
    assert_eq!(further, 0);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no groups")]
fn limits_and_turns_of_a_zone_are_those_of_all() {
    let server = start_together();
    let mut both = connections(&server, 2);
    let turns: Vec<String> = (0..6)
        .map(|number| {
            let response = ask_together(&mut both[number % 2].1, "/turns/fast");
            response.header("X-Turn").unwrap_or_default().to_owned()
        })
        .collect();
    assert!(turns.windows(2).all(|two| two[0] != two[1]), "{turns:?}");
    let mut beside = server.connect();
    let asked_before: u32 = text(&mut beside, "/asked").parse().expect("a number");
    both[0].1.send(b"GET /narrow/slow HTTP/1.1\r\nHost: together\r\n\r\n");
    let is_asked = |connection: &mut Connection| text(connection, "/asked") == (asked_before + 1).to_string();
    assert!(wait_until(PATIENCE, || is_asked(&mut beside)));
    assert_eq!(ask_together(&mut both[1].1, "/narrow/fast").status, 502);
    // What a process holds that is killed is free again.
    send_signal(both[0].0, Signal::KILL);
    server.wait_gone(both[0].0);
    assert!(wait_until(PATIENCE, || ask_together(&mut both[1].1, "/narrow/fast").status == 200));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no groups")]
fn one_asks_a_server_whether_it_is_well_and_all_know() {
    let more = "upstream checked { zone checked 64k; server 127.0.0.1:%%PORT3%% max_fails=0; }
        server { listen 127.0.0.1:%%PORT3%%; location / { return 200 well; }
            location = /health { content_by_lua_block { ngx.shared.d:incr('checks', 1, 0)
                if ngx.shared.d:get('sick') then ngx.exit(500) end } } }
        server { listen 127.0.0.1:%%PORT%%; server_name checked;
            location / { proxy_pass http://checked; health_check interval=100ms uri=/health; }
            location = /checks { content_by_lua_block { ngx.print(ngx.shared.d:get('checks') or 0) } }
            location = /sick { content_by_lua_block { ngx.shared.d:set('sick', true) } }
            location = /well { content_by_lua_block { ngx.shared.d:delete('sick') } } }";
    let server = setup(&config(2, "2", "", more)).start();
    let mut both = connections(&server, 2);
    let ask = |connection: &mut Connection, target: &str| {
        connection.ask(&format!("GET {target} HTTP/1.1\r\nHost: checked\r\n\r\n"))
    };
    let mut all_are = |status: u16| {
        let there = wait_until(PATIENCE, || both.iter_mut().all(|(_, it)| ask(it, "/").status == status));
        assert!(there, "{status}: {}", server.described());
    };
    all_are(200);
    let mut beside = server.connect();
    ask(&mut beside, "/sick");
    all_are(502);
    ask(&mut beside, "/well");
    all_are(200);
    // As often as one process would: the time that many take is never shorter.
    let count =
        |connection: &mut Connection| -> u32 { ask(connection, "/checks").text().parse().expect("it") };
    let (began, first) = (Instant::now(), count(&mut beside));
    assert!(wait_until(PATIENCE, || count(&mut beside) >= first + 20));
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(1800), "20 checks in {took:?}");
}
