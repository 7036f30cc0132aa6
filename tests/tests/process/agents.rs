//! The privileged agent (`ngx.process`): a process with the rights of the master beside the workers, which
//! listens on nothing.

use std::collections::BTreeSet;
use std::fs;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::process::{Pid, children, is_running, title, user_and_group};
use clearway_testkit::server::{is_root, send_signal};
use clearway_testkit::{Server, wait_until};
use rustix::process::Signal;

use crate::setup;

/// The agent puts what it sees into a dictionary, and a location shows it.
const AGENT: &str = "lua_shared_dict d 1m;
    init_by_lua_block {
        local process = require 'ngx.process'
        ngx.shared.d:set('init', process.type())
        local ok, err = process.enable_privileged_agent(8)
        if not ok then ngx.log(ngx.ERR, err) end
    }
    init_worker_by_lua_block {
        local process, d = require 'ngx.process', ngx.shared.d
        if process.type() ~= 'privileged agent' then return end
        d:set('agent', io.open('/proc/self/stat'):read('*n'))
        d:set('number', tostring(ngx.worker.id()) .. ' of ' .. ngx.worker.count())
        d:set('master', process.get_master_pid())
        ngx.timer.at(0, function()
            local program = require 'ngx.pipe'.spawn { '/usr/bin/id', '-u' }
            d:set('user', program:stdout_read_line())
            local socket = ngx.socket.tcp()
            socket:connect('127.0.0.1', %%PORT%%)
            socket:send('GET /word HTTP/1.0\\r\\n\\r\\n')
            d:set('answer', socket:receive('*a'):match('[^\\n]*$'))
        end)
        ngx.timer.every(0.01, function(premature)
            if premature then d:set('premature', true) end
            if d:get('go') then d:delete('go') process.signal_graceful_exit() end
        end)
    }
    exit_worker_by_lua_block {
        local kind = require 'ngx.process'.type()
        if kind == 'privileged agent' then ngx.log(ngx.WARN, 'the agent has ended') end
    }";

const LOCATIONS: &str = "server { listen 127.0.0.1:%%PORT%%;
    location = /word { return 200 old; }
    location = /status { status json; }
    location = /type { content_by_lua_block { ngx.print(require 'ngx.process'.type()) } }
    location = /go { content_by_lua_block { ngx.shared.d:set('go', true) } }
    location = /d { content_by_lua_block { ngx.print(tostring(ngx.shared.d:get(ngx.var.arg_k))) } } }";

const LOG: &str = "logs/error.log";
const TITLE: &str = "nginx: privileged agent process";

fn main_part() -> &'static str {
    if is_root() { "user nobody nogroup;" } else { "" }
}

fn start() -> Server {
    setup(main_part(), &format!("{AGENT}\n{LOCATIONS}")).start()
}

fn reload(server: &mut Server, lua: &str, word: &str) {
    let locations = LOCATIONS.replace("200 old", &format!("200 {word}"));
    server.configure(&crate::config(main_part(), &format!("{lua}\n{locations}")));
    server.signal(Signal::HUP);
    assert!(wait_until(PATIENCE, || server.get("/word").text() == word), "{}", server.described());
}

/// The agents of a master.
fn agents(master: Pid) -> Vec<Pid> {
    children(master).into_iter().filter(|&pid| is_running(pid) && title(pid) == TITLE).collect()
}

/// The agent, once there is one that was not there before.
fn agent(server: &Server, master: Pid, before: Option<Pid>) -> Pid {
    let mut found = Vec::new();
    let is_there = wait_until(PATIENCE, || {
        found = agents(master);
        found.len() == 1 && Some(found[0]) != before
    });
    assert!(is_there, "{found:?} {}", server.described());
    found[0]
}

fn shows(server: &Server, key: &str, value: &str) {
    let mut last = String::new();
    let is_shown = wait_until(PATIENCE, || {
        last = server.get(&format!("/d?k={key}")).text();
        last == value
    });
    assert!(is_shown, "{key} is {last}, not {value}: {}", server.described());
}

/// Whether one of the descriptors of a process is a TCP socket that listens.
fn listens(pid: Pid) -> bool {
    let sockets: BTreeSet<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("it runs")
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()?.into_os_string().into_string().ok())
        .collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).expect("it runs");
    // The state is the fourth word, and the inode the tenth.
    let words = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.filter(|words| words[3] == "0A").any(|words| sockets.contains(&format!("socket:[{}]", words[9])))
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no agent")]
fn it_has_the_rights_of_the_master_and_listens_on_nothing() {
    let server = start();
    let agent = agent(&server, server.pid(), None);
    shows(&server, "agent", &agent.to_string());
    shows(&server, "init", "master");
    shows(&server, "number", "nil of 1");
    shows(&server, "master", &server.pid().to_string());
    shows(&server, "answer", "old");
    assert_eq!(server.get("/type").text(), "worker");
    assert!(listens(server.worker()) && !listens(agent));
    let user = user_and_group(server.pid());
    assert_eq!(user_and_group(agent), user);
    shows(&server, "user", &user.expect("it runs").0.to_string());
    assert!(!is_root() || user_and_group(server.worker()) != user, "a worker has another one");
    server.wait_log(LOG, &format!("start privileged agent process {agent}"));
    // It is one of the processes that are counted together: its loop stands behind those of the worker.
    let shown = server.get("/status").text();
    assert!(shown.contains("\"loop\":\"0\"") && shown.contains("\"loop\":\"1\""), "{shown}");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no agent")]
fn each_configuration_has_its_own() {
    let mut server = start();
    let first = agent(&server, server.pid(), None);
    let worker = server.worker();
    shows(&server, "agent", &first.to_string());
    reload(&mut server, AGENT, "new");
    let second = agent(&server, server.pid(), Some(first));
    shows(&server, "agent", &second.to_string());
    shows(&server, "premature", "true");
    server.wait_log(LOG, "the agent has ended");
    // A configuration that is refused leaves everything as it is.
    let wrong = AGENT.replace("enable_privileged_agent(8)", "nonsense()");
    server.configure(&crate::config(main_part(), &format!("{wrong}\n{LOCATIONS}")));
    server.signal(Signal::HUP);
    server.wait_log(LOG, "attempt to call field 'nonsense'");
    server.signal(Signal::USR1);
    server.wait_lines(LOG, "reopening logs", 3);
    assert_eq!(agents(server.pid()), [second]);
    // The agent writes to the log that the master has opened anew, as workers do.
    fs::rename(server.prefix().join(LOG), server.prefix().join("logs/old.log")).expect("it is there");
    server.signal(Signal::USR1);
    assert!(wait_until(PATIENCE, || server.prefix().join(LOG).exists()));
    reload(&mut server, "lua_shared_dict d 1m;", "none");
    assert!(wait_until(PATIENCE, || agents(server.pid()).is_empty()), "{}", server.described());
    server.wait_log(LOG, "the agent has ended");
    assert_eq!(server.worker(), worker, "the worker goes on");
    reload(&mut server, AGENT, "again");
    agent(&server, server.pid(), None);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no agent")]
fn it_comes_back_and_disturbs_nobody() {
    let server = start();
    let first = agent(&server, server.pid(), None);
    let worker = server.worker();
    let mut connection = server.connect();
    let mut word = || connection.ask("GET /word HTTP/1.1\r\nHost: a\r\n\r\n").text();
    assert_eq!(word(), "old");
    send_signal(first, Signal::KILL);
    server.wait_log(LOG, &format!("privileged agent process {first} exited on signal 9"));
    let second = agent(&server, server.pid(), Some(first));
    assert_eq!(word(), "old");
    shows(&server, "agent", &second.to_string());
    // It is told to end by its own code.
    assert_eq!(server.get("/go").status, 200);
    let third = agent(&server, server.pid(), Some(second));
    server.wait_log(LOG, &format!("privileged agent process {second} exited with code 0"));
    assert_eq!((&*word(), server.worker()), ("old", worker));
    // A worker that ends takes it with it no more than the other way round.
    send_signal(worker, Signal::KILL);
    server.wait_gone(worker);
    assert!(wait_until(PATIENCE, || server.workers().len() == 1));
    assert_eq!(agents(server.pid()), [third]);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no agent")]
fn it_ends_with_the_server() {
    // One whose code does not end is not waited for.
    let endless =
        AGENT.replace("if premature then", "while premature do ngx.sleep(0.01) end if premature then");
    for (lua, signal) in [(AGENT, Signal::QUIT), (&*endless, Signal::QUIT), (AGENT, Signal::TERM)] {
        let mut server = setup(main_part(), &format!("{lua}\n{LOCATIONS}")).start();
        let agent = agent(&server, server.pid(), None);
        shows(&server, "agent", &agent.to_string());
        server.signal(signal);
        assert_eq!(server.wait_exit(PATIENCE).and_then(|status| status.code()), Some(0));
        assert!(!is_running(agent));
        server.wait_log(LOG, "the agent has ended");
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no agent")]
fn it_has_the_connections_that_are_said() {
    let enable = |argument: &str| {
        let code =
            AGENT.replace("enable_privileged_agent(8)", &format!("enable_privileged_agent({argument})"));
        setup(main_part(), &format!("{code}\n{LOCATIONS}")).start()
    };
    for argument in ["-1", "'10'"] {
        let server = enable(argument);
        server.wait_log(LOG, "bad 'connections' argument: number expected and greater than 0");
        assert_eq!((server.get("/word").status, agents(server.pid())), (200, Vec::new()));
    }
    let server = enable("0");
    let none = "0 worker_connection is not enough, privileged agent process cannot be spawned";
    server.wait_log(LOG, none);
    assert_eq!((server.get("/word").status, agents(server.pid())), (200, Vec::new()));
    let code = AGENT.replace(
        "local program",
        "local open = {}
         for number = 1, 8 do
             open[number] = ngx.socket.tcp()
             d:set('connected_' .. number, (open[number]:connect('127.0.0.1', %%PORT%%)))
         end
         d:set('has_connected', true)
         local program",
    );
    let server = setup(main_part(), &format!("{code}\n{LOCATIONS}")).start();
    shows(&server, "has_connected", "true");
    server.wait_log(LOG, "worker_connections are not enough");
    let shown = |number: u32| server.get(&format!("/d?k=connected_{number}")).text();
    assert_eq!((&*shown(7), &*shown(8)), ("1", "nil"));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no agent")]
fn one_process_alone_has_none() {
    let server = setup("master_process off;", &format!("{AGENT}\n{LOCATIONS}")).start();
    assert_eq!(server.get("/type").text(), "single");
    shows(&server, "init", "single");
    assert_eq!((server.get("/d?k=agent").text(), agents(server.pid())), ("nil".to_owned(), Vec::new()));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no agent")]
fn another_binary_has_its_own() {
    let config = crate::config(main_part(), &format!("{AGENT}\n{LOCATIONS}"));
    let config = config.replace("daemon off;", "daemon on;");
    let binary = clearway_testkit::Binary::under_test();
    let mut server = clearway_testkit::Setup::new(binary, &config).daemon().start();
    let (old, first) = (server.pid(), agent(&server, server.pid(), None));
    server.signal(Signal::USR2);
    let mut new = None;
    let is_there = wait_until(PATIENCE, || {
        new = server.pid_file().filter(|&pid| pid != old);
        new.is_some()
    });
    assert!(is_there, "{}", server.described());
    let new = new.expect("it was waited for");
    let second = agent(&server, new, None);
    assert_eq!(agents(old), [first]);
    // The old master has workers no more, and has them again.
    send_signal(old, Signal::WINCH);
    assert!(wait_until(PATIENCE, || agents(old).is_empty() && server.workers_of(old).is_empty()));
    send_signal(old, Signal::HUP);
    agent(&server, old, None);
    send_signal(old, Signal::QUIT);
    server.wait_gone(old);
    server.follow(new);
    assert_eq!(agents(new), [second]);
    server.signal(Signal::TERM);
    assert!(server.wait_exit(PATIENCE).is_some());
    assert!(!is_running(second));
}
