//! `listen … proxy_protocol`: headers of both versions, what is made of them, and broken ones.

use clearway_testkit::{Case, Exchange};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

const HTTP: &str = "
    log_format pp '$proxy_protocol_addr $proxy_protocol_port $status';
    access_log logs/access.log pp;
    map $remote_addr $port { 127.0.0.1 -; default $remote_port; }
    server { listen %%PORT%%; location / { return 204; } }
    server {
        listen 127.0.0.1:%%PORT2%% proxy_protocol;
        location / {
            return 200 '$proxy_protocol_addr|$proxy_protocol_port|$proxy_protocol_server_addr|\
                        $proxy_protocol_server_port|$remote_addr';
        }
        location /real {
            set_real_ip_from 127.0.0.1;
            real_ip_header proxy_protocol;
            add_header X-Real \"$remote_addr|$port|$realip_remote_addr\" always;
            root %%PREFIX%%;
        }
    }";

fn case() -> Case {
    Case::http(HTTP)
}

fn with(header: &[u8], request: &[u8]) -> Exchange {
    Exchange::new([header, request].concat()).to("127.0.0.1:%%PORT2%%")
}

fn v2(version_command: u8, family_transport: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("short").to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[version_command, family_transport][..], &length, content].concat()
}

const INET: [u8; 12] = [192, 0, 2, 1, 192, 0, 2, 2, 0, 123, 0x16, 0x2e];

#[test]
fn version_1() {
    case()
        .exchange(with(b"PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\r\n", GET))
        .exchange(with(b"PROXY TCP6 2001:Db8::1 2001:Db8::2 0 5678\r\n", GET))
        .exchange(with(b"PROXY TCP4 1:2:3 ab.c 1 2\r\n", GET))
        .exchange(with(b"PROXY UNKNOWN\r\n", GET))
        .exchange(with(b"PROXY UNKNOWN 1 2 3 4\r\n", GET))
        .exchange(with(b"PROXY UNKNOWNX\n\r\n", GET))
        .with_access_log()
        .run();
}

#[test]
fn version_2() {
    let inet6 = [&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..], &[0; 16], &[0, 9, 0, 8]];
    case()
        .exchange(with(&v2(0x21, 0x11, &INET), GET))
        .exchange(with(&v2(0x21, 0x11, &[&INET[..], &[1, 0, 2, b'h', b'2']].concat()), GET))
        .exchange(with(&v2(0x21, 0x21, &inet6.concat()), GET))
        .exchange(with(&v2(0x20, 0x00, b""), GET))
        .exchange(with(&v2(0x21, 0x31, &[0; 216]), GET))
        .exchange(with(&v2(0x21, 0x12, &INET), GET))
        .with_access_log()
        .run();
}

#[test]
fn more_than_one_request() {
    let two = [GET, GET].concat();
    case()
        .exchange(with(b"PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\r\n", &two).answers(2))
        .exchange(with(&v2(0x21, 0x11, &INET), &two).answers(2))
        .run();
}

#[test]
fn broken_headers_end_the_connection() {
    case()
        .exchange(with(b"", GET).answers(0))
        .exchange(with(b"PROXY TCP9 192.0.2.1 192.0.2.2 123 5678\r\n", GET).answers(0))
        .exchange(with(b"PROXY TCP4 192.0.2.1 192.0.2.2 123 56789\r\n", GET).answers(0))
        .exchange(with(b"PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\n", GET).answers(0))
        .exchange(with(b"PROXY TCP4 host 192.0.2.2 123 5678\r\n", GET).answers(0))
        .exchange(with(&v2(0x11, 0x11, &INET), GET).answers(0))
        .exchange(with(&v2(0x21, 0x11, &INET[..11]), GET).answers(0))
        .exchange(with(&v2(0x21, 0x11, &[0; 2000]), GET).answers(0))
        .exchange(with(b"PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\r\n", b"GET\r\n\r\n").until_end())
        .with_access_log()
        .run();
}

#[test]
fn the_client_of_a_request() {
    const REAL: &[u8] = b"GET /real HTTP/1.1\r\nHost: localhost\r\n\r\n";
    case()
        .exchange(with(b"PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\r\n", REAL))
        .exchange(with(b"PROXY TCP6 2001:Db8:0:0::1 ::1 1 2\r\n", REAL))
        .exchange(with(b"PROXY TCP4 1:2:3 192.0.2.2 123 5678\r\n", b"GET /real HTTP/1.0\r\n\r\n").until_end())
        .exchange(with(&v2(0x21, 0x11, &INET), REAL))
        .run();
}
