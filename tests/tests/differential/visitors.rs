//! What is thought of a client by what it sends: `valid_referers`, `secure_link`, `modern_browser`, `userid`.

use clearway_base::base64::{Alphabet, decode};
use clearway_testkit::{Binary, Case, Server, Setup};

fn ask(target: &str, headers: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n")
}

const REFERERS: &str = "server { listen %%PORT%%;
            server_name localhost www.own.test *.wild.test .dot.test tail.* ~^re[0-9]+;
        location /none { return 200 \"[$invalid_referer]\"; }
        location /blocked { valid_referers blocked www.example.org; return 200 \"[$invalid_referer]\"; }
        location /absent { valid_referers none www.example.org; return 200 \"[$invalid_referer]\"; }
        location /host { valid_referers www.Example.org/uri example.org; return 200 \"[$invalid_referer]\"; }
        location /wild { valid_referers *.example.org .example.net www.example.* ~x;
            return 200 \"[$invalid_referer]\"; }
        location /regex { valid_referers ~example\\.org/a ~\\.net$; return 200 \"[$invalid_referer]\"; }
        location /own { valid_referers server_names; return 200 \"[$invalid_referer]\"; }
        location /group { valid_referers ~(exa); if ($uri ~ ^/(g)) { return 200 \"[$invalid_referer]$1\"; } }
        location /set { set $invalid_referer x; return 200 \"[$invalid_referer]\"; }
        } server { listen %%PORT2%%; valid_referers server_names none ~out;
        location / { return 200 \"[$invalid_referer]\"; }
        location /in { valid_referers inner.test; return 200 \"[$invalid_referer]\"; }
        location /re { valid_referers ~in; return 200 \"[$invalid_referer]\"; }
        }";

#[test]
fn referers() {
    let mut case = Case::http(REFERERS);
    let long = format!("http://www.example.org{}", "a".repeat(300));
    let x256 = format!("http://x{}", "a".repeat(255));
    let x257 = format!("http://x{}", "a".repeat(256));
    let referers = [
        "http://www.example.org",
        "http://www.example.org/uri",
        "https://WWW.example.ORG:80/uri/x",
        "http://www.example.org/ur",
        "http://www.example.org/Uri",
        "http://example.org",
        "http://example.net/x",
        "http://a.b.example.org/",
        "http://a.example.net",
        "http://www.example.com",
        "http://www.example.",
        "http://example.org/a",
        "http://other.test/?example.org/a",
        "http://a.net",
        "http://a.net/",
        "http://localhost",
        "http://www.own.test/x",
        "http://a.wild.test",
        "http://wild.test",
        "http://dot.test",
        "http://a.dot.test",
        "http://tail.x",
        "http://re17",
        "http://re",
        "http://i.r",
        "ftp://www.example.org",
        "www.example.org",
        "HTTP://www.example.org",
        "http://inner.test",
        "http://out.test",
        "http:///",
        "x",
        "",
        "http://www.example.org?uri",
        &long,
        &x256,
        &x257,
    ];
    for location in ["none", "blocked", "absent", "host", "wild", "regex", "own", "group", "set"] {
        case = case.get(&format!("/{location}"));
        for referer in referers {
            case = case.ask(ask(&format!("/{location}"), &format!("Referer: {referer}\r\n")));
        }
    }
    case.run();
}

#[test]
fn referers_of_levels() {
    let mut case = Case::http(REFERERS);
    for target in ["/", "/in", "/re"] {
        for header in [
            "",
            "Referer: http://inner.test\r\n",
            "Referer: http://out.test/x\r\n",
            "Referer: http://other.tst\r\n",
            "Referer: http://within.tst\r\n",
            "Referer: http:///abcdef\r\n",
        ] {
            let exchange = clearway_testkit::Exchange::new(ask(target, header));
            case = case.exchange(exchange.to("127.0.0.1:%%PORT2%%"));
        }
    }
    case.run();
}

const LINKS: &str = "server { listen %%PORT%%;
        location /md5 { secure_link $arg_h; secure_link_md5 \"secret\";
            return 200 \"[$secure_link][$secure_link_expires]\"; }
        location /expires { secure_link $arg_h,$arg_e; secure_link_md5 \"$secure_link_expires$uri\";
            return 200 \"[$secure_link][$secure_link_expires]\"; }
        location /list { secure_link $arg_h; secure_link_md5 \"$secure_link_expires$uri\";
            return 200 \"[$secure_link][$secure_link_expires]\"; }
        location /half { secure_link $arg_h; return 200 \"[$secure_link]\"; }
        location /old { secure_link_secret secret; return 200 \"[$secure_link][$secure_link_expires]\";
            location /old/in { return 200 \"in [$secure_link]\"; }
            location /old/new { secure_link $arg_h; secure_link_md5 secret;
                return 200 \"new [$secure_link]\"; } }
        location /if { secure_link_secret secret; if ($secure_link = '') { return 403; }
            rewrite ^ /got/$secure_link; }
        location /got { return 200 $uri; }
        }";

#[test]
fn links() {
    // The MD5 of `secret`, of `1000000000/expires`, of `4000000000/expires`, of `4000000000/list` and of
    // `linksecret`, `a/b?csecret`.
    let targets = [
        "/md5",
        "/md5?h=",
        "/md5?h=Xr4ilOzQ4PCOq3aQ0qbuaQ",
        "/md5?h=Xr4ilOzQ4PCOq3aQ0qbuaQ==",
        "/md5?h=Xr4ilOzQ4PCOq3aQ0qbuaR",
        "/md5?h=Xr4ilOzQ4PCOq3aQ0qbua",
        "/md5?h=Xr4ilOzQ4PCOq3aQ0qbuaQ===",
        "/md5?h=Xr4ilOzQ4PCOq3aQ0qbuaQ,4000000000",
        "/md5?h=Xr4ilOzQ4PCOq3aQ0qbuaQ,1000000000",
        "/md5?h=Xr4ilOzQ4PCOq3aQ0qbuaQ,0",
        "/md5?h=Xr4ilOzQ4PCOq3aQ0qbuaQ,x",
        "/md5?h=Xr4ilOzQ4PCOq3aQ0qbuaQ,",
        "/md5?h=Xr4ilOzQ4PCOq3aQ0qbuaQ,-1",
        "/md5?h=Xr4ilOzQ4PCOq3aQ0qbuaQ,1,1",
        "/md5?h=+/+/",
        "/expires?h=EXPIRED&e=1000000000",
        "/expires?h=VALID&e=4000000000",
        "/expires?h=VALID&e=4000000001",
        "/expires",
        "/expires?e=17",
        "/list?h=LISTED,4000000000",
        "/half?h=Xr4ilOzQ4PCOq3aQ0qbuaQ",
        "/old/HASH1/link",
        "/old/HASH1/link?",
        "/old/HASH2/a/b?c",
        "/old/HASH2/a/b",
        "/old/HASH1",
        "/old/HASH1/",
        "/old/in/HASH1/link",
        "/old/in",
        "/old/new?h=Xr4ilOzQ4PCOq3aQ0qbuaQ",
        "/if/HASH1/link",
        "/if/x/link",
        "/if/HASH1/other",
        "/old//HASH1/link",
        "/old/zz/link",
    ];
    let mut case = Case::http(LINKS);
    for target in targets {
        let target = target
            .replace("EXPIRED", "B-O5bvlJb81AWVeIDJ7Xlw")
            .replace("VALID", "wvzdctBedx4xpSnpSDho1A")
            .replace("LISTED", "ezuAtocIIxB_pKj--j5hSQ");
        let target = target
            .replace("HASH1", "5e814704a28d9bc1914ff19fa0c4a00a")
            .replace("HASH2", "d9b94e10e7bbf5d75cd5e1b4d8205253");
        case = case.get(&target);
    }
    case.run();
}

const BROWSERS: &str = "server { listen %%PORT%%;
            location / { return 200 \"[$msie][$modern_browser][$ancient_browser]\"; }
        location /listed { modern_browser msie 5.5; modern_browser gecko 1.0; modern_browser safari 125.2;
            return 200 \"[$msie][$modern_browser][$ancient_browser]\"; }
        location /all { modern_browser opera 8.0; modern_browser konqueror 3.4; modern_browser MSIE 6.0;
            modern_browser unlisted; ancient_browser netscape4 Lynx \"Old Thing\"; ancient_browser_value old;
            modern_browser_value new; return 200 \"[$msie][$modern_browser][$ancient_browser]\";
            location /all/in { modern_browser_value newer;
                return 200 \"[$modern_browser][$ancient_browser]\"; }
            location /all/none { ancient_browser Thing;
                return 200 \"[$modern_browser][$ancient_browser]\"; } }
        location /unlisted { modern_browser unlisted; return 200 \"[$modern_browser][$ancient_browser]\"; }
        location /set { set $msie 2; return 200 \"$msie\"; }
        }";

#[test]
fn browsers() {
    let agents = [
        "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)",
        "Mozilla/4.0 (compatible; MSIE 5.5; Windows NT)",
        "Mozilla/4.0 (compatible; MSIE 5.01; Windows NT)",
        "Mozilla/4.0 (compatible; MSIE 6.0; X11) Opera 7.50",
        "Opera/9.01 (X11; FreeBSD 6 i386; U; en)",
        "Mozilla/5.0 (X11; FreeBSD i386; U) Opera 7.50  [en]",
        "Mozilla/5.0 (X11; U; Linux i686; en-US; rv:1.0.0) Gecko/20020610",
        "Mozilla/5.0 (X11; U; Linux i686; en-US; rv:0.9.4) Gecko/20020610",
        "Mozilla/5.0 (Macintosh; U) AppleWebKit/125.2 (KHTML, like Gecko) Safari/125.7",
        "Mozilla/5.0 (Macintosh; U) AppleWebKit/125.2 (KHTML, like Gecko) Safari/124",
        "Mozilla/5.0 (compatible; Konqueror/3.4; Linux) KHTML/3.4.2 (like Gecko)",
        "Mozilla/5.0 (compatible; Konqueror/3.1; Linux)",
        "Mozilla/4.72 [en] (X11; U)",
        "Mozilla/4.72 x",
        "Mozilla/4.7",
        "Mozilla/0.9 something",
        "Lynx/2.8",
        "An Old Thing",
        "curl/8",
        "MSIE 6.0",
        "MSIE 6.0x",
        "Opera",
        "Opera ",
        "Opera 8",
        "Opera/8.0.0.1",
        "Opera/x",
        "",
    ];
    let mut case = Case::http(BROWSERS);
    for target in ["/", "/listed", "/all", "/all/in", "/all/none", "/unlisted", "/set"] {
        case = case.get(target);
        for agent in agents {
            case = case.ask(ask(target, &format!("User-Agent: {agent}\r\n")));
        }
    }
    case.run();
}

const COOKIES: &str = "map $arg_r $uid_reset { default 0; log log; some some; }
        server { listen %%PORT%%; userid log; add_header X-Got $uid_got;
        location /log { }
        location /off { userid off; }
        location /marked { userid on; userid_mark k; add_header X-Set $uid_set; }
        location /all { userid on; userid_mark =; userid_name Name; userid_domain example.test;
            userid_path /x;
            userid_expires max; userid_p3p \"policyref=x\"; userid_flags secure httponly samesite=lax; }
        location /strict { userid v1; userid_mark 1; userid_flags samesite=strict; userid_p3p none;
            userid_domain none; userid_expires off; }
        location /none { userid on; userid_mark 1; userid_flags samesite=none;
            location /none/off { userid_flags off; } location /none/in { userid_path /in; } }
        location /same { userid on; }
        location /missing { userid on; userid_mark k; }
        }";

#[test]
fn cookies_that_are_known() {
    let mut case = Case::http(COOKIES);
    for name in ["log", "off", "marked", "all", "strict", "none/x", "none/off", "none/in", "same"] {
        case = case.file(&format!("html/{name}"), "file");
        for cookie in [
            "uid=fwAAAWVF0ZkAAAABAwMDAgA=",
            "uid=fwAAAWVF0ZkAAAABAwMDAk==",
            "uid=fwAAAWVF0ZkAAAABAwMDAkk=",
            "Name=fwAAAWVF0ZkAAAABAwMDAg1=; uid=fwAAAWVF0ZkAAAABAwMDAg==",
            "a=b; UID=fwAAAWVF0ZkAAAABAwMDAg",
            "name=fwAAAWVF0ZkAAAABAwMDAg==; uid=fwAAAWVF0ZkAAAABAwMDAg==",
        ] {
            let known = name != "all" || cookie.to_ascii_lowercase().starts_with("name");
            if known {
                case = case.ask(ask(&format!("/{name}"), &format!("Cookie: {cookie}\r\n")));
            }
        }
    }
    // Those that are none: nothing is set, so that nothing differs from run to run.
    for cookie in ["uid=", "uid=short", "uid=!!!!!!!!!!!!!!!!!!!!!!", "uid=AAAAAAAAAAAAAAAAAAAAAA==", "x=y"] {
        case = case.ask(ask("/log", &format!("Cookie: {cookie}\r\n")));
    }
    case.ask(ask("/missing", "Cookie: uid=fwAAAWVF0ZkAAAABAwMDAgA=\r\n")).get("/log").get("/off").run();
}

const MADE: &str =
    "server { listen %%PORT%%; listen unix:%%PREFIX%%/sock; userid on; add_header X-Set $uid_set;
        location /plain { } location /service { userid_service 65534; } location /mark { userid_mark k; }
        location /v1 { userid v1; userid_service 7; } location /time { userid_expires 1h; }
        location /page { error_page 404 =200 /plain; } }";

/// The bytes of the cookie, and its text.
fn made(server: &Server, target: &str) -> (Vec<u8>, String) {
    let response = server.get(target);
    let cookie = response.header("set-cookie").expect("a cookie is set").to_owned();
    let value = cookie.strip_prefix("uid=").expect("it has the default name");
    let bytes = decode(&value.as_bytes()[..22], Alphabet::Standard).expect("it is base64");
    let hex: String = bytes
        .chunks(4)
        .map(|word| format!("{:08X}", u32::from_ne_bytes(word.try_into().expect("four bytes"))))
        .collect();
    assert_eq!(response.header("x-set"), Some(&*format!("uid={hex}")));
    (bytes, cookie)
}

/// What cannot be compared, as it differs from one request to the next.
#[test]
fn cookies_that_are_made() {
    for binary in Binary::expected_alike() {
        let mut setup = Setup::http(binary, MADE);
        for name in ["plain", "service", "mark", "v1", "time"] {
            setup = setup.file(&format!("html/{name}"), "file");
        }
        let server = setup.start();
        let (first, cookie) = made(&server, "/plain");
        assert_eq!(first[..4], [127, 0, 0, 1]);
        assert_eq!(cookie[26..], *"==; path=/");
        let (second, _) = made(&server, "/plain");
        assert_eq!(first[8..12], second[8..12], "the same process");
        assert_ne!(first[12..], second[12..], "another visitor");
        assert_eq!(made(&server, "/service").0[..4], [0, 0, 255, 254]);
        assert_eq!(made(&server, "/v1").0[..4], 7_u32.to_ne_bytes());
        assert_eq!(made(&server, "/mark").1[26..], *"k=; path=/");
        assert!(made(&server, "/time").1.contains("; expires="));
        made(&server, "/page");
    }
}
