//! Work that takes long, or never ends, does not keep other work waiting: passwords, file systems that do
//! not answer, clients that have left. Needs a build with the `testing` feature; tests of `hung_mount` need
//! to be root.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Address, Binary, Connection, End, Server, Setup, expect_soon, wait_until};

/// Of `right`, by bcrypt with 2^11 rounds: a tenth of a second or more.
const DEAR: &str = "ann:$2b$11$abcdefghijklmnopqrstuuD06ya1Nw2W31Tn1jG5w4.7wnwI3cNXm\n";
/// Waits as long as this are not what the server promises, on whatever machine.
const LONG: Duration = Duration::from_secs(2);

fn server(main: &str, locations: &str) -> Server {
    let config = format!(
        "daemon off;\nworker_processes 1;\npid nginx.pid;\nerror_log logs/error.log info;\n{main}\n\
         events {{ worker_connections 4096; }}\n\
         http {{ %%TEMP%%\naccess_log logs/access.log;\n\
         server {{ listen 127.0.0.1:%%PORT%%; root %%PREFIX%%/site;\n\
         location = /metrics {{ status prometheus; }}\n\
         location /secret {{ auth_basic x; auth_basic_user_file %%PREFIX%%/users; }}\n\
         {locations}\n}} }}\n"
    );
    let setup = Setup::new(Binary::under_test(), &config).file("site/hot", "hot\n").file("users", DEAR);
    let server = setup.file("site/secret", "secret\n").ready_at("127.0.0.1:%%PORT%%").start();
    assert_eq!(server.get("/hot").text(), "hot\n");
    server
}

fn address(server: &Server) -> SocketAddr {
    match server.address() {
        Address::Tcp(address) => address,
        Address::Unix(path) => panic!("{} is no address of a client", path.display()),
    }
}

/// Asks from 127.0.0.`client`, and does not wait.
fn ask_from(server: &Server, client: u8, head: &str) -> Connection {
    let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, client));
    let mut connection = Connection::open_from(from, address(server)).expect("it listens");
    connection.send(format!("GET {head}\r\nHost: a\r\n\r\n").as_bytes());
    connection
}

/// `ann:wrong`.
const WRONG: &str = "/secret HTTP/1.1\r\nAuthorization: Basic YW5uOndyb25n";

/// Names that no kernel has in its cache, so that they are for a pool: each is answered at once.
fn expect_names_answered(server: &Server) {
    for number in 0..10 {
        let begin = Instant::now();
        let unique = begin.elapsed().as_nanos();
        assert_eq!(server.get(&format!("/none-{number}-{unique}-{}", std::process::id())).status, 404);
        assert!(begin.elapsed() < LONG, "{:?} for a name that is not there", begin.elapsed());
    }
}

/// The value of a metric, of the pool with this name.
fn metric(server: &Server, name: &str, pool: &str) -> f64 {
    let page = server.get("/metrics").text();
    let line = format!("clearway_{name}{{pool=\"{pool}\"}} ");
    let value = page.lines().find_map(|at| at.strip_prefix(line.as_str()));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {line} in {page}"))
}

/// What clients are told, and what is counted.
#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn passwords_keep_nothing_else_waiting() {
    let server = server("", "");
    // More than a pool for files has threads, each a tenth of a second: seconds in all.
    let mut trying: Vec<Connection> = (0..60).map(|_| ask_from(&server, 2, WRONG)).collect();
    expect_soon("passwords wait", || metric(&server, "pool_pending_jobs", "passwords") > 20.0);
    expect_names_answered(&server);
    // Another client has its turn before those that have come before it.
    let before = metric(&server, "pool_pending_jobs", "passwords");
    assert_eq!(ask_from(&server, 3, WRONG).response().status, 401);
    let after = metric(&server, "pool_pending_jobs", "passwords");
    assert!(before - after < 16.0, "{before} were waiting, and {after} still are");
    // Clients that leave take their passwords along.
    let last = trying.pop().expect("sixty");
    drop(trying);
    let tried = || metric(&server, "pool_service_seconds_count", "passwords");
    let (waiting, before) = (metric(&server, "pool_pending_jobs", "passwords"), tried());
    assert!(
        wait_until(PATIENCE, || metric(&server, "pool_pending_jobs", "passwords") == 0.0),
        "none is left"
    );
    assert!(tried() - before < waiting / 2.0, "{waiting} were waiting, and {before} tried; then {}", tried());
    let mut last = last;
    assert_eq!(last.response().status, 401, "who stays is answered");
    assert!(server.wait_log("logs/access.log", "\" 499 ").contains("GET /secret"));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn a_client_that_tries_too_many_passwords_is_refused() {
    let server = server("thread_pool passwords threads=1 max_queue=128;", "");
    let mut trying: Vec<Connection> = (0..20).map(|_| ask_from(&server, 2, WRONG)).collect();
    let statuses: Vec<u16> = trying.iter_mut().map(|client| client.response().status).collect();
    let refused = statuses.iter().filter(|status| **status == 503).count();
    assert!((12..20).contains(&refused), "{statuses:?}");
    assert_eq!(metric(&server, "pool_overflows_total", "passwords"), refused as f64);
    assert_eq!(statuses.len() - refused, statuses.iter().filter(|status| **status == 401).count());
    server.wait_log("logs/error.log", "thread pool \"passwords\" queue overflow: 128 tasks waiting");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
fn a_job_that_nobody_waits_for_is_not_run() {
    let server = server(
        "thread_pool narrow threads=1 max_queue=8;",
        "location = /hold { aio threads=narrow; testing_pool %%PREFIX%%/held; }\n\
         location = /next { aio threads=narrow; testing_pool %%PREFIX%%/next; }\n\
         location = /last { aio threads=narrow; testing_pool %%PREFIX%%/nowhere/x; }",
    );
    let ask = |path: &str| ask_from(&server, 1, &format!("{path} HTTP/1.1"));
    let mut held = ask("/hold");
    expect_soon("the thread is held", || server.prefix().join("held").exists());
    let mut next = ask("/next");
    assert_eq!(next.next_event(Duration::from_millis(100)), End::Open);
    drop(next);
    let log = server.wait_log("logs/access.log", "GET /next");
    assert!(log.contains("\"GET /next HTTP/1.1\" 499 0 "), "{log}");
    std::fs::remove_file(server.prefix().join("held")).expect("it is there");
    assert_eq!(held.response().text(), "held a pool\n");
    assert_eq!(ask("/last").response().status, 200);
    assert!(!server.prefix().join("next").exists(), "the thread has not begun it");
}

mod hung_mount {
    use clearway_testkit::hung::HungMount;

    use super::*;

    /// Threads of a server that wait for the file system.
    fn waiting_threads(server: &Server) -> usize {
        let tasks = format!("/proc/{}/task", server.worker());
        let threads = std::fs::read_dir(tasks).expect("it runs").flatten();
        let waits_for = |thread: &std::fs::DirEntry| std::fs::read_to_string(thread.path().join("wchan"));
        threads.filter(|thread| waits_for(thread).is_ok_and(|at| at.contains("request_wait_answer"))).count()
    }

    fn hung_server(main: &str, mount: &HungMount) -> Server {
        let hung = format!(
            "location /hung/ {{ alias {}/; }}\nlocation /impatient/ {{ alias {}/; send_timeout 1s; }}",
            mount.dir().display(),
            mount.dir().display(),
        );
        server(&format!("user root;\n{main}"), &hung)
    }

    fn ask(server: &Server, directory: &str, number: usize) -> Connection {
        ask_from(server, 1, &format!("/{directory}/{number} HTTP/1.1"))
    }

    #[test]
    #[cfg_attr(not_root, ignore = "mounts a file system")]
    #[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
    fn holds_a_quarter_of_the_threads() {
        let mut mount = HungMount::new();
        let server = hung_server("", &mount);
        let mut hung: Vec<Connection> = (0..100).map(|number| ask(&server, "hung", number)).collect();
        expect_soon("the rest is held back", || metric(&server, "pool_held_total", "default") >= 92.0);
        expect_soon("a quarter of 32 waits", || waiting_threads(&server) == 8);
        expect_names_answered(&server);
        assert_eq!(metric(&server, "pool_pending_jobs", "default"), 100.0);
        // Clients that leave are not waited for.
        let last = hung.split_off(90);
        drop(hung);
        let log = server.wait_lines("logs/access.log", "\" 499 0 ", 90);
        assert!(log.contains("GET /hung/0 "), "{log}");
        // The others learn in the end that there is no answer.
        mount.give_up();
        for mut client in last {
            assert_eq!(client.response().status, 500);
        }
        expect_soon("nothing is left", || metric(&server, "pool_pending_jobs", "default") == 0.0);
        assert_eq!(server.get("/hot").text(), "hot\n");
    }

    #[test]
    #[cfg_attr(not_root, ignore = "mounts a file system")]
    #[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
    fn is_answered_for_after_send_timeout() {
        let mount = HungMount::new();
        let server = hung_server("", &mount);
        let begin = Instant::now();
        let hung: Vec<Connection> = (0..20).map(|number| ask(&server, "impatient", number)).collect();
        for mut client in hung {
            assert_eq!(client.response().status, 503);
        }
        let took = begin.elapsed();
        assert!(took >= Duration::from_millis(990) && took < PATIENCE, "{took:?}");
        server.wait_lines("logs/error.log", "timed out (110: Connection timed out)", 20);
        drop(mount);
    }

    /// A quarter of one thread is none: the pool gets another one as long as that one waits.
    #[test]
    #[cfg_attr(not_root, ignore = "mounts a file system")]
    #[cfg_attr(nginx_under_test, ignore = "its directives are Clearway's")]
    fn leaves_a_thread_even_to_a_pool_of_one() {
        let mut mount = HungMount::new();
        let server = hung_server("thread_pool default threads=1;", &mount);
        let mut hung: Vec<Connection> = (0..10).map(|number| ask(&server, "hung", number)).collect();
        expect_soon("the rest is held back", || metric(&server, "pool_held_total", "default") >= 9.0);
        assert_eq!(waiting_threads(&server), 1);
        expect_names_answered(&server);
        mount.give_up();
        hung.iter_mut().for_each(|client| assert_eq!(client.response().status, 500));
        expect_soon("the other thread ends", || {
            expect_names_answered(&server);
            metric(&server, "pool_threads", "default") == 1.0
        });
    }
}
