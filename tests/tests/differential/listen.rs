//! `listen` in all its forms, and which server answers at which address.

use clearway_testkit::{Case, Exchange};

const HELLO: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn at(listen: &str) -> Exchange {
    Exchange::new(HELLO).to(listen)
}

#[test]
fn address_forms() {
    Case::http(
        "server { listen 127.0.0.1:%%PORT%%; location / { return 200 one; } }
         server { listen localhost:%%PORT2%%; location / { return 200 two; } }
         server { listen *:%%PORT3%%; location / { return 200 three; } }
         server { listen %%PORT4%%; location / { return 200 four; } }",
    )
    .exchange(at("127.0.0.1:%%PORT%%"))
    .exchange(at("127.0.0.1:%%PORT2%%"))
    .exchange(at("127.0.0.1:%%PORT3%%"))
    .exchange(at("127.0.0.2:%%PORT3%%"))
    .exchange(at("127.0.0.3:%%PORT4%%"))
    .exchange(at("127.0.0.2:%%PORT%%").answers(0))
    .run();
}

#[test]
fn ipv6() {
    Case::http(
        "server { listen [::1]:%%PORT%%; location / { return 200 six; } }
         server { listen [::]:%%PORT2%%; location / { return 200 only; } }
         server { listen [::]:%%PORT3%%; listen %%PORT3%%; location / { return 200 both; } }",
    )
    .ready_at("[::1]:%%PORT%%")
    .exchange(at("[::1]:%%PORT%%"))
    .exchange(at("127.0.0.1:%%PORT%%").answers(0))
    .exchange(at("[::1]:%%PORT2%%"))
    .exchange(at("127.0.0.1:%%PORT2%%").answers(0))
    .exchange(at("[::1]:%%PORT3%%"))
    .exchange(at("127.0.0.1:%%PORT3%%").answers(0))
    .run();
}

#[test]
fn unix_sockets() {
    Case::http(
        "server { listen unix:%%PREFIX%%/a.sock; location / { return 200 \"$remote_addr $server_addr\"; } }
         server { listen unix:%%PREFIX%%/b.sock; listen %%PORT%%; location / { return 200 both; } }",
    )
    .ready_at("unix:%%PREFIX%%/b.sock")
    .exchange(at("unix:%%PREFIX%%/a.sock"))
    .exchange(at("unix:%%PREFIX%%/b.sock"))
    .exchange(at("127.0.0.1:%%PORT%%"))
    .with_access_log()
    .run();
}

#[test]
fn wildcard_and_specific_address_on_one_port() {
    Case::http(
        "server { listen %%PORT%%; location / { return 200 any; } }
         server { listen 127.0.0.2:%%PORT%%; location / { return 200 specific; } }",
    )
    .exchange(at("127.0.0.1:%%PORT%%"))
    .exchange(at("127.0.0.2:%%PORT%%"))
    .exchange(at("127.0.0.3:%%PORT%%"))
    .run();
}

#[test]
fn default_server() {
    Case::http(
        "server { listen %%PORT%%; server_name a.test; location / { return 200 a; } }
         server { listen %%PORT%% default_server; server_name b.test; location / { return 200 b; } }
         server { listen %%PORT2%%; server_name c.test; location / { return 200 c; } }
         server { listen %%PORT2%%; server_name d.test; location / { return 200 d; } }
         server { listen 127.0.0.2:%%PORT%% default; server_name e.test; location / { return 200 e; } }",
    )
    .get_host("/", "a.test")
    .get_host("/", "b.test")
    .get_host("/", "other.test")
    .ask("GET / HTTP/1.0\r\n\r\n")
    .exchange(at("127.0.0.1:%%PORT2%%"))
    .exchange(at("127.0.0.2:%%PORT%%"))
    .run();
}

#[test]
fn options_that_only_tune_the_socket() {
    Case::http(
        "server {
            listen 127.0.0.1:%%PORT%% backlog=64 reuseport;
            listen 127.0.0.1:%%PORT2%% backlog=1024 default_server;
            location / { return 200 $server_port; }
         }",
    )
    .exchange(at("127.0.0.1:%%PORT2%%"))
    .get("/")
    .run();
}

#[test]
fn ranges_of_ports() {
    // The two ports need not be neighbours: which of them is the lower one decides what a range is.
    Case::http(
        "server { listen 127.0.0.1:%%PORT%%-%%PORT%%; location / { return 200 $server_port; } }
         server { listen localhost:%%PORT2%%-%%PORT2%%; location / { return 200 $server_port; } }",
    )
    .get("/")
    .exchange(at("127.0.0.1:%%PORT2%%"))
    .run();
}

#[test]
fn options_of_sockets_are_of_no_concern_to_requests() {
    Case::http(
        "server {
            listen 127.0.0.1:%%PORT%% deferred so_keepalive=30m::10 rcvbuf=64k sndbuf=64k fastopen=5;
            listen 127.0.0.1:%%PORT2%% bind so_keepalive=off;
            listen unix:%%PREFIX%%/a.sock so_keepalive=on backlog=7;
            location / { return 200 \"$server_port $is_args\"; }
         }
         server { listen 127.0.0.1:%%PORT%%; server_name other; location / { return 200 other; } }",
    )
    .get("/")
    .get_host("/", "other")
    .exchange(at("127.0.0.1:%%PORT2%%"))
    .exchange(at("unix:%%PREFIX%%/a.sock"))
    .run();
}
