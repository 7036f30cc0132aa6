//! Sockets with TLS, those of clients, and memcached.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use clearway_testkit::Server;

use super::{ask, check, server};

/// Certificates and keys of the TLS crate's own tests.
pub(super) const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/tls/tests/data");

/// A server with TLS beside the locations, which says what it knows of a connection.
fn with_tls(more: &str, locations: &str) -> Server {
    let http = format!(
        "lua_ssl_trusted_certificate {DATA}/ca.pem; {more}
         server {{
             listen 127.0.0.1:%%PORT2%% ssl;
             ssl_certificate {DATA}/ecdsa.pem; ssl_certificate_key {DATA}/ecdsa.key;
             ssl_client_certificate {DATA}/ca.pem; ssl_verify_client optional_no_ca;
             ssl_session_cache shared:s:1m;
             location / {{
                 return 200 \"$ssl_protocol $ssl_session_reused $ssl_server_name $ssl_client_serial\";
             }}
         }}"
    );
    let functions = "init_by_lua_block {
        function connect()
            local s = ngx.socket.tcp()
            s:settimeout(20000)
            assert(s:connect('127.0.0.1', %%PORT2%%))
            return s
        end
        function get(s, more)
            assert(s:send('GET / HTTP/1.1\\r\\nHost: a\\r\\n' .. (more or '') .. '\\r\\n'))
            local head = assert(s:receiveuntil('\\r\\n\\r\\n')())
            return (assert(s:receive(tonumber(head:match('Content%-Length: (%d+)')))))
        end
    }";
    server(&format!("{functions} {http}"), locations)
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn sockets_have_tls() {
    let server = with_tls(
        "lua_ssl_protocols TLSv1.2;",
        "location = /session {
             content_by_lua_block {
                 local s = connect()
                 local session = assert(s:sslhandshake(nil, 'example.com'))
                 ngx.print(type(session), ' ', get(s), '; ')
                 s:close()
                 s = connect()
                 session = assert(s:sslhandshake(session, 'example.com'))
                 ngx.print(get(s), '; ', s:sslhandshake(false), ' ', s:sslhandshake(session) == session)
             }
         }
         location = /kept {
             content_by_lua_block {
                 local s = connect()
                 assert(s:sslhandshake(false))
                 get(s)
                 assert(s:setkeepalive(60000))
                 s = connect()
                 ngx.print(s:getreusedtimes(), ' ', s:sslhandshake(false), ' ', get(s))
             }
         }
         location = /verified {
             content_by_lua_block {
                 ngx.print(connect():sslhandshake(false, 'www.example.com', true), ' ',
                     select(2, connect():sslhandshake(false, 'other.org', true)))
             }
         }
         location = /untrusted {
             lua_ssl_trusted_certificate ''; lua_socket_log_errors off;
             content_by_lua_block { ngx.print(select(2, connect():sslhandshake(nil, 'example.com', true))) }
         }
         location = /versions {
             lua_ssl_protocols TLSv1.3; lua_ssl_conf_command Ciphersuites TLS_AES_256_GCM_SHA384;
             content_by_lua_block {
                 local s = connect()
                 assert(s:sslhandshake(false))
                 ngx.print(get(s))
             }
         }
         location = /plain {
             content_by_lua_block {
                 local s = ngx.socket.tcp()
                 assert(s:connect('127.0.0.1', %%PORT%%))
                 ngx.print(select(2, s:sslhandshake()), ' ', select(2, s:send('x')))
             }
         }",
    );
    check(
        &server,
        &[
            ("/session", 200, "cdata TLSv1.2 . example.com ; TLSv1.2 r example.com ; true true"),
            ("/kept", 200, "1 true TLSv1.2 .  "),
            ("/verified", 200, "true certificate host mismatch"),
            ("/untrusted", 200, "20: unable to get local issuer certificate"),
            ("/versions", 200, "TLSv1.3 .  "),
            ("/plain", 200, "handshake failed closed"),
        ],
    );
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn sockets_show_certificates() {
    let read = format!(
        "local function file(name) local f = assert(io.open('{DATA}/' .. name)) return f:read('*a') end
         local ssl = require 'ngx.ssl'"
    );
    let server = with_tls(
        "",
        &format!(
            "location = /configured {{
                 lua_ssl_certificate {DATA}/client.pem; lua_ssl_certificate_key {DATA}/client.key;
                 content_by_lua_block {{
                     local s = connect()
                     assert(s:sslhandshake(false))
                     ngx.print(#get(s) > 15)
                 }}
             }}
             location = /set {{
                 content_by_lua_block {{
                     {read}
                     local s = connect()
                     assert(s:setclientcert(ssl.parse_pem_cert(file 'client.pem'),
                         ssl.parse_pem_priv_key(file 'client.key')))
                     assert(s:sslhandshake(false))
                     ngx.print(#get(s) > 15, ' ', select(2, s:setclientcert(1)), ' ',
                         ssl.parse_pem_cert('x') == nil)
                 }}
             }}"
        ),
    );
    let missing = "client certificate must be supplied with corresponding private key";
    check(&server, &[("/configured", 200, "true"), ("/set", 200, &format!("true {missing} true"))]);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn code_takes_the_connection_of_its_client() {
    let server = server(
        "",
        "location = /raw {
             content_by_lua_block {
                 local s = assert(ngx.req.socket(true))
                 local line = s:receive()
                 local four = s:receive(4)
                 local n = s:send('HTTP/1.1 200 OK\\r\\n\\r\\n' .. line .. '+' .. four .. '\\n')
                 local said, again = select(2, ngx.say('x')), select(2, ngx.req.socket(true))
                 s:send(n .. ' ' .. said .. ' ' .. again .. '\\n')
                 s:send((s:receiveuntil('--')()))
             }
         }
         location = /upgrade {
             content_by_lua_block {
                 ngx.status = 101
                 ngx.send_headers()
                 ngx.flush(true)
                 local s = assert(ngx.req.socket(true))
                 while true do
                     local line = s:receive()
                     if not line then break end
                     s:send(line:upper() .. '\\n')
                 end
             }
         }",
    );
    let mut client = TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
    client.write_all(b"POST /raw HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\none\n").expect("it reads");
    client.write_all(b"four and--more").expect("it reads");
    let mut all = String::new();
    client.read_to_string(&mut all).expect("it ends");
    assert_eq!(all, "HTTP/1.1 200 OK\r\n\r\none+four\n28 raw request socket acquired duplicate call\n and");

    let client = TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
    let mut reader = BufReader::new(client.try_clone().expect("a descriptor"));
    let say = |text: &str| (&client).write_all(text.as_bytes()).expect("it reads");
    say("GET /upgrade HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nearly\n");
    let mut lines = std::iter::from_fn(|| {
        let mut line = String::new();
        (reader.read_line(&mut line).expect("it is there") > 0).then(|| line.trim_end().to_owned())
    });
    assert_eq!(lines.next().as_deref(), Some("HTTP/1.1 101 Switching Protocols"));
    assert_eq!(
        lines.find(|line| line.chars().all(char::is_uppercase) && !line.is_empty()).as_deref(),
        Some("EARLY")
    );
    say("late\n");
    assert_eq!(lines.next().as_deref(), Some("LATE"));
    client.shutdown(std::net::Shutdown::Write).expect("it is open");
    assert_eq!(lines.next(), None);
}

/// Answers commands as memcached does, with what it was sent.
fn memcached() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|count| count > 0) {
                    let words: Vec<&str> = line.split_whitespace().collect();
                    let answer = match words[..] {
                        ["set", key, "0", expires, length] => {
                            let mut value = vec![0; length.parse::<usize>().expect("a length") + 2];
                            reader.read_exact(&mut value).expect("a value");
                            assert_eq!((key, expires, &value[..]), ("k%20y", "60", &b"value\r\n"[..]));
                            "STORED\r\n".to_owned()
                        }
                        ["get", "k%20y"] => "VALUE k%20y 0 5\r\nvalue\r\nEND\r\n".to_owned(),
                        ["get", _] => "END\r\n".to_owned(),
                        ["incr", _, by] => format!("{by}\r\n"),
                        ["delete", _] => "NOT_FOUND\r\n".to_owned(),
                        ["flush_all"] => "OK\r\n".to_owned(),
                        _ => "ERROR\r\n".to_owned(),
                    };
                    if (&stream).write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                    line.clear();
                }
            });
        }
    });
    port
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no memc_pass")]
fn memcached_does_what_variables_say() {
    let port = memcached();
    let server = server(
        "",
        &format!(
            "location = /memc {{
                 set $memc_cmd $arg_cmd; set_unescape_uri $memc_key $arg_key; set $memc_value $arg_value;
                 set $memc_exptime $arg_for;
                 memc_pass 127.0.0.1:{port};
             }}
             location = /body {{ set $memc_key 'k y'; set $memc_exptime 60; memc_pass 127.0.0.1:{port}; }}
             location = /some {{
                 set $memc_cmd flush_all; memc_pass 127.0.0.1:{port}; memc_cmds_allowed get set;
             }}
             location = /put {{
                 content_by_lua_block {{
                     local r = ngx.location.capture('/body', {{ method = ngx.HTTP_PUT, body = 'value' }})
                     ngx.print(r.status, ' ', r.body, ngx.location.capture('/body').body)
                 }}
             }}"
        ),
    );
    check(
        &server,
        &[
            ("/put", 200, "201 STORED\r\nvalue"),
            ("/memc?cmd=set&key=k%20y&value=value&for=60", 201, "STORED\r\n"),
            ("/memc?key=k%20y", 200, "value"),
            ("/memc?cmd=incr&key=n&value=3", 200, "3\r\n"),
            ("/memc?cmd=flush_all", 200, "OK\r\n"),
            ("/some", 403, ""),
        ],
    );
    let statuses = ["cmd=delete&key=n", "key=none", "cmd=nonsense&key=n", "cmd=version", "cmd=get"]
        .map(|arguments| ask(&server, &format!("/memc?{arguments}")).0);
    assert_eq!(statuses, [404, 404, 400, 502, 500]);
}
