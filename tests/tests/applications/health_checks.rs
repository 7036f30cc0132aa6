//! Application servers and memcached that are asked whether they are well (`health_check`).

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::wait_until;

use crate::installed::Application;
use crate::start;

/// Checks pass, on several connections and on one, as long as the program is there.
fn expect_checks(family: &str, params: &str, application: Application) {
    let socket = application.socket();
    let location = |path: &str, more: &str| {
        format!(
            "location {path} {{ {params} {family}_pass programs;
                 health_check interval=100ms uri=/ping?a=b match=well {more}; }}"
        )
    };
    let server = start(&format!(
        "match well {{ status 200; body ~ ^GET.*/ping.a=b$; }}
         upstream programs {{ zone programs 64k; server unix:{}; }}
         server {{ listen 127.0.0.1:%%PORT%%; location = /status {{ status prometheus; }} {} {} }}",
        socket.display(),
        location("/", ""),
        location("/kept", "keepalive_time=1h"),
    ));
    let has_passed = || {
        let status = server.get("/status").text();
        let mut lines = status.lines().filter(|line| line.contains("health_checks_total{"));
        let passed = lines.find(|line| line.contains("outcome=\"passed\"")).unwrap_or_default();
        let count = passed.rsplit(' ').next().and_then(|count| count.parse::<u32>().ok());
        count.is_some_and(|count| count >= 6)
    };
    assert!(wait_until(PATIENCE, has_passed), "{}", server.error_log());
    assert!(!server.error_log().contains("health check"), "{}", server.error_log());
    drop(application);
    server.wait_log("logs/error.log", "peer is unhealthy, health check \"well\" of peer unix:");
}

const PARAMS: &str = "FAMILY_param PATH_INFO $uri; FAMILY_param REQUEST_METHOD $request_method;
    FAMILY_param QUERY_STRING $query_string; FAMILY_param SERVER_NAME $server_name;
    FAMILY_param SERVER_PORT $server_port; FAMILY_param SERVER_PROTOCOL $server_protocol;
    FAMILY_param REQUEST_URI $request_uri;";

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no health checks")]
#[cfg_attr(no_php_fpm, ignore = "php-fpm8.2 is not installed")]
fn php_is_checked() {
    let php = Application::php();
    let script = format!("fastcgi_param SCRIPT_FILENAME {}; fastcgi_keep_conn on;", php.script().display());
    expect_checks("fastcgi", &(PARAMS.replace("FAMILY", "fastcgi") + &script), php);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no health checks")]
#[cfg_attr(no_uwsgi, ignore = "uwsgi with its plugin for Python is not installed")]
fn python_is_checked() {
    expect_checks("uwsgi", &PARAMS.replace("FAMILY", "uwsgi"), Application::python());
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no health checks")]
#[cfg_attr(no_memcached, ignore = "memcached is not installed")]
fn memcached_is_checked() {
    let memcached = Application::memcached();
    let mut stream = UnixStream::connect(memcached.socket()).expect("it listens");
    stream.write_all(b"set /ping 0 0 13\r\nGET /ping:a=b\r\n").expect("it takes it");
    let mut said = [0; 8];
    stream.read_exact(&mut said).expect("it answers");
    assert_eq!(&said, b"STORED\r\n");
    expect_checks("memcached", "set $memcached_key $uri;", memcached);
}
