//! Locations that hold their thread do not hold the others up.

use std::time::{Duration, Instant};

use crate::support::Site;

#[test]
fn cheap_requests_are_answered_while_others_hold_their_threads() {
    let site = Site::start(
        "server {
            listen 127.0.0.1:PORT;
            location /spin { testing_spin 400ms; }
            location /sleep { testing_sleep 400ms; }
            location /cheap { return 200 cheap; }
        }",
    );
    let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let start = Instant::now();
    let mut holding: Vec<_> = ["/spin", "/sleep", "/sleep", "/sleep", "/sleep", "/sleep"]
        .into_iter()
        .map(|path| {
            let mut client = site.connect();
            client.send(&request(path));
            client
        })
        .collect();
    let mut served = 0;
    while start.elapsed() < Duration::from_millis(300) {
        assert!(site.get("/cheap").ends_with("\r\n\r\ncheap"));
        served += 1;
    }
    assert!(served >= 20, "{served} cheap requests in 300 ms");
    for client in &mut holding {
        let answer = String::from_utf8(client.read_to_end()).unwrap();
        assert!(answer.ends_with("spun\n") || answer.ends_with("slept\n"), "{answer}");
    }
    assert!(start.elapsed() < Duration::from_millis(1500), "they held their threads at the same time");
}
