//! Libraries of others, unchanged, against real servers. `CLEARWAY_LUA_LIBRARIES` names a directory with
//! their sources (`resty/redis.lua` and so on); redis-server, memcached and mariadbd are Debian's.
//! `CLEARWAY_MARIADB` says where the latter is (`/usr`).
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
                 #require('resty.random').bytes(5), require('resty.string').to_hex('\\0\\250'),
                 require('resty.string').atoi('12') + 1)
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
        ("/string", "ba78text500fa13"),
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

/// Tables, types, several results, large rows, a wrong statement, a password and the pool.
fn of_mysql(socket: &str) -> String {
    format!(
        "location = /mysql {{ content_by_lua_block {{
             local mysql = require 'resty.mysql'
             local function connect(options)
                 local db = assert(mysql:new())
                 db:set_timeout(20000)
                 options.path, options.database = '{socket}', 'mysql'
                 local ok, err = db:connect(options)
                 return ok and db, err
             end
             local db = assert(connect({{ user = 'root' }}))
             for _, text in ipairs({{
                 'create database if not exists pets', 'drop table if exists pets.cats',
                 'create table pets.cats (id serial primary key, name varchar(20), weight double)',
                 [[create user if not exists tom identified by 'secret']], 'grant all on *.* to tom',
             }}) do
                 assert(db:query(text))
             end
             local done = assert(db:query(
                 [[insert into pets.cats (name, weight) values ('Bob', 2.5), ('', null)]]))
             local rows = assert(db:query('select * from pets.cats order by id'))
             ngx.say(done.affected_rows, ' ', #rows, ' ', rows[1].name, ' ', rows[1].weight, ' ',
                 rows[2].name == '', ' ', rows[2].weight == ngx.null)
             local one, again = db:query('select 1; select 2 as two')
             local two = assert(db:read_result())
             ngx.say(one[1]['1'], ' ', again, ' ', two[1].two)
             ngx.say(#assert(db:query([[select repeat('x', 300000) as x]]))[1].x)
             local _, err, code, state = db:query('selekt')
             ngx.say(err:sub(1, 32), ' ', code, ' ', state)
             ngx.say(db:set_keepalive(60000, 10))
             db = assert(connect({{ user = 'root' }}))
             ngx.say(db:get_reused_times(), ' ', db:close())
             db = assert(connect({{ user = 'tom', password = 'secret' }}))
             ngx.say(db:query('select current_user() as me')[1].me, ' ', db:close())
             ngx.say((select(2, connect({{ user = 'tom', password = 'wrong' }}))):match('Access denied'))
         }} }}"
    )
}

const OF_MYSQL: &str = "2 2 Bob 2.5 true true\n1 again 2\n300000\n\
                        You have an error in your SQL sy 1064 42000\n1\n1 1\ntom@% 1\nAccess denied\n";

#[test]
#[ignore = "needs sources of others (CLEARWAY_LUA_LIBRARIES) and mariadbd"]
fn mysql_runs_unchanged() {
    let libraries =
        std::env::var("CLEARWAY_LUA_LIBRARIES").expect("CLEARWAY_LUA_LIBRARIES names a directory");
    let root = std::env::var("CLEARWAY_MARIADB").unwrap_or_else(|_| "/usr".to_owned());
    let dir = std::env::temp_dir().join(format!("clearway-mariadb-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("it can be made");
    let data = format!("--datadir={}", dir.join("data").display());
    let base = format!("--basedir={root}");
    let made = Command::new(format!("{root}/bin/mariadb-install-db"))
        .args(["--no-defaults", &base, &data, "--auth-root-authentication-method=normal", "--skip-test-db"])
        .args(["--user=root"])
        .stdout(Stdio::null())
        .status();
    assert!(made.is_ok_and(|status| status.success()), "mariadb-install-db");
    let socket = dir.join("mariadb");
    let arguments = ["--no-defaults", &base, &data, "--user=root", "--skip-networking", "--socket"];
    let running = Running::start(&format!("{root}/sbin/mariadbd"), &arguments, socket.clone());
    let path = socket.display().to_string();
    let server = server(&format!("lua_package_path '{libraries}/?.lua;;';"), &of_mysql(&path));
    let answer = ask(&server, "/mysql");
    let log = server.error_log();
    drop(running);
    let _ = std::fs::remove_dir_all(&dir);
    assert_eq!(answer, (200, OF_MYSQL.to_owned()), "{log}");
}
