//! `map`, `geo`, `split_clients` and `empty_gif`.

use clearway_testkit::{Case, Exchange};

fn gets(case: Case, targets: &[&str]) -> Case {
    targets.iter().fold(case, |case, target| case.get(target))
}

#[test]
fn texts_and_expressions() {
    let config = "default_type text/plain; map_hash_max_size 512; map_hash_bucket_size 32;
        map $args $plain { default d; foo bar; FOO2 bar2; '' empty; ~^x(?<rest>.*)$ \"<$rest>\"; ~*^Y(.) y$1;
            ~^x never; \\default escaped; \\~tilde t; a*b star; include map.conf; }
        map $args $nodefault { foo bar; }
        map $args $variables { var \"$uri $arg_a\"; other $plain; default $nodefault; }
        map $args $regexes { ~a(.)c \"$1\"; ~(?<first>.)(?<second>.) \"$second$first$1$2\"; }
        map $http_host:$uri $joined { localhost:/joined yes; default no; }
        map $uri $cached { /first /then; /then done; }
        map $uri $uncached { volatile; /first2 /then2; /then2 done; }
        map $args $changed { default mapped; }
        map $args $loop { default $loop1; } map $args $loop1 { default x$loop; }
        server { listen %%PORT%%;
        location / { return 200 \"$plain|$nodefault|$variables|$rest\"; }
        location /regexes { return 200 \"$regexes|$1|$first|$second\"; }
        location ~ ^/group/(.*) { return 200 \"$1|$plain|$1\"; }
        location /joined { return 200 $joined; }
        location /first { error_page 404 $cached; return 404; }
        location /then { return 200 $cached; }
        location /first2 { error_page 404 $uncached; return 404; }
        location /then2 { return 200 $uncached; }
        location /set { set $changed set; return 200 $changed; }
        location /seen { if ($plain = bar) { return 200 yes; } return 200 \"no $plain\"; }
        location /loop { return 200 \"[$loop]\"; }
        }";
    let targets = [
        "/",
        "/?foo",
        "/?FOO",
        "/?foo2",
        "/?xyz",
        "/?Xyz",
        "/?yz",
        "/?YZ",
        "/?default",
        "/?~tilde",
        "/?a*b",
        "/?axb",
        "/?included",
        "/?nothing",
        "/?var",
        "/?var&a=1",
        "/?other",
        "/regexes?abc",
        "/regexes?xy",
        "/regexes?x",
        "/regexes",
        "/group/g",
        "/group/g?yx",
        "/joined",
        "/first",
        "/first2",
        "/set",
        "/seen?foo",
        "/seen?x",
        "/loop",
    ];
    gets(Case::http(config).file("map.conf", "included from-file;\n"), &targets).run();
}

#[test]
fn hostnames_and_wildcards() {
    let config = "default_type text/plain;
        map $arg_h $host_map { hostnames; default none; example.com exact; *.example.com head; example.* tail;
            .dot.test both; *.a.dot.test deeper; www.mail.* www; ~^re.*org$ regex; ~*^ri.*org$ insensitive; }
        map $arg_h $late { *.star.test star; hostnames; *.wild.test wild; }
        server { listen %%PORT%%; location / { return 200 \"$host_map|$late\"; } }";
    let hosts = [
        "example.com",
        "EXAMPLE.com",
        "example.com.",
        "example.com..",
        "www.example.com",
        "a.b.example.com",
        "example.org",
        "example.org.uk",
        "xexample.org",
        "dot.test",
        "x.dot.test",
        "a.dot.test",
        "b.a.dot.test",
        "www.mail.ru",
        "mail.ru",
        "rest.org",
        "REST.org",
        "RIST.ORG",
        "rist.org.",
        "",
        ".",
        "*.star.test",
        "a.star.test",
        "a.wild.test",
        "*.wild.test",
        "example.",
        "www.example.",
        ".example.com",
    ];
    let targets: Vec<_> = hosts.iter().map(|host| format!("/?h={host}")).collect();
    targets.iter().fold(Case::http(config), |case, target| case.get(target)).run();
}

const ADDRESSES: &str = "default_type text/plain;
        geo $client { 127.0.0.0/8 loopback; 192.0.2.0/24 test; 0.0.0.0/0 world; }
        geo $deleted { 127.0.0.0/8 loopback; 127.0.0.1/32 me; 0.0.0.0/0 world; delete 127.0.0.1/32; }
        geo $included { include geo.conf; 127.0.0.0/8 loopback; }
        geo $arg_ip $net { default default; 10.0.0.0/8 ten; 10.1.0.0/16 ten-one; 10.1.2.3 one;
            10.1.2.4/32 two;
            255.255.255.255 none; 2001:db8::/32 doc; 2001:db8:1::/48 doc-one; ::1 six; 010.9.0.0/16 zeros; }
        geo $arg_ip $nodefault { 10.0.0.0/8 ten; 2001:db8::/32 doc; }
        geo $arg_ip $ranges { ranges; default default; 10.0.0.0-10.0.0.99 first; 10.0.0.10-10.0.0.19 inner;
            10.0.0.0-10.0.0.4 front; 10.0.0.90-10.0.0.99 back; 10.2.0.0-10.5.1.2 wide;
                10.10.0.1-10.10.0.1 one;
            delete 10.0.0.10-10.0.0.19; 255.255.0.0-255.255.255.254 last; }
        geo $arg_ip $nothing { }
        geo $proxied { default default; proxy 127.0.0.1; proxy 10.0.0.0/8; 127.0.0.0/8 loopback;
            10.0.0.0/8 ten; 192.0.2.0/24 test; 2001:db8::/32 doc; }
        geo $recursive { proxy_recursive; default default; proxy 127.0.0.1; proxy 10.0.0.0/8;
            127.0.0.0/8 loopback;
            10.0.0.0/8 ten; 192.0.2.0/24 test; 2001:db8::/32 doc; }
        geo $quoted { default \"a b\"; 127.0.0.1 'c;d'; }
        server { listen %%PORT%%; listen unix:%%PREFIX%%/sock;
        location / { return 200 \"$client|$deleted|$included|$net|$nodefault|$ranges|$nothing|$quoted\"; }
        location /proxied { return 200 \"$proxied|$recursive\"; } }";

#[test]
fn addresses() {
    let addresses = [
        "",
        "10.1.2.3",
        "10.1.2.4",
        "10.1.2.5",
        "10.1.9.9",
        "10.2.0.0",
        "11.0.0.0",
        "10.9.1.1",
        "255.255.255.255",
        "255.255.255.254",
        "2001:db8::1",
        "2001:db8:1::1",
        "2001:DB8:1::",
        "::1",
        "::ffff:10.1.2.3",
        "::ffff:a00:1",
        "x",
        "10.0.0.0",
        "10.0.0.4",
        "10.0.0.5",
        "10.0.0.9",
        "10.0.0.10",
        "10.0.0.19",
        "10.0.0.20",
        "10.0.0.89",
        "10.0.0.90",
        "10.0.0.99",
        "10.0.0.100",
        "10.1.255.255",
        "10.3.4.5",
        "10.5.1.2",
        "10.5.1.3",
        "10.10.0.1",
        "10.10.0.2",
        "10.1.2",
        "10.1.2.3.4",
        "10.01.002.3",
        "unix:",
    ];
    let mut case = Case::http(ADDRESSES).file("geo.conf", "127.0.0.1 from-file;\n");
    for address in addresses {
        case = case.get(&format!("/?ip={address}"));
    }
    for forwarded in [
        "192.0.2.1",
        "10.0.0.1",
        "192.0.2.1, 10.0.0.1",
        "192.0.2.1,10.0.0.1 , 10.0.0.2,",
        "10.0.0.1, 192.0.2.1",
        "192.0.2.1:80",
        "[2001:db8::1]:80",
        "2001:db8::1",
        "192.0.2.1, x, 10.0.0.1",
        "x",
        ", 10.0.0.1",
        "192.0.2.1\r\nX-Forwarded-For: 10.0.0.1",
        "10.0.0.1\r\nX-Forwarded-For: x",
    ] {
        case = case.ask(format!("GET /proxied HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {forwarded}\r\n\r\n"));
    }
    let unix = Exchange::new("GET / HTTP/1.1\r\nHost: a\r\n\r\n").to("unix:%%PREFIX%%/sock");
    let request = "GET /proxied HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n";
    case.exchange(unix).exchange(Exchange::new(request).to("unix:%%PREFIX%%/sock")).run();
}

#[test]
fn parts_of_clients() {
    let config = "default_type text/plain;
        split_clients $arg_x $half { 50% a; * b; }
        split_clients \"$arg_x-salt\" $many { 0.5% a; 10% b; 33.33% c; .17% d; 20.% e; }
        split_clients $arg_x $all { 40% a; 60% b; }
        server { listen %%PORT%%; location / { return 200 \"$half|$many|$all\"; } }";
    let targets: Vec<_> = (0..60).map(|n| format!("/?x={}", "key".repeat(n % 5) + &n.to_string())).collect();
    targets.iter().fold(Case::http(config), |case, target| case.get(target)).run();
}

#[test]
fn pictures_of_one_pixel() {
    let date = "Mon, 28 Sep 1970 06:00:00 GMT";
    let mut case = Case::http(
        "server { listen %%PORT%%; location / { empty_gif; } location /in/ { if ($arg_x) { set $x y; }
            empty_gif; } }",
    );
    for target in ["/", "/dir/", "/a.txt?b", "/in/a", "/in/a?x=1"] {
        case = case.get(target).ask(format!("HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
    for condition in [
        format!("If-Modified-Since: {date}"),
        "If-Modified-Since: Mon, 28 Sep 1970 06:00:01 GMT".to_owned(),
        "If-Unmodified-Since: Mon, 28 Sep 1970 05:00:00 GMT".to_owned(),
        "If-None-Match: \"x\"".to_owned(),
        "If-None-Match: *".to_owned(),
        "If-Match: \"x\"".to_owned(),
        "If-Match: *".to_owned(),
    ] {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{condition}\r\n\r\n");
        case = case.ask(request);
    }
    for method in ["POST", "PUT", "DELETE"] {
        case = case.ask(format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab"));
    }
    case.run();
}
