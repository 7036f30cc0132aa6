//! Servers that are asked over TLS (`proxy_pass https://…`, `proxy_ssl_*`, and the same of `uwsgi_pass`):
//! they are rustls, a library of its own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Server, wait_until};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{HandshakeKind, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::origins::Origin;
use crate::start;

/// Certificates and keys of the TLS crate's own tests.
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/tls/tests/data");

/// Whether clients are asked for a certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clients {
    Unasked,
    Asked,
}

fn config(clients: Clients) -> Arc<ServerConfig> {
    let file = |name: &str| std::fs::read(format!("{DATA}/{name}")).expect("the file is there");
    let certificate = CertificateDer::from_pem_slice(&file("ecdsa.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(&file("ecdsa.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().expect("versions");
    let builder = match clients {
        Clients::Unasked => builder.with_no_client_auth(),
        Clients::Asked => {
            let mut roots = RootCertStore::empty();
            let root = CertificateDer::from_pem_slice(&file("ca.pem")).expect("a certificate");
            roots.add(root).expect("it can be trusted");
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.allow_unauthenticated().build().expect("a verifier"))
        }
    };
    Arc::new(builder.with_single_cert(vec![certificate], key).expect("a pair"))
}

/// Answers each request with what it knows of its session, behind so many bytes of filling.
fn secure(clients: Clients, filling_bytes: usize) -> Origin {
    let config = config(clients);
    Origin::start(move |stream| {
        let Ok(session) = ServerConnection::new(Arc::clone(&config)) else { return };
        let mut stream = StreamOwned::new(session, stream);
        let mut served = 0;
        while read_head(&mut stream) {
            served += 1;
            let session = &stream.conn;
            let is_resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
            let kind = if is_resumed { "resumed" } else { "full" };
            let name = session.server_name().unwrap_or("-");
            let shown = session.peer_certificates().map_or(0, <[_]>::len);
            let text = format!("{} {served} {kind} {name} {shown}", "x".repeat(filling_bytes));
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len());
            if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(text.as_bytes())).is_err() {
                return;
            }
        }
    })
}

/// Answers one request of the uwsgi protocol with what it knows of its session, and the parameter that it is
/// sent.
fn secure_uwsgi(clients: Clients) -> Origin {
    let config = config(clients);
    Origin::start(move |stream| {
        let Ok(session) = ServerConnection::new(Arc::clone(&config)) else { return };
        let mut stream = StreamOwned::new(session, stream);
        let mut header = [0; 4];
        if stream.read_exact(&mut header).is_err() {
            return;
        }
        let mut params = vec![0; usize::from(u16::from_le_bytes([header[1], header[2]]))];
        if stream.read_exact(&mut params).is_err() {
            return;
        }
        let params = String::from_utf8_lossy(&params).into_owned();
        let session = &stream.conn;
        let name = session.server_name().unwrap_or("-");
        let shown = session.peer_certificates().map_or(0, <[_]>::len);
        let asked = params.split("asked/").nth(1).map_or("-", |rest| &rest[..1]);
        let text = format!("Status: 200 OK\r\nX-Kind: uwsgi\r\n\r\n{asked} {name} {shown}");
        let _ = stream.write_all(text.as_bytes());
        stream.conn.send_close_notify();
        let _ = stream.flush();
    })
}

#[test]
fn uwsgi_servers_are_asked_over_tls() {
    let origin = secure_uwsgi(Clients::Asked);
    let port = origin.port;
    let param = "uwsgi_param URI asked$uri; uwsgi_ssl_session_reuse off;";
    let server = start(
        &format!("upstream www.example.com {{ server 127.0.0.1:{port}; }}"),
        &format!(
            "{param}
             location /1 {{ uwsgi_pass suwsgi://127.0.0.1:{port}; }}
             location /2 {{ uwsgi_pass SUWSGI://www.example.com; uwsgi_ssl_server_name on;
                 uwsgi_ssl_certificate {DATA}/client.pem; uwsgi_ssl_certificate_key {DATA}/client.key; }}
             location /3 {{ uwsgi_pass $arg_scheme://127.0.0.1:{port}; uwsgi_read_timeout 1s; }}
             location /4 {{ uwsgi_pass suwsgi://www.example.com; uwsgi_ssl_verify on;
                 uwsgi_ssl_trusted_certificate {DATA}/ca.pem; }}
             location /5 {{ uwsgi_pass suwsgi://127.0.0.1:{port}; uwsgi_ssl_verify on;
                 uwsgi_ssl_trusted_certificate {DATA}/ca.pem; }}"
        ),
    );
    assert_eq!(told(&server, "/1"), "1 - 0");
    assert_eq!(told(&server, "/2"), "2 www.example.com 1");
    assert_eq!(told(&server, "/3?scheme=suwsgi"), "3 - 0");
    assert_eq!(told(&server, "/4"), "4 - 0");
    // Without TLS it says what of records it understands: nothing.
    assert_ne!(server.get("/3?scheme=uwsgi").status, 200);
    assert_eq!(server.get("/3?scheme=http").status, 500);
    assert_eq!(server.get("/5").status, 502);
    for said in [
        "upstream SSL certificate does not match \"127.0.0.1\" while SSL handshaking to upstream, client",
        &format!("upstream: \"suwsgi://127.0.0.1:{port}\", host:"),
        "in upstream \"http://127.0.0.1:",
    ] {
        server.wait_log("logs/error.log", said);
    }
}

fn read_head(stream: &mut impl Read) -> bool {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => head.extend_from_slice(&byte),
            _ => return false,
        }
    }
    true
}

/// What the server says of the session on which it was asked.
fn told(server: &Server, path: &str) -> String {
    let response = server.get(path);
    assert_eq!(response.status, 200, "{path}: {}", server.error_log());
    response.text().trim_start_matches('x').trim().to_owned()
}

#[test]
fn idle_connections_and_sessions_are_used_again() {
    let origin = secure(Clients::Unasked, 0);
    let port = origin.port;
    let server = start(
        &format!("upstream kept {{ server 127.0.0.1:{port}; keepalive 4; }}"),
        &format!(
            "location /kept {{ proxy_pass https://kept; }}
             location /named {{ proxy_pass https://kept; proxy_ssl_server_name on;
                 proxy_ssl_name www.example.com:443; }}
             location /new {{ proxy_pass https://127.0.0.1:{port}; proxy_http_version 1.0; }}
             location /fresh {{ proxy_pass https://127.0.0.1:{port}; proxy_http_version 1.0;
                 proxy_ssl_session_reuse off; }}
             location /old {{ proxy_pass https://127.0.0.1:{port}; proxy_http_version 1.0;
                 proxy_ssl_protocols TLSv1.2; }}"
        ),
    );
    assert_eq!(told(&server, "/kept"), "1 full - 0");
    assert_eq!(told(&server, "/kept"), "2 full - 0");
    // A connection that was made with another name is not the same.
    assert_eq!(told(&server, "/named"), "1 full www.example.com 0");
    assert_eq!(told(&server, "/named"), "2 full www.example.com 0");
    for path in ["/new", "/old"] {
        assert_eq!(told(&server, path), "1 full - 0");
        assert_eq!(told(&server, path), "1 resumed - 0");
    }
    for _ in 0..2 {
        assert_eq!(told(&server, "/fresh"), "1 full - 0");
    }
}

#[test]
fn large_responses_and_bodies_pass() {
    const BYTES: usize = 3_000_000;
    let origin = secure(Clients::Unasked, BYTES);
    let server = start(
        "",
        &format!(
            "proxy_ssl_session_reuse off; location / {{ proxy_pass https://127.0.0.1:{0}; }}
             location /straight {{ proxy_pass https://127.0.0.1:{0}; proxy_buffering off; }}",
            origin.port
        ),
    );
    for path in ["/", "/straight"] {
        let response = server.get(path);
        assert_eq!((response.status, response.body.len()), (200, BYTES + " 1 full - 0".len()), "{path}");
        assert!(response.body[..BYTES].iter().all(|&byte| byte == b'x'));
    }
}

#[test]
fn certificates_of_servers_are_checked() {
    let origin = secure(Clients::Unasked, 0);
    let port = origin.port;
    let trusting = |file: &str, more: &str| {
        format!(
            "proxy_pass https://127.0.0.1:{port}; proxy_ssl_verify on;
             proxy_ssl_trusted_certificate {DATA}/{file}; {more}"
        )
    };
    let sound = trusting("ca.pem", "proxy_ssl_name $arg_name;");
    let foreign = trusting("other.pem", "proxy_ssl_name www.example.com;");
    let server = start("", &format!("location /sound {{ {sound} }} location /foreign {{ {foreign} }}"));
    assert_eq!(told(&server, "/sound?name=www.example.com"), "1 full - 0");
    assert_eq!(server.get("/sound?name=example.com").status, 502);
    assert_eq!(server.get("/foreign").status, 502);
    for said in [
        "upstream SSL certificate does not match \"example.com\" while SSL handshaking to upstream, client",
        "upstream SSL certificate verify error: (21:unable to verify the first certificate) while SSL",
    ] {
        server.wait_log("logs/error.log", said);
    }
}

#[test]
fn servers_that_ask_are_shown_a_certificate() {
    let origin = secure(Clients::Asked, 0);
    let pass = format!("proxy_pass https://127.0.0.1:{};", origin.port);
    let pair = |name: &str| {
        format!("proxy_ssl_certificate {DATA}/{name}.pem; proxy_ssl_certificate_key {DATA}/{name}.key;")
    };
    let (fixed, evaluated) = (pair("client"), pair("$arg_name"));
    let server = start(
        "",
        &format!(
            "location /none {{ {pass} }}
             location /fixed {{ {pass} {fixed} }}
             location /evaluated {{ {pass} {evaluated} proxy_ssl_certificate_cache max=2; }}
             location /anew {{ {pass} {evaluated} }}"
        ),
    );
    assert_eq!(told(&server, "/none"), "1 full - 0");
    assert_eq!(told(&server, "/fixed"), "1 full - 1");
    for path in ["/evaluated?name=client", "/anew?name=client"] {
        // A session that was taken up has the certificate with which it began.
        assert!((0..2).all(|_| told(&server, path).ends_with(" - 1")), "{path}");
    }
    assert_eq!(server.get("/evaluated?name=nobody").status, 500);
    let said = format!(
        "cannot load certificate \"{DATA}/nobody.pem\": BIO_new_file() failed (SSL: \
         error:80000002:system library::No such file or directory:calling fopen({DATA}/nobody.pem, r) \
         error:10000080:BIO routines::no such file), client"
    );
    server.wait_log("logs/error.log", &said);
}

#[test]
fn where_there_is_no_tls_another_server_is_asked() {
    let sound = secure(Clients::Unasked, 0);
    let faulty = [
        (
            "plain",
            Origin::start(speak_plainly),
            "SSL_do_handshake() failed (SSL: error:0A00010B:SSL routines::wrong",
        ),
        ("closes", Origin::start(close_behind_a_byte), "peer closed connection in SSL handshake"),
        ("hangs", Origin::silent(), "upstream timed out (110: Connection timed out)"),
    ];
    let mut groups = String::new();
    let mut locations = "proxy_connect_timeout 1s;".to_owned();
    for (name, origin, _) in &faulty {
        groups += &format!(
            "upstream {name} {{ server 127.0.0.1:{}; server 127.0.0.1:{}; }}\n",
            origin.port, sound.port
        );
        locations += &format!(
            "location /{name} {{ proxy_pass https://{name}; }}
             location /alone/{name} {{ proxy_pass https://127.0.0.1:{}; }}\n",
            origin.port
        );
    }
    let server = start(&groups, &locations);
    for (name, _, said) in &faulty {
        for _ in 0..2 {
            assert!(told(&server, &format!("/{name}")).ends_with(" - 0"));
        }
        let status = server.get(&format!("/alone/{name}")).status;
        assert_eq!(status, if *name == "hangs" { 504 } else { 502 }, "{name}");
        let is_said = |line: &str| {
            line.contains(said)
                && line.contains("while SSL handshaking to upstream")
                && line.contains("/alone/")
        };
        let is_logged = || server.error_log().lines().any(is_said);
        assert!(wait_until(PATIENCE, is_logged), "{name}: {}", server.error_log());
    }
}

/// Says what servers without TLS say of a hello.
fn speak_plainly(mut stream: TcpStream) {
    let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    while stream.read(&mut [0; 4096]).is_ok_and(|size| size > 0) {}
}

/// Reads something of a hello, and leaves.
fn close_behind_a_byte(mut stream: TcpStream) {
    let _ = stream.read(&mut [0; 4096]);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    while stream.read(&mut [0; 4096]).is_ok_and(|size| size > 0) {}
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no health checks")]
fn servers_are_checked_over_tls_as_requests_go() {
    let (good, plain) = (secure(Clients::Unasked, 0), Origin::named("plain"));
    let (port, plain) = (good.port, plain.port);
    let check = "health_check interval=100ms mandatory;";
    let server = start(
        &format!(
            "upstream www.example.com {{ zone a 64k; server 127.0.0.1:{port}; server 127.0.0.1:{plain}; }}
             upstream wrong.example.com {{ zone b 64k; server 127.0.0.1:{port}; }}"
        ),
        &format!(
            "proxy_connect_timeout 5s; proxy_ssl_verify on; proxy_ssl_server_name on;
             proxy_ssl_trusted_certificate {DATA}/ca.pem;
             location / {{ proxy_pass https://www.example.com; {check} }}
             location /wrong {{ proxy_pass https://wrong.example.com; {check} }}"
        ),
    );
    assert!(wait_until(PATIENCE, || server.get("/").status == 200));
    server.wait_log(
        "logs/error.log",
        &format!("peer is unhealthy, health check \"\" of peer 127.0.0.1:{plain} in upstream \"www"),
    );
    assert!(told(&server, "/").ends_with(" full www.example.com 0"), "its session is not that of a check");
    assert!((0..4).all(|_| server.get("/").status == 200));
    let said = "upstream SSL certificate does not match \"wrong.example.com\", health check \"\" of peer";
    server.wait_log("logs/error.log", said);
    assert_eq!(server.get("/wrong").status, 502);
}
