//! Libraries of others, unchanged, against real servers. `CLEARWAY_LUA_LIBRARIES` names a directory with
//! their sources (`resty/redis.lua` and so on); redis-server and memcached are Debian's.
//! docs/lua-libraries.md has the versions that were tried.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Server, wait_until};

use super::{ask, server};

/// Certificates and keys of the TLS crate's own tests.
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/tls/tests/data");

/// Ends with the test.
struct Running(Child, PathBuf);

impl Running {
    fn start(program: &str, arguments: &[&str], socket: PathBuf) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).arg(&socket).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}"));
        let running = Self(child, socket);
        assert!(wait_until(PATIENCE, || running.1.exists()), "{program} does not listen");
        running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It is gone, at worst.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Answers each question with the address 127.0.0.9.
fn name_server() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = socket.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        let mut packet = [0; 512];
        while let Ok((count, from)) = socket.recv_from(&mut packet) {
            let mut answer = packet[..count].to_vec();
            answer[2..8].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1]);
            answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 9]);
            if socket.send_to(&answer, from).is_err() {
                return;
            }
        }
    });
    port
}

/// Those that talk to other servers.
fn of_servers(redis: std::path::Display<'_>, memcached: std::path::Display<'_>, dns: u16) -> String {
    format!(
        "location = /redis {{ content_by_lua_block {{
             local r = assert(require('resty.redis'):new())
             assert(r:connect('unix:{redis}'))
             assert(r:set('a', 1)) assert(r:incr('a'))
             r:init_pipeline() r:get('a') r:get('none')
             local all = assert(r:commit_pipeline())
             ngx.print(all[1], all[2] == ngx.null, r:set_keepalive(10000, 10))
             assert(r:connect('unix:{redis}'))
             ngx.print(r:get_reused_times(), (r:get('a')))
         }} }}
         location = /memcached {{ content_by_lua_block {{
             local m = assert(require('resty.memcached'):new())
             assert(m:connect('unix:{memcached}'))
             assert(m:set('k', 'value', 60))
             ngx.print((m:get('k')), (m:delete('k')), m:get('k') == nil, m:set_keepalive(10000, 10))
         }} }}
         location = /string {{ content_by_lua_block {{
             local sha = require('resty.sha256'):new()
             sha:update('abc')
             local aes = assert(require('resty.aes'):new('key'))
             ngx.print(('%02x%02x'):format(sha:final():byte(1, 2)), aes:decrypt(aes:encrypt('text')),
                 #require('resty.random').bytes(5))
         }} }}
         location = /dns {{ content_by_lua_block {{
             local d = assert(require('resty.dns.resolver'):new({{
                 nameservers = {{ {{ '127.0.0.1', {dns} }} }}, timeout = 5000 }}))
             ngx.print(assert(d:query('example.com'))[1].address)
         }} }}"
    )
}

/// Those that do not, or to this one.
fn of_pages() -> String {
    "location = /http { content_by_lua_block {
             local http = require('resty.http').new()
             local one = assert(http:request_uri('http://127.0.0.1:%%PORT%%/cheap'))
             local two = assert(http:request_uri('https://127.0.0.1:%%PORT2%%/',
                 { ssl_server_name = 'www.example.com' }))
             ngx.print(one.status, one.body, two.status, two.body)
         } }
         location = /socket { content_by_lua_block {
             local s = assert(require('resty.websocket.server'):new())
             while true do
                 local data, kind = s:recv_frame()
                 if kind ~= 'text' then break end
                 assert(s:send_text(data:upper()))
             end
         } }
         location = /websocket { content_by_lua_block {
             local c = require('resty.websocket.client'):new()
             assert(c:connect('ws://127.0.0.1:%%PORT%%/socket'))
             assert(c:send_text('hello'))
             ngx.print((c:recv_frame()), (c:send_close()) ~= nil)
         } }
         location = /lock { content_by_lua_block {
             local lock = require('resty.lock'):new('locks')
             local other = require('resty.lock'):new('locks', { timeout = 0 })
             ngx.print(lock:lock('k') == 0, ' ', select(2, other:lock('k')), ' ', lock:unlock())
         } }
         location = /template { content_by_lua_block {
             ngx.print(require('resty.template').compile('<b>{{x}}</b>')({ x = '<' }))
         } }
         location = /lrucache { content_by_lua_block {
             local c = require('resty.lrucache').new(1)
             c:set('a', 1) c:set('b', 2)
             ngx.print((c:get('a')), (c:get('b')))
         } }"
    .to_owned()
}

fn start(redis: &Running, memcached: &Running) -> Server {
    let libraries =
        std::env::var("CLEARWAY_LUA_LIBRARIES").expect("CLEARWAY_LUA_LIBRARIES names a directory");
    let (redis, memcached, dns) = (redis.1.display(), memcached.1.display(), name_server());
    let http = format!(
        "lua_package_path '{libraries}/?.lua;;'; lua_shared_dict locks 1m;
         lua_ssl_trusted_certificate {DATA}/ca.pem;
         server {{
             listen 127.0.0.1:%%PORT2%% ssl;
             ssl_certificate {DATA}/ecdsa.pem; ssl_certificate_key {DATA}/ecdsa.key;
             location / {{ return 200 secure; }}
         }}"
    );
    server(&http, &(of_servers(redis, memcached, dns) + &of_pages()))
}

#[test]
#[ignore = "needs sources of others (CLEARWAY_LUA_LIBRARIES), redis-server and memcached"]
fn libraries_run_unchanged() {
    let dir = std::env::temp_dir().join(format!("clearway-libraries-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("it can be made");
    let redis =
        Running::start("redis-server", &["--port", "0", "--save", "", "--unixsocket"], dir.join("redis"));
    let memcached = Running::start("memcached", &["-u", "root", "-a", "0666", "-s"], dir.join("memcached"));
    let server = start(&redis, &memcached);
    let cases = [
        ("/redis", "2true112"),
        ("/memcached", "value1true1"),
        ("/string", "ba78text5"),
        ("/http", "200cheap200secure"),
        ("/websocket", "HELLOtrue"),
        ("/lock", "true timeout 1"),
        ("/dns", "127.0.0.9"),
        ("/template", "<b>&lt;</b>"),
        ("/lrucache", "nil2"),
    ];
    let answers = cases.map(|(path, _)| (path, ask(&server, path)));
    let expected = cases.map(|(path, text)| (path, (200, text.to_owned())));
    let _ = std::fs::remove_dir_all(&dir);
    assert_eq!(answers, expected);
}
