//! Headers of the PROXY protocol that come in pieces, late or broken, what the log says of them, and their
//! typed values.

use std::time::{Duration, Instant};

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{End, Server};

use crate::deployed;

const HTTP: &str = "
    client_header_timeout 1s;
    server { listen 127.0.0.1:%%PORT%% proxy_protocol; location / { return 200 $proxy_protocol_addr; } }
    server {
        listen 127.0.0.1:%%PORT2%% proxy_protocol;
        client_header_timeout 60s;
        set_real_ip_from 127.0.0.1;
        real_ip_header proxy_protocol;
        location / {
            return 200 '$proxy_protocol_tlv_alpn|$proxy_protocol_tlv_0x05|$proxy_protocol_tlv_ssl_verify|\
                        $proxy_protocol_tlv_ssl_cn|$proxy_protocol_tlv_netns|$proxy_protocol_tlv_other|';
        }
        location /missing { root %%PREFIX%%; }
    }";

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const LINE: &str = "PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\r\n";

fn start() -> Server {
    deployed("events { }", HTTP).start()
}

fn v2(tlvs: &[u8]) -> Vec<u8> {
    let content = [&[192, 0, 2, 1, 192, 0, 2, 2, 0, 123, 0x16, 0x2e], tlvs].concat();
    let length = u16::try_from(content.len()).expect("short").to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n\x21\x11", &length[..], &content].concat()
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind], &u16::try_from(value.len()).expect("short").to_be_bytes()[..], value].concat()
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx wants the header in one piece")]
fn headers_in_pieces() {
    let server = start();
    for header in [LINE.as_bytes(), &v2(&tlv(1, b"h2"))] {
        // The client of the second server, as the first one gives up after a second.
        for cut in [1, 5, 13, 17, header.len() - 1, header.len()] {
            let mut connection =
                clearway_testkit::Connection::open(&server.address_of("127.0.0.1:%%PORT2%%"))
                    .expect("it listens");
            connection.send(&header[..cut]);
            assert_eq!(connection.next_event(Duration::from_millis(20)), End::Open, "{cut}");
            connection.send(&header[cut..]);
            assert_eq!(connection.ask(GET).status, 200, "{cut}");
            assert_eq!(connection.ask(GET).status, 200, "{cut}");
        }
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx wants the header in one piece")]
fn who_sends_none_is_closed_in_time() {
    let server = start();
    for begun in ["", "PROXY TCP4 192"] {
        let began = Instant::now();
        let mut connection = server.connect();
        connection.send(begun.as_bytes());
        let (received, end) = connection.read_to_end(PATIENCE);
        assert_eq!((received.len(), end), (0, End::Closed), "{begun}");
        assert!(began.elapsed() >= Duration::from_millis(990), "{:?}", began.elapsed());
    }
    let said = "client timed out (110: Connection timed out) while reading PROXY protocol, \
                client: 127.0.0.1, server: 127.0.0.1:";
    server.wait_lines("logs/error.log", said, 2);
    // The time is for the header and the head together.
    let mut connection = server.connect();
    connection.send(LINE.as_bytes());
    assert_eq!(connection.read_to_end(PATIENCE).1, End::Closed);
    server
        .wait_log("logs/error.log", "client timed out (110: Connection timed out) while waiting for request");
}

#[test]
fn broken_headers_are_logged() {
    let server = start();
    let closed = |bytes: &[u8]| {
        let mut connection = server.connect();
        connection.send(bytes);
        assert_eq!(connection.read_to_end(PATIENCE).0, b"");
    };
    closed(GET.as_bytes());
    closed(b"PROXY TCP5 1 2 3 4\r\n");
    closed(b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\0");
    closed(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x10\0");
    for said in [
        "broken header: \"GET / HTTP/1.1\" while reading PROXY protocol, client: 127.0.0.1, server: ",
        "[error]",
        "broken header: \"PROXY TCP5 1 2 3 4\" while reading PROXY protocol",
        "unknown PROXY protocol version: 3 while reading PROXY protocol",
        "header is too large while reading PROXY protocol",
    ] {
        server.wait_log("logs/error.log", said);
    }
    let connection = server.connect();
    connection.finish_sending();
    server.wait_log("logs/error.log", "client closed connection while reading PROXY protocol");
    assert_eq!(server.access_log(), "");
}

#[test]
fn typed_values_and_the_client_in_the_log() {
    let server = start();
    let ssl = [&[1, 0, 0, 0, 7][..], &tlv(0x22, b"example.com")].concat();
    let header = v2(&[tlv(1, b"h2"), tlv(5, b"id"), tlv(0x20, &ssl)].concat());
    let mut connection =
        clearway_testkit::Connection::open(&server.address_of("127.0.0.1:%%PORT2%%")).expect("it listens");
    connection.send(&header);
    assert_eq!(connection.ask(GET).text(), "h2|id|7|example.com|||");
    let said = "unknown PROXY protocol TLV \"other\"";
    assert!(server.wait_log("logs/error.log", said).contains(", client: 192.0.2.1, server: "));
    assert_eq!(connection.ask("GET /missing HTTP/1.1\r\nHost: a\r\n\r\n").status, 404);
    server.wait_log("logs/error.log", "failed (2: No such file or directory), client: 192.0.2.1, server: ");
    server.wait_log("logs/access.log", "192.0.2.1 - - [");
}
