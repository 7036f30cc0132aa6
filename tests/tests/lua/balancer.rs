//! Code that chooses the servers of requests (`balancer_by_lua`).

use std::net::TcpListener;

use super::network::DATA;
use super::{ask, check, server};

/// A server that says what it knows of a request, with and without TLS.
fn behind() -> String {
    format!(
        "server {{
             listen 127.0.0.1:%%PORT2%%; listen 127.0.0.1:%%PORT3%% ssl;
             ssl_certificate {DATA}/ecdsa.pem; ssl_certificate_key {DATA}/ecdsa.key;
             location / {{ return 200 \"$scheme $ssl_server_name $http_x_seen $connection_requests\"; }}
             location /body {{
                 content_by_lua_block {{
                     ngx.req.read_body()
                     ngx.print(ngx.req.get_method(), ' ', ngx.req.get_body_data())
                 }}
             }}
             location /missing {{ return 404 missing; }}
         }}"
    )
}

/// Groups that are chosen from in each way.
const CHOSEN: &str = "
    upstream chosen {
        balancer_by_lua_block { assert(require('ngx.balancer').set_current_peer('127.0.0.1', %%PORT2%%)) }
    }
    upstream ruled {
        server 127.0.0.1:%%PORT2%%;
        balancer_by_lua_block { ngx.ctx.asked = true }
    }
    upstream retried {
        balancer_by_lua_block {
            local balancer = require 'ngx.balancer'
            local how, status = balancer.get_last_failure()
            if not how then
                assert(balancer.set_more_tries(1))
                return assert(balancer.set_current_peer('127.0.0.1:1'))
            end
            ngx.req.set_header('X-Seen', how .. '/' .. status)
            assert(balancer.recreate_request())
            assert(balancer.set_current_peer('127.0.0.1', %%PORT2%%))
        }
    }
    upstream passed_over {
        balancer_by_lua_block {
            local balancer = require 'ngx.balancer'
            assert(balancer.set_current_peer('127.0.0.1', %%PORT2%%))
            local how, status = balancer.get_last_failure()
            if how then
                ngx.log(ngx.WARN, 'last: ', how, ' ', status)
                return ngx.exit(410)
            end
            assert(balancer.set_more_tries(1))
        }
    }
    upstream secured {
        balancer_by_lua_block {
            local balancer = require 'ngx.balancer'
            assert(balancer.set_current_peer('127.0.0.1', %%PORT3%%, 'b.example.com'))
            assert(balancer.set_upstream_tls(true))
        }
    }
    upstream remade {
        balancer_by_lua_block {
            local balancer = require 'ngx.balancer'
            ngx.req.set_body_data('made')
            assert(balancer.recreate_request())
            assert(balancer.set_current_peer('127.0.0.1', %%PORT2%%))
        }
    }
    upstream bound {
        balancer_by_lua_block {
            local balancer = require 'ngx.balancer'
            assert(balancer.bind_to_local_addr('127.0.0.9'))
            assert(balancer.set_current_peer('127.0.0.1', %%PORT2%%))
        }
    }
    upstream unset { balancer_by_lua_block { } }
    upstream refused { balancer_by_lua_block { ngx.exit(403) } }
    upstream broken { balancer_by_lua_block { error('no') } }
    upstream waits { balancer_by_lua_block { ngx.sleep(1) } }
    proxy_ssl_server_name on;";

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn code_chooses_servers_and_says_how_they_are_asked() {
    let server = server(
        &format!("{CHOSEN} {}", behind()),
        "location = /chosen { proxy_pass http://chosen/; }
         location = /ruled { proxy_pass http://ruled/; }
         location = /retried { proxy_pass http://retried/; }
         location = /over { proxy_pass http://passed_over/missing; proxy_next_upstream http_404; }
         location = /secured { proxy_pass http://secured/; }
         location = /remade { proxy_pass http://remade/body; proxy_method PUT; }
         location = /bound { proxy_pass http://bound/; }
         location = /unset { proxy_pass http://unset/; }
         location = /refused { proxy_pass http://refused/; }
         location = /broken { proxy_pass http://broken/; }
         location = /waits { proxy_pass http://waits/; }",
    );
    check(
        &server,
        &[
            ("/chosen", 200, "http   1"),
            ("/ruled", 200, "http   1"),
            ("/retried", 200, "http  failed/502 1"),
            ("/over", 410, ""),
            ("/secured", 200, "https b.example.com  1"),
            ("/remade", 200, "PUT made"),
            ("/bound", 200, "http   1"),
            ("/unset", 500, ""),
            ("/refused", 403, ""),
            ("/broken", 500, ""),
            ("/waits", 500, ""),
        ],
    );
    for line in [
        "last: next 404",
        "lua balancer: no peer set",
        "failed to run balancer_by_lua*: balancer_by_lua(",
        "API disabled in the context of balancer_by_lua*",
    ] {
        server.wait_log("logs/error.log", line);
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn connections_are_kept_for_as_long_as_code_says() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let http = format!(
        "upstream kept {{
             balancer_keepalive 4; keepalive 0;
             balancer_by_lua_block {{
                 local balancer = require 'ngx.balancer'
                 assert(balancer.set_current_peer('127.0.0.1', %%PORT2%%))
                 if ngx.var.arg_keep then
                     assert(balancer.enable_keepalive(60, tonumber(ngx.var.arg_keep)))
                 end
             }}
         }}
         upstream silent {{
             balancer_by_lua_block {{
                 local balancer = require 'ngx.balancer'
                 assert(balancer.set_current_peer('127.0.0.1', {port}))
                 assert(balancer.set_timeouts(20, 20, 0.2))
             }}
         }}"
    );
    let server = server(
        &format!("{http} {}", behind()),
        "proxy_read_timeout 1h;
         location = /kept { proxy_pass http://kept/; }
         location = /silent { proxy_pass http://silent/; }",
    );
    let requests = |path: &str| ask(&server, path).1.rsplit(' ').next().unwrap().to_owned();
    assert!((0..3).all(|_| requests("/kept") == "1"), "none is kept without being asked for");
    // One may be closed that was idle, so it need not be the very next request.
    assert!((0..20).any(|_| requests("/kept?keep=100") != "1"), "some are kept");
    // That one is closed behind this.
    requests("/kept?keep=2");
    assert!((0..20).all(|_| ["1", "2"].contains(&&*requests("/kept?keep=2"))), "for two requests");
    assert_eq!(ask(&server, "/silent").0, 504);
}
