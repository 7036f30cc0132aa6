//! `realip`: the client's address, the header that gives it, and the modules that see the changed address.

use clearway_testkit::{Case, Exchange};

const FROM_HERE: &str =
    "set_real_ip_from 127.0.0.1; set_real_ip_from 10.0.0.0/8; set_real_ip_from 2001:db8::/32;";

fn case(locations: &str) -> Case {
    Case::http(&format!(
        "log_format ip '$remote_addr $realip_remote_addr $status';
         access_log logs/access.log ip;
         map $remote_addr $port {{ 127.0.0.1 -; default $remote_port; }}
         add_header X-IP \"$remote_addr|$port|$realip_remote_addr\" always;
         server {{ listen %%PORT%%; listen unix:%%PREFIX%%/a.sock; {locations} }}"
    ))
    .ready_at("127.0.0.1:%%PORT%%")
}

fn get(path: &str, headers: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").into_bytes()
}

#[test]
fn headers_that_name_the_client() {
    case(&format!(
        "{FROM_HERE}
         location / {{ return 204; }}
         location /forwarded {{ real_ip_header X-Forwarded-For; root %%PREFIX%%; }}
         location /lower {{ real_ip_header x-forwarded-for; root %%PREFIX%%; }}
         location /own {{ real_ip_header X-Own; root %%PREFIX%%; }}
         location /nobody {{ set_real_ip_from 192.0.2.0/24; root %%PREFIX%%; }}"
    ))
    .ask(get("/", "X-Real-IP: 192.0.2.1\r\n"))
    .ask(get("/", "X-Real-IP: 192.0.2.1:8080\r\n"))
    .ask(get("/", "x-real-ip: [2001:db8::1]:8080\r\n"))
    .ask(get("/", "X-Real-IP: 2001:DB8::1\r\n"))
    .ask(get("/", "X-Real-IP: host\r\n"))
    .ask(get("/", "X-Real-IP: 192.0.2.1, 192.0.2.2\r\n"))
    .ask(get("/", "X-Real-IP:\r\n"))
    .ask(get("/", ""))
    .ask(get("/lower", "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2\r\n"))
    .ask(get("/own", "X-Own: 192.0.2.7\r\nX-Own: 192.0.2.8\r\n"))
    .ask(get("/own", "X-Real-IP: 192.0.2.7\r\n"))
    .ask(get("/nobody", "X-Real-IP: 192.0.2.7\r\n"))
    .with_access_log()
    .run();
}

#[test]
fn chains_of_proxies() {
    let asks = [
        "X-Forwarded-For: 192.0.2.1\r\n",
        "X-Forwarded-For: 192.0.2.1, 10.0.0.1\r\n",
        "X-Forwarded-For: 192.0.2.1, 192.0.2.2 , 10.0.0.1 ,\r\n",
        "X-Forwarded-For: 192.0.2.1, x, 10.0.0.1:80\r\n",
        "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 10.0.0.1, 10.0.0.2\r\n",
        "X-Forwarded-For: 10.0.0.3\r\nX-Forwarded-For: 10.0.0.1\r\n",
        "X-Forwarded-For: 10.0.0.3, 2001:db8::1\r\n",
        "X-Forwarded-For: ,192.0.2.1\r\n",
        "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: x\r\n",
    ];
    let whole = case(&format!(
        "{FROM_HERE} real_ip_header X-Forwarded-For;
         location /last {{ root %%PREFIX%%; }}"
    ));
    asks.iter().fold(whole, |case, headers| case.ask(get("/last", headers))).with_access_log().run();
    let whole = case(&format!(
        "{FROM_HERE} real_ip_header X-Forwarded-For; real_ip_recursive on;
         location /first {{ root %%PREFIX%%; }}"
    ));
    asks.iter().fold(whole, |case, headers| case.ask(get("/first", headers))).with_access_log().run();
}

#[test]
fn unix_sockets_are_trusted_by_name() {
    let unix = |request| Exchange::new(request).to("unix:%%PREFIX%%/a.sock");
    case(
        "location / { set_real_ip_from unix:; root %%PREFIX%%; }
         location /all { set_real_ip_from 0.0.0.0/0; root %%PREFIX%%; }",
    )
    .exchange(unix(get("/", "X-Real-IP: 192.0.2.1\r\n")))
    .exchange(unix(get("/all", "X-Real-IP: 192.0.2.1\r\n")))
    .ask(get("/", "X-Real-IP: 192.0.2.1\r\n"))
    .ask(get("/all", "X-Real-IP: 192.0.2.1\r\n"))
    .with_access_log()
    .run();
}

#[test]
fn the_address_is_changed_once_and_for_the_whole_request() {
    case(
        "set_real_ip_from 127.0.0.1;
         location /redirected { error_page 404 /page; root %%PREFIX%%; }
         location /page { set_real_ip_from 192.0.2.0/24; real_ip_header X-Own; return 404; }
         location /own { real_ip_header X-Own; root %%PREFIX%%; }
         location /rewritten { rewrite ^ /own; }",
    )
    .ask(get("/redirected", "X-Real-IP: 192.0.2.1\r\nX-Own: 192.0.2.2\r\n"))
    .ask(get("/own", "X-Real-IP: 192.0.2.1\r\nX-Own: 192.0.2.2\r\n"))
    .ask(get("/own", "X-Own: 192.0.2.2\r\n"))
    .ask(get("/rewritten", "X-Own: 192.0.2.2\r\n"))
    .exchange(Exchange::new([get("/", "X-Real-IP: 192.0.2.1\r\n"), get("/", "")].concat()).answers(2))
    .with_access_log()
    .run();
}

#[test]
fn others_see_the_changed_address() {
    Case::http(
        "geo $place { default here; 192.0.2.0/24 there; }
         map $remote_addr $known { 192.0.2.1 yes; default no; }
         set_real_ip_from 127.0.0.1;
         server {
            listen %%PORT%%;
            if ($remote_addr = 192.0.2.9) { return 403; }
            location / { return 200 \"$place $known $binary_remote_addr\"; }
         }",
    )
    .ask(get("/", "X-Real-IP: 192.0.2.1\r\n"))
    .ask(get("/", "X-Real-IP: 192.0.2.9\r\n"))
    .ask(get("/", ""))
    .run();
}
