//! Without hand-over a loop can be held for long: connections that it keeps waiting move to another one.

use std::collections::HashSet;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Binary, Connection, Setup, wait_until};

use super::{alone, ask, while_held};

const CONFIG: &str = "daemon off;\nmaster_process off;\nworker_processes 2;\npid nginx.pid;\n\
    error_log logs/error.log;\nhandover_after off;\nevents { worker_connections 512; }\n\
    http { access_log off; server { listen 127.0.0.1:%%PORT%%;\n\
    location /who { return 200 $pid; }\n\
    location /sleep { testing_sleep 100ms; } } }\n";

#[test]
#[cfg_attr(any(nginx_under_test, chaos_lend), ignore = "no loop lags where polls are lent")]
fn connections_leave_a_loop_that_lags() {
    let _alone = alone();
    let server = Setup::new(Binary::under_test(), CONFIG).start();
    let homes = |connections: &mut [Connection]| -> HashSet<String> {
        connections.iter_mut().map(|connection| connection.ask(&ask("/who")).text()).collect()
    };
    let mut connections = Vec::new();
    // On a busy machine one of the loops may seem to lag at first.
    let spread = wait_until(PATIENCE, || {
        connections.extend((0..8).map(|_| server.connect()));
        homes(&mut connections).len() == 2
    });
    assert!(spread, "each loop has some: {}", server.described());
    while_held(&server.address(), "/sleep", 1, || {
        assert!(
            wait_until(PATIENCE, || homes(&mut connections).len() == 1),
            "they move: {}",
            server.described()
        );
    });
}
