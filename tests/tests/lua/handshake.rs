//! Code in the handshakes of clients (`ssl_client_hello_by_lua` and its kin), and in those with servers.

use clearway_testkit::Server;

use super::network::DATA;
use super::{ask, check, server};

/// What the code of the tests shares: a client that shakes hands and asks, and what reads a file.
const FUNCTIONS: &str = "init_by_lua_block {
    function shake(port, name, session)
        local s = ngx.socket.tcp()
        s:settimeout(60000)
        assert(s:connect('127.0.0.1', port))
        local done, err = s:sslhandshake(session, name)
        if not done then return nil, err end
        return s, done
    end
    function get(s)
        assert(s:send('GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n'))
        local head = assert(s:receiveuntil('\\r\\n\\r\\n')())
        return (assert(s:receive(tonumber(head:match('Content%-Length: (%d+)')))))
    end
    function file(name)
        local f = assert(io.open('%%DATA%%/' .. name))
        local text = f:read('*a')
        f:close()
        return text
    end
}";

/// A server whose handshakes have code, and one that is its client.
fn with_code(http: &str, code: &str, locations: &str) -> Server {
    let functions = FUNCTIONS.replace("%%DATA%%", DATA);
    let http = format!(
        "{functions} lua_socket_log_errors off; {http}
         server {{
             listen 127.0.0.1:%%PORT2%% ssl;
             ssl_certificate {DATA}/ecdsa.pem; ssl_certificate_key {DATA}/ecdsa.key;
             {code}
             location / {{ return 200 \"$ssl_protocol $ssl_session_reused $ssl_server_name\"; }}
         }}"
    );
    server(&http, locations)
}

/// Shakes hands as the client of a name that the request has.
const AS_NAMED: &str = "location = /as {
    content_by_lua_block {
        local s, err = shake(%%PORT2%%, ngx.var.arg_name)
        ngx.print(s and get(s) or err)
    }
}";

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn code_hears_what_clients_say_and_may_refuse_them() {
    let server = with_code(
        "lua_ssl_protocols TLSv1.2 TLSv1.3;",
        "ssl_client_hello_by_lua_block {
             local hello = require 'ngx.ssl.clienthello'
             local name = hello.get_client_hello_server_name()
             ngx.log(ngx.NOTICE, 'said: ', name, ' ', ngx.get_phase(), ' ',
                 #hello.get_client_hello_ciphers() > 0, ' ', #hello.get_client_hello_ext_present() > 0, ' ',
                 hello.get_client_hello_ext(0) ~= nil, ' ', hello.get_client_hello_ext(9999), ' ',
                 table.concat(hello.get_supported_versions(), '+'))
             if name == 'old' then
                 assert(hello.set_protocols({'TLSv1.2'}))
             elseif name == 'slow' then
                 ngx.sleep(0.01)
             elseif name == 'none' then
                 ngx.exit(ngx.ERROR)
             elseif name == 'late' then
                 ngx.sleep(0.01)
                 ngx.exit(ngx.ERROR)
             elseif name == 'fine' then
                 ngx.exit(ngx.OK)
             elseif name == 'broken' then
                 error('on purpose')
             elseif name == 'answering' then
                 ngx.say('no')
             elseif name == 'asking' then
                 ngx.location.capture('/')
             end
         }",
        AS_NAMED,
    );
    let failed = "handshake failed";
    check(
        &server,
        &[
            ("/as?name=new", 200, "TLSv1.3 . new"),
            ("/as?name=old", 200, "TLSv1.2 . old"),
            ("/as?name=slow", 200, "TLSv1.3 . slow"),
            ("/as?name=fine", 200, "TLSv1.3 . fine"),
            ("/as?name=none", 200, failed),
            ("/as?name=late", 200, failed),
            ("/as?name=broken", 200, failed),
            ("/as?name=answering", 200, failed),
            ("/as?name=asking", 200, failed),
        ],
    );
    for line in [
        "said: new ssl_client_hello true true true nil TLSv1.",
        "lua entry thread aborted: runtime error: ssl_client_hello_by_lua(",
        "on purpose",
        "API disabled in the context of ssl_client_hello_by_lua*",
        "SSL_do_handshake() failed (SSL: error:0A0000EA:SSL routines::callback failed)",
        "context: ssl_client_hello_by_lua*, client: 127.0.0.1, server: 127.0.0.1:",
    ] {
        server.wait_log("logs/error.log", line);
    }
}

/// Versions that code allows are those, whatever the configuration says.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn code_allows_versions_that_the_configuration_refuses() {
    let server = with_code(
        "",
        "ssl_protocols TLSv1.3;
         ssl_client_hello_by_lua_block {
             local hello = require 'ngx.ssl.clienthello'
             local name = hello.get_client_hello_server_name()
             if name ~= 'configured' then
                 assert(hello.set_protocols({ 'TLSv1.2', 'TLSv1.3' }))
             end
         }",
        "location = /12 { lua_ssl_protocols TLSv1.2; content_by_lua_block {
             local s, err = shake(%%PORT2%%, ngx.var.arg_name)
             ngx.print(s and get(s) or err)
         } }
         location = /13 { lua_ssl_protocols TLSv1.2 TLSv1.3; content_by_lua_block {
             local s, err = shake(%%PORT2%%, ngx.var.arg_name)
             ngx.print(s and get(s) or err)
         } }",
    );
    check(
        &server,
        &[
            ("/12?name=configured", 200, "handshake failed"),
            ("/12?name=any", 200, "TLSv1.2 . any"),
            ("/13?name=any", 200, "TLSv1.3 . any"),
            ("/13?name=configured", 200, "TLSv1.3 . configured"),
        ],
    );
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn code_says_which_certificates_clients_are_shown() {
    let server = with_code(
        &format!("lua_ssl_trusted_certificate {DATA}/ca.pem; lua_shared_dict seen 1m;"),
        "ssl_certificate_by_lua_block {
             local ssl = require 'ngx.ssl'
             local name = ssl.server_name()
             local shared = assert(ssl.get_req_shared_ssl_ciphers())
             ngx.log(ngx.NOTICE, 'shared: ', #shared > 0)
             ngx.log(ngx.NOTICE, 'for: ', name, ' ', ngx.get_phase(), ' ', ssl.get_tls1_version_str(), ' ',
                 ssl.server_port() == %%PORT2%%, ' ', #ssl.raw_client_addr(), ' ',
                 select(2, ssl.raw_server_addr()), ' ', ssl.get_client_random(0))
             if name == 'configured' then
                 return
             end
             assert(ssl.clear_certs())
             if name == 'none' then
                 return
             elseif name == 'mixed' then
                 assert(ssl.set_cert(assert(ssl.parse_pem_cert(file 'ecdsa.pem'))))
                 local ok, err = ssl.set_priv_key(assert(ssl.parse_pem_priv_key(file 'rsa.key')))
                 ngx.log(ngx.NOTICE, 'mixed: ', ok, ' ', err)
                 return ngx.exit(ngx.ERROR)
             elseif name == 'der' then
                 ngx.sleep(0.01)
                 assert(ssl.set_der_cert(assert(ssl.cert_pem_to_der(file 'rsa.pem'))))
                 assert(ssl.set_der_priv_key(assert(ssl.priv_key_pem_to_der(file 'rsa.key'))))
             else
                 assert(ssl.set_priv_key(assert(ssl.parse_pem_priv_key(file 'rsa.key'))))
                 assert(ssl.set_cert(assert(ssl.parse_pem_cert(file 'rsa.pem'))))
             end
         }",
        &format!(
            "{AS_NAMED}
             location = /suite {{
                 lua_ssl_protocols TLSv1.2; lua_ssl_ciphers aRSA;
                 content_by_lua_block {{
                     local s, err = shake(%%PORT2%%, ngx.var.arg_name)
                     ngx.print(s and get(s) or err)
                 }}
             }}"
        ),
    );
    check(
        &server,
        &[
            ("/as?name=configured", 200, "TLSv1.3 . configured"),
            ("/as?name=pem", 200, "TLSv1.3 . pem"),
            // Only a server that shows a certificate with an RSA key can be talked to here.
            ("/suite?name=pem", 200, "TLSv1.2 . pem"),
            ("/suite?name=der", 200, "TLSv1.2 . der"),
            ("/suite?name=configured", 200, "handshake failed"),
            ("/as?name=none", 200, "handshake failed"),
            ("/as?name=mixed", 200, "handshake failed"),
        ],
    );
    for line in [
        "shared: true",
        "for: pem ssl_cert TLSv1.3 true 4 inet 32",
        "for: der ssl_cert TLSv1.2 true 4 inet 32",
        "mixed: nil SSL_use_PrivateKey() failed",
        "SSL_do_handshake() failed (SSL: error:0A000179:SSL routines::cert cb error)",
    ] {
        server.wait_log("logs/error.log", line);
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn code_that_waits_holds_nobody_else() {
    let server = with_code(
        "lua_shared_dict gates 1m;",
        "ssl_certificate_by_lua_block {
             local ssl = require 'ngx.ssl'
             if ssl.server_name() == 'waits' then
                 ngx.shared.gates:incr('waiting', 1, 0)
                 while not ngx.shared.gates:get('open') do ngx.sleep(0.01) end
             end
         }",
        &format!(
            "{AS_NAMED}
             location = /beside {{
                 content_by_lua_block {{
                     local waiting = {{}}
                     for i = 1, 20 do
                         waiting[i] = ngx.thread.spawn(function()
                             local s, err = shake(%%PORT2%%, 'waits')
                             return s and get(s) or err
                         end)
                     end
                     while ngx.shared.gates:get('waiting') ~= 20 do ngx.sleep(0.01) end
                     local s = assert(shake(%%PORT2%%, 'goes'))
                     ngx.say(get(s))
                     ngx.shared.gates:set('open', true)
                     local done = 0
                     for i = 1, 20 do
                         local ok, said = ngx.thread.wait(waiting[i])
                         if ok and said:find('waits', 1, true) then done = done + 1 end
                     end
                     ngx.say(done)
                 }}
             }}"
        ),
    );
    check(&server, &[("/beside", 200, "TLSv1.3 . goes\n20\n"), ("/as?name=x", 200, "TLSv1.3 . x")]);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn code_keeps_sessions_and_brings_them_back() {
    let server = with_code(
        "lua_ssl_protocols TLSv1.2; lua_shared_dict sessions 1m;
         ssl_session_store_by_lua_block {
             local session = require 'ngx.ssl.session'
             local id, text = session.get_session_id(), session.get_serialized_session()
             ngx.log(ngx.NOTICE, 'kept: ', ngx.get_phase(), ' ', #id, ' ', pcall(ngx.sleep, 0))
             ngx.shared.sessions:set(id, text)
             ngx.shared.sessions:set('count', (ngx.shared.sessions:get('count') or 0) + 1)
         }
         ssl_session_fetch_by_lua_block {
             local session = require 'ngx.ssl.session'
             if ngx.shared.sessions:get('broken') then
                 error('on purpose')
             end
             ngx.sleep(0)
             local text = ngx.shared.sessions:get(session.get_session_id())
             ngx.log(ngx.NOTICE, 'fetched: ', ngx.get_phase(), ' ', text ~= nil)
             if text then
                 local ok, err = session.set_serialized_session('==no session==')
                 ngx.log(ngx.NOTICE, 'no session: ', ok, ' ', err)
                 assert(session.set_serialized_session(text))
             end
         }",
        "ssl_session_tickets off;",
        "location = /sessions {
             content_by_lua_block {
                 local s, session = assert(shake(%%PORT2%%, 'a'))
                 ngx.say(get(s))
                 s:close()
                 while not ngx.shared.sessions:get('count') do ngx.sleep(0.01) end
                 s = assert(shake(%%PORT2%%, 'a', session))
                 ngx.say(get(s))
                 s:close()
                 ngx.shared.sessions:set('broken', true)
                 s = assert(shake(%%PORT2%%, 'a', session))
                 ngx.say(get(s))
                 s:close()
             }
         }",
    );
    let (status, said) = ask(&server, "/sessions");
    assert_eq!((status, &*said), (200, "TLSv1.2 . a\nTLSv1.2 r a\nTLSv1.2 . a\n"));
    for line in [
        "kept: ssl_session_store 64 false",
        "fetched: ssl_session_fetch true",
        "no session: nil failed to de-serialize session",
        "ssl_session_fetch_by_lua(",
        "API disabled in the context of ssl_session_store_by_lua*",
    ] {
        server.wait_log("logs/error.log", line);
    }
}

/// Has a server ask for certificates, and say what it was shown.
fn asking(locations: &str) -> Server {
    let functions = FUNCTIONS.replace("%%DATA%%", DATA);
    let http = format!(
        "{functions} proxy_ssl_session_reuse off;
         server {{
             listen 127.0.0.1:%%PORT2%% ssl;
             ssl_certificate {DATA}/ecdsa.pem; ssl_certificate_key {DATA}/ecdsa.key;
             ssl_client_certificate {DATA}/ca.pem; ssl_verify_client optional;
             location / {{ return 200 \"$ssl_protocol $ssl_client_verify\"; }}
         }}"
    );
    server(&http, &locations.replace("%%DATA%%", DATA))
}

/// Ways to say which certificate a server is shown.
const SHOWING: &str = "location = /shown {
     access_by_lua_block { ngx.ctx.name = 'client' }
     proxy_ssl_certificate_by_lua_block {
         local ssl, proxy = require 'ngx.ssl', require 'ngx.proxyssl'
         local shown = require 'ngx.ssl.proxysslcert'
         local name = ngx.ctx.name
         ngx.sleep(0.01)
         ngx.log(ngx.NOTICE, 'asked: ', ngx.get_phase(), ' ', proxy.get_tls1_version_str())
         assert(shown.set_cert(assert(ssl.parse_pem_cert(file(name .. '.pem')))))
         assert(shown.set_priv_key(assert(ssl.parse_pem_priv_key(file(name .. '.key')))))
     }
     proxy_pass https://127.0.0.1:%%PORT2%%/;
 }
 location = /older {
     proxy_ssl_protocols TLSv1.2;
     proxy_ssl_certificate_by_lua_block {
         local ssl, shown = require 'ngx.ssl', require 'ngx.ssl.proxysslcert'
         assert(shown.clear_certs())
         assert(shown.set_der_cert(assert(ssl.cert_pem_to_der(file 'client.pem'))))
         assert(shown.set_der_priv_key(assert(ssl.priv_key_pem_to_der(file 'client.key'))))
     }
     proxy_pass https://127.0.0.1:%%PORT2%%/;
 }
 location = /configured {
     proxy_ssl_certificate %%DATA%%/client.pem; proxy_ssl_certificate_key %%DATA%%/client.key;
     proxy_ssl_certificate_by_lua_block { ngx.exit(ngx.OK) }
     proxy_pass https://127.0.0.1:%%PORT2%%/;
 }
 location = /cleared {
     proxy_ssl_certificate %%DATA%%/client.pem; proxy_ssl_certificate_key %%DATA%%/client.key;
     proxy_ssl_certificate_by_lua_block { assert(require('ngx.ssl.proxysslcert').clear_certs()) }
     proxy_pass https://127.0.0.1:%%PORT2%%/;
 }
 location = /refused {
     proxy_ssl_certificate_by_lua_block { ngx.exit(ngx.ERROR) }
     proxy_pass https://127.0.0.1:%%PORT2%%/;
 }
 location = /broken {
     proxy_ssl_certificate_by_lua_block { ngx.sleep(0.01) error('on purpose') }
     proxy_pass https://127.0.0.1:%%PORT2%%/;
 }
 location = /answering {
     proxy_ssl_certificate_by_lua_block { ngx.say('no') }
     proxy_pass https://127.0.0.1:%%PORT2%%/;
 }
 location = /late {
     proxy_connect_timeout 200ms;
     proxy_ssl_certificate_by_lua_block { ngx.sleep(3600) }
     proxy_pass https://127.0.0.1:%%PORT2%%/;
 }";

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn code_says_which_certificates_servers_are_shown() {
    let server = asking(SHOWING);
    check(
        &server,
        &[
            ("/shown", 200, "TLSv1.3 SUCCESS"),
            ("/older", 200, "TLSv1.2 SUCCESS"),
            ("/configured", 200, "TLSv1.3 SUCCESS"),
            ("/cleared", 200, "TLSv1.3 NONE"),
            ("/refused", 502, ""),
            ("/broken", 502, ""),
            ("/answering", 502, ""),
            ("/late", 504, ""),
        ],
    );
    for line in [
        "asked: proxy_ssl_cert TLSv1.3",
        "on purpose",
        "API disabled in the context of proxy_ssl_certificate_by_lua*",
        "SSL_do_handshake() failed (SSL: error:0A0000EA:SSL routines::callback failed)",
        "upstream timed out (110: Connection timed out) while loading proxy ssl certificate by lua",
    ] {
        server.wait_log("logs/error.log", line);
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn code_looks_at_certificates_of_servers() {
    let location = |path: &str, trusted: &str, code: &str| {
        format!(
            "location = /{path} {{
                 proxy_ssl_verify on; proxy_ssl_name www.example.com;
                 proxy_ssl_trusted_certificate %%DATA%%/{trusted}.pem;
                 {code}
                 proxy_pass https://127.0.0.1:%%PORT2%%/;
             }}"
        )
    };
    let look = "proxy_ssl_verify_by_lua_block {
        local server = require 'ngx.ssl.proxysslverify'
        ngx.sleep(0.01)
        ngx.log(ngx.NOTICE, 'looks: ', ngx.get_phase(), ' ', server.get_verify_result(), ' ',
            type(server.get_verify_cert()))
    }";
    let deny = "proxy_ssl_verify_by_lua_block { ngx.exit(ngx.ERROR) }";
    let say = "proxy_ssl_verify_by_lua_block {
        assert(require('ngx.ssl.proxysslverify').set_verify_result(10))
    }";
    let never = "proxy_ssl_verify_by_lua_block { ngx.log(ngx.ERR, 'never reached') }";
    let skip = format!("lua_upstream_skip_openssl_default_verify on; {look}");
    let all = [
        location("looked", "ca", look),
        location("denied", "ca", deny),
        location("said", "ca", say),
        location("unknown", "other", never),
        location("alone", "other", &skip),
    ];
    let server = asking(&all.concat());
    check(
        &server,
        &[
            ("/looked", 200, "TLSv1.3 NONE"),
            ("/denied", 502, ""),
            ("/said", 502, ""),
            ("/unknown", 502, ""),
            ("/alone", 200, "TLSv1.3 NONE"),
        ],
    );
    for line in [
        "looks: proxy_ssl_verify 0 cdata",
        "SSL_do_handshake() failed (SSL: error:0A000086:SSL routines::certificate verify failed)",
        "upstream SSL certificate verify error: (10:certificate has expired)",
        "upstream SSL certificate verify error: (21:unable to verify the first certificate)",
    ] {
        let log = server.wait_log("logs/error.log", line);
        assert!(!log.contains("never reached"), "the library's check comes first");
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn code_asks_and_judges_authorities() {
    let server = with_code(
        "",
        "ssl_certificate_by_lua_block {
             local ok, said = require('ngx.ocsp').set_ocsp_status_resp(file 'ocsp-good.der')
             ngx.log(ngx.NOTICE, 'status: ', ok, ' ', said)
         }",
        &format!(
            "{AS_NAMED}
             location = /ocsp {{
                 content_by_lua_block {{
                     local ssl, ocsp = require 'ngx.ssl', require 'ngx.ocsp'
                     local chain = assert(ssl.cert_pem_to_der(file 'ocsp.pem'))
                     local other = assert(ssl.cert_pem_to_der(file 'other.pem'))
                     ngx.say(ocsp.get_ocsp_responder_from_der_chain(chain))
                     ngx.say(ocsp.get_ocsp_responder_from_der_chain(chain, 4))
                     ngx.say(ocsp.get_ocsp_responder_from_der_chain(other))
                     ngx.say(#assert(ocsp.create_ocsp_request(chain)) > 60)
                     ngx.say(ocsp.create_ocsp_request(other))
                     ngx.say((select(2, ocsp.create_ocsp_request(chain, 1)):gsub('%d+', 'N')))
                     for _, name in ipairs({{'good', 'lasting', 'revoked', 'expired'}}) do
                         ngx.say(ocsp.validate_ocsp_response(file('ocsp-' .. name .. '.der'), chain))
                     end
                     ngx.say(ocsp.validate_ocsp_response('x', chain))
                     ngx.say(ocsp.validate_ocsp_response(file 'ocsp-good.der', other))
                 }}
             }}"
        ),
    );
    let (status, said) = ask(&server, "/ocsp");
    let expected = "http://127.0.0.1:18083/ocspnil
httptruncated
nilnil
true
nilno issuer certificate in chain
output buffer too small: N > N
true5680281600
truenil
nilcertificate status \"revoked\" in the OCSP response
nilOCSP_check_validity() failed
nild2i_OCSP_RESPONSE() failed
nilno issuer certificate in chain
";
    assert_eq!((status, &*said), (200, expected));
    check(&server, &[("/as?name=x", 200, "TLSv1.3 . x")]);
    server.wait_log("logs/error.log", "status: true no status req");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn ctx_of_a_handshake_is_there_for_its_requests() {
    let server = with_code(
        "lua_ssl_protocols TLSv1.2 TLSv1.3;",
        "ssl_client_hello_by_lua_block { ngx.ctx.from = 'hello' ngx.ctx.list = { 1 } }
         ssl_certificate_by_lua_block {
             ngx.ctx.from = ngx.ctx.from .. ' certificate'
             ngx.sleep(0.001)
             ngx.ctx.list[2] = 2
         }
         location = /ctx {
             header_filter_by_lua_block { ngx.ctx.list[#ngx.ctx.list + 1] = 0 }
             content_by_lua_block {
                 local text = ngx.ctx.from .. ' ' .. #ngx.ctx.list
                 ngx.ctx.from = 'request'
                 ngx.header.content_length = #text + #ngx.ctx.from + 1
                 ngx.print(text, ' ', ngx.ctx.from)
             }
         }",
        "location = /twice {
             content_by_lua_block {
                 local s = assert(shake(%%PORT2%%, 'www.example.com'))
                 for i = 1, 2 do
                     assert(s:send('GET /ctx HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n'))
                     local head = assert(s:receiveuntil('\\r\\n\\r\\n')())
                     ngx.say((assert(s:receive(tonumber(head:lower():match('content%-length: (%d+)'))))))
                 end
             }
         }",
    );
    // What a request changes is its own; what it finds is everyone's.
    let expected = "hello certificate 2 request\nhello certificate 3 request\n";
    for _ in 0..3 {
        check(&server, &[("/twice", 200, expected)]);
    }
}

/// Clients with a certificate and without, whose name says what the code asks of them.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn code_asks_clients_for_certificates() {
    let server = with_code(
        "",
        "ssl_certificate_by_lua_block {
             local ssl = require 'ngx.ssl'
             local ca = assert(ssl.parse_pem_cert(file 'ca.pem'))
             local other = assert(ssl.parse_pem_cert(file 'other.pem'))
             local name = ssl.server_name()
             if name == 'told' then
                 assert(ssl.verify_client(ca, 1))
             elseif name == 'trusted' then
                 assert(ssl.verify_client(nil, 1, ca))
             elseif name == 'other' then
                 assert(ssl.verify_client(nil, nil, other))
             elseif name == 'configured' then
                 assert(ssl.verify_client())
             elseif name == 'broken' then
                 ngx.log(ngx.NOTICE, 'broken: ', select(2, ssl.verify_client({})), ' ',
                     select(2, ssl.get_server_random()))
             end
         }
         location = /verified { return 200 \"$ssl_client_verify\"; }",
        "location = /as { content_by_lua_block {
             local ssl = require 'ngx.ssl'
             local s = ngx.socket.tcp()
             assert(s:connect('127.0.0.1', %%PORT2%%))
             if not ngx.var.arg_bare then
                 assert(s:setclientcert(ssl.parse_pem_cert(file 'client.pem'),
                     ssl.parse_pem_priv_key(file 'client.key')))
             end
             assert(s:sslhandshake(nil, ngx.var.arg_name))
             assert(s:send('GET /verified HTTP/1.0\\r\\n\\r\\n'))
             ngx.print(s:receive('*a'):match('\\r\\n\\r\\n(.*)'))
         } }
         location = /late { content_by_lua_block { require 'ngx.ssl'.verify_client() } }",
    );
    let unknown = "FAILED:unable to verify the first certificate";
    check(
        &server,
        &[
            ("/as?name=told", 200, "SUCCESS"),
            ("/as?name=told&bare=1", 200, "NONE"),
            ("/as?name=trusted", 200, "SUCCESS"),
            ("/as?name=other", 200, unknown),
            ("/as?name=configured", 200, unknown),
            ("/as?name=broken", 200, "NONE"),
            ("/as?name=unasked", 200, "NONE"),
            ("/late", 500, ""),
        ],
    );
    server.wait_log("logs/error.log", "broken: invalid certificate chain bad request");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn requests_know_the_secrets_of_their_connection() {
    let secrets = "local ssl = require 'ngx.ssl'
         local function digits(text) return text and (text:gsub('.', function(c)
             return ('%02x'):format(c:byte()) end)) or '' end
         local function key(...) return digits((ssl.export_keying_material(20, ...))) end
         ngx.print(ssl.get_client_random(0), ' ', ssl.get_server_random(0), ' ',
             ssl.get_session_master_key(0), ' ', digits(ssl.get_server_random():sub(9, 12)), ' ',
             digits(ssl.get_client_random(4)), ' ', key('a label'), ' ', key('a label', 'context'), ' ',
             select(2, ssl.export_keying_material(99999, 'a label')), ' ',
             ('%04x'):format((ssl.get_req_shared_ssl_ciphers() or { 0 })[1]))";
    let server = with_code(
        "lua_ssl_protocols TLSv1.2; lua_ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256;",
        &format!("location = /secrets {{ content_by_lua_block {{ {secrets} }} }}"),
        &format!(
            "location = /twice {{ content_by_lua_block {{
                 local s = assert(shake(%%PORT2%%, 'a'))
                 for number = 1, 2 do
                     assert(s:send('GET /secrets HTTP/1.1\\r\\nHost: a\\r\\n' ..
                         (number == 2 and 'Connection: close\\r\\n\\r\\n' or '\\r\\n')))
                 end
                 local all = s:receive('*a')
                 for line in all:gmatch('32 32 [^\\r\\n]*') do ngx.say(line) end
             }} }}
             location = /plain {{ content_by_lua_block {{ {secrets} }} }}
             location = /why {{ content_by_lua_block {{
                 ngx.print(select(2, require 'ngx.ssl'.get_server_random())) }} }}"
        ),
    );
    let mut seen: Vec<String> = Vec::new();
    for _ in 0..2 {
        // What begins the random bytes of a server may be the time, and their end says what else it speaks.
        let (_, text) = ask(&server, "/twice");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() == 2 && lines[0] == lines[1], "a connection has one secret: {text}");
        let words: Vec<&str> = lines[0].split(' ').collect();
        assert_eq!(words[2], "48", "{text}");
        assert!(words[3] != words[4] && words[5] != words[6] && words[5].len() == 40, "{text}");
        assert_eq!(words[7..], ["SSL_export_keying_material()", "failed", "c02b"]);
        assert!(!seen.contains(&words[3].to_owned()), "another connection has another one");
        seen.push(words[3].to_owned());
    }
    check(&server, &[("/why", 200, "bad request"), ("/plain", 500, "")]);
}
