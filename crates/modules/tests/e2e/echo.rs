//! The echo and headers-more modules, over sockets.

use clearway_http::{Module, POSTPONE};
use clearway_modules::content::echo::ECHO;
use clearway_modules::filters::headers_more::HEADERS_MORE;

use crate::support::Site;

const MODULES: [&Module; 3] = [&ECHO, &HEADERS_MORE, &POSTPONE];

fn site(locations: &str) -> Site {
    Site::start_with(&format!("default_type text/plain; server {{ listen PORT; {locations} }}"), &MODULES)
}

/// The body, put together from its chunks.
fn body(response: &str) -> String {
    let (head, mut rest) = response.split_once("\r\n\r\n").expect(response);
    if !head.contains("chunked") {
        return rest.to_owned();
    }
    let mut body = String::new();
    while let Some((len, behind)) = rest.split_once("\r\n") {
        let len = usize::from_str_radix(len, 16).expect(rest);
        body.push_str(&behind[..len]);
        rest = behind[len..].trim_start_matches("\r\n");
    }
    body
}

#[test]
fn texts_are_said_as_echo_says_them() {
    let site = site(
        "location /two { echo hello $arg_x; echo -n world; }
         location /none { echo; }
         location /dashes { echo -- -n x; }
         location /many { echo_duplicate 3 ab; echo_duplicate 1_0 x; }
         location /status { echo_status 418; echo tea; }
         location /if { echo plain; if ($arg_x) { echo_status 404; } }
         location /bad { echo_duplicate x y; }
         location /abort { echo_abort_parent; }",
    );
    assert_eq!(body(&site.get("/two?x=you")), "hello you\nworld");
    assert_eq!(body(&site.get("/none")), "\n");
    assert_eq!(body(&site.get("/dashes")), "-n x\n");
    assert_eq!(body(&site.get("/many")), "abababxxxxxxxxxx");
    let tea = site.get("/status");
    assert!(tea.starts_with("HTTP/1.1 418 ") && tea.contains("Content-Type: text/plain\r\n"), "{tea}");
    assert_eq!(body(&tea), "tea\n");
    let answer = site.get("/if?x=1");
    assert!(answer.starts_with("HTTP/1.1 404 ") && body(&answer) == "plain\n", "{answer}");
    assert!(site.get("/bad").starts_with("HTTP/1.1 500 "));
    site.expect_logged("invalid size specified: \"x\"");
    assert!(site.get("/abort").starts_with("HTTP/1.1 500 "));
}

#[test]
fn loops_pauses_and_variables() {
    let site = site(
        "location /each { echo_foreach_split ',' $arg_list; echo \"[$echo_it]\"; echo_end; echo end; }
         location /nested { echo_foreach_split , a; echo_foreach_split , b; echo_end; echo_end; }
         location /end { echo_end; }
         location /slow { echo first; echo_flush; echo_sleep 0.02; echo_blocking_sleep 0.01;
             echo $echo_timer_elapsed; }
         location /reset { echo_sleep 0.05; echo_reset_timer; echo $echo_timer_elapsed; }
         location /long { echo_sleep soon; }
         location /count { echo $echo_incr $echo_incr; echo $echo_request_method $echo_request_uri; }
         location /head { echo -n $echo_client_request_headers; }",
    );
    assert_eq!(body(&site.get("/each?list=a,,b")), "[a]\n[b]\nend\n");
    assert_eq!(body(&site.get("/each?list=,")), "end\n");
    assert!(site.get("/nested").starts_with("HTTP/1.1 500 "));
    site.expect_logged("Nested echo_foreach not supported yet.");
    assert!(site.get("/end").starts_with("HTTP/1.1 500 "));
    let slow = body(&site.get("/slow"));
    let elapsed: f64 = slow.strip_prefix("first\n").and_then(|text| text.trim().parse().ok()).expect(&slow);
    assert!(elapsed >= 0.03, "{slow}");
    let reset: f64 = body(&site.get("/reset")).trim().parse().unwrap();
    assert!(reset < 0.05, "{reset}");
    assert!(site.get("/long").starts_with("HTTP/1.1 500 "));
    site.expect_logged("invalid sleep duration \"soon\"");
    assert_eq!(body(&site.get("/count?a=b")), "1 2\nGET /count?a=b\n");
    let head = body(&site.get("/head"));
    assert_eq!(head, "GET /head HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
}

#[test]
fn other_locations_are_put_into_the_body() {
    let site = site(
        "location /both { echo before; echo_location /sub x=1; echo between; echo_location /sub?x=2;
             echo after; }
         location /async { echo_location_async /slow; echo_location_async /sub; echo end; }
         location /sub { echo \"sub $args\"; }
         location /slow { echo_sleep 0.02; echo slow; }
         location /exec { echo_exec /sub a=b; }
         location /named { echo_exec @other; }
         location @other { echo named; }
         location /unsafe { echo_exec /../x; }
         location /around { echo_before_body -- top; echo_after_body bottom; return 200 \"middle\\n\"; }",
    );
    assert_eq!(body(&site.get("/both")), "before\nsub x=1\nbetween\nsub x=2\nafter\n");
    assert_eq!(body(&site.get("/async")), "slow\nsub \nend\n");
    assert_eq!(body(&site.get("/exec")), "sub a=b\n");
    assert_eq!(body(&site.get("/named")), "named\n");
    assert!(site.get("/unsafe").starts_with("HTTP/1.1 500 "));
    assert_eq!(body(&site.get("/around")), "top\nmiddle\nbottom\n");
}

#[test]
fn the_body_of_the_request_comes_back() {
    let site = site(
        "location /read { echo_read_request_body; echo_request_body; echo [$echo_request_body]; }
         location /unread { echo_request_body; echo done; }",
    );
    let post = |path: &str| {
        let mut client = site.connect();
        client.send(&format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"
        ));
        body(&String::from_utf8(client.read_to_end()).unwrap())
    };
    assert_eq!(post("/read"), "hello[hello]\n");
    assert_eq!(post("/unread"), "done\n");
}

#[test]
fn lines_of_heads_are_set_and_cleared() {
    let site = site(
        "more_set_headers 'X-Outer: outer';
         location /set { more_set_headers 'Server: mine' 'X-Var: $arg_v' 'Content-Type: text/x'; echo ok; }
         location /clear { more_clear_headers Server Date 'X-*'; echo ok; }
         location /some { more_set_headers -s '404 500' -t text/html 'X-Some: yes'; return 404; }
         location /others { more_set_headers -s 500 'X-Some: yes'; return 404; }
         location /append { more_set_headers -a 'X-Outer: second'; echo ok; }",
    );
    let set = site.get("/set?v=1");
    for line in ["Server: mine\r\n", "X-Var: 1\r\n", "Content-Type: text/x\r\n", "X-Outer: outer\r\n"] {
        assert!(set.contains(line), "{set}");
    }
    assert_eq!(set.matches("Server:").count(), 1, "{set}");
    let clear = site.get("/clear");
    assert!(!clear.contains("Server:") && !clear.contains("Date:") && !clear.contains("X-Outer"), "{clear}");
    assert!(site.get("/some").contains("X-Some: yes\r\n"));
    assert!(!site.get("/others").contains("X-Some"));
    assert_eq!(site.get("/append").matches("X-Outer: ").count(), 2);
}
