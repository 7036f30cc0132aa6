//! Locations that hold their thread do not hold the others up.

use crate::support::Site;

/// Asks for something cheap while six clients hold their threads; whether all of them did so to the end.
fn all_hold(seconds: u32) -> bool {
    let site = Site::start(
        &"server {
            listen 127.0.0.1:PORT;
            location /spin { testing_spin TIMEs; }
            location /sleep { testing_sleep TIMEs; }
            location /cheap { return 200 cheap; }
        }"
        .replace("TIME", &seconds.to_string()),
    );
    let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let mut holding: Vec<_> = ["/spin", "/sleep", "/sleep", "/sleep", "/sleep", "/sleep"]
        .into_iter()
        .map(|path| {
            let mut client = site.connect();
            client.send(&request(path));
            client
        })
        .collect();
    for _ in 0..50 {
        assert!(site.get("/cheap").ends_with("\r\n\r\ncheap"));
    }
    let all = holding.iter_mut().all(|client| client.has_nothing());
    for client in &mut holding {
        let answer = String::from_utf8(client.read_to_end()).unwrap();
        assert!(answer.ends_with("spun\n") || answer.ends_with("slept\n"), "{answer}");
    }
    all
}

/// A very slow machine needs longer for fifty requests than it may take here.
#[test]
fn cheap_requests_are_answered_while_others_hold_their_threads() {
    assert!([3, 20].into_iter().any(all_hold), "all of them hold their threads, at the same time");
}
