//! SSI: documents with commands, and what they include.

use clearway_testkit::{Case, Exchange};

const SERVER: &str = "ssi on; ssi_value_length 300; default_type text/html;
    map $arg_m $mapped { default m-$arg_m; none ''; }
    server { listen %%PORT%%; set $own value; error_page 403 /403.html;
    location / { }
    location = /return { return 200 'returned $args $request_uri $uri|'; }
    location = /var { set $own changed; return 200 '$own'; }
    location = /empty { return 200; }
    location = /nothing { return 204; }
    location = /missing { return 404 'custom 404'; }
    location = /refused { return 403; }
    location = /moved { return 302 /x; }
    location = /rewritten { rewrite ^ /inc/a.html; }
    location = /named { try_files /none @named; }
    location @named { return 200 'named $uri'; }
    location = /text { default_type text/plain; return 200 '<!--#echo var=\"uri\" -->'; }
    location = /internal { internal; return 200 'internal'; }
    location /off/ { ssi off; }
    location /silent/ { ssi_silent_errors on; }
    location /dated/ { ssi_last_modified on; }
    location /short/ { ssi_value_length 8; }
    location /types/ { ssi_types text/plain; types { text/plain txt; text/css css; } }
    }";

/// The documents, each asked for by itself.
fn compare(documents: &[&str]) {
    let mut case = Case::http(SERVER)
        .file("html/403.html", "403 of its own <!--#echo var='uri' -->")
        .file("html/inc/a.html", "a of <!--#echo var='uri' --> in <!--#echo var='request_uri' -->.")
        .file(
            "html/inc/b.html",
            "[<!--#include virtual='a.html' -->|<!--#include virtual='a.html' wait='yes' -->]",
        )
        .file("html/inc/set.html", "<!--#set var='inner' value='from within' --><!--#echo var='outer' -->")
        .file("html/inc/cycle.html", "<!--#include virtual='cycle.html' -->");
    for (number, document) in documents.iter().enumerate() {
        case = case.file(&format!("html/doc/{number}.html"), *document);
        case = case.get(&format!("/doc/{number}.html?q=1&m=x%20<y>"));
    }
    case.run();
}

#[test]
fn commands_are_executed() {
    compare(&[
        "nothing to do",
        "<!--#echo var='uri' -->|<!--#echo var=\"query_string\" -->|<!--#echo var='arg_q' -->",
        "<!--#echo var='none' -->|<!--#echo var='none' default='d' -->|<!--#echo var='none' default='' -->|",
        "<!--#echo var='own' -->|<!--#echo var='OWN' -->|<!--#echo var='mapped' -->|\
         <!--#echo var='http_host' -->",
        "<!--#echo var='arg_m' -->|<!--#echo var='mapped' encoding='url' -->|<!--#echo var='mapped' -->\
         |<!--#echo var='mapped' encoding='none' -->|<!--#echo var='mapped' encoding='entity' -->\
         |<!--#echo var='mapped' encoding='what' -->",
        "<!--#set var='a' value='1' --><!--#set var='B' value='$a-${own}-\\$a-\\\\-\\x-$arg_q' -->\
         <!--#echo var='b' -->|<!--#set var='a' value='' --><!--#echo var='a' -->|\
         <!--#echo var='A' default='x' -->",
        "<!--#set var='own' value='shadow' --><!--#echo var='own' -->",
        "<!--#config errmsg='[oops]' --><!--#bad --><!--#echo --><!--#config errmsg='-' --><!--#bad -->.",
        "<!--#config timefmt='%%|%Q' --><!--#echo var='date_gmt' -->|<!--#echo var='date_local' -->",
        "<!--#set var='x' value='${y' --><!--#set var='x' value='$' --><!--#set var='x' value='a$-b' -->.",
        "<!--#echo var='a' var='b' --><!--#echo what='x' var='a' --><!--#set var='x' --><!--# -->.",
        "<!--# echo\tvar = 'uri'\r\n--> <!-- #echo var='uri' --> <!--#echo var='uri'-->.",
        "<<!--#echo var='uri' --><!-<!--#echo var='uri' --><!--<!--#echo var='uri' -->",
        "<!--#echo var='uri' --",
        "a<!--#",
        "a<!-",
        "<!--#echo var='uri' - --> x --> <!--#echo var=uri --> <!--#echo var-->y--> z",
        "<!--#echo var='unclosed --> <!--#echo var=\"uri\" --> ' -->.",
        "<!--#aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa -->.\
         <!--#echo bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb='' -->.",
        "",
    ]);
}

#[test]
fn conditions_are_judged() {
    let mut documents = Vec::new();
    for expr in [
        "$own",
        "$none",
        "$own=value",
        "$own = value",
        "$own != value",
        "$own=Value",
        "$OWN = value",
        "$own = /^v(al)(?P<rest>.*)$/",
        "$own != /x/",
        "$own = /x",
        "$own = /(/",
        "$own =\\/x",
        "$own ~ x",
        "$own = $own",
        "\\$own = \\$own",
        "A = a",
        "a=",
        "=",
        "",
        "$arg_q = 1",
        "${own}x = valuex",
        "a b",
        "$own = '/value/'",
        "'a' = 'a'",
        "$own=/VALUE/",
        "$own = /(x)?value(y)?/",
    ] {
        documents.push(format!(
            "<!--#if expr=\"{expr}\" -->yes $0:<!--#echo var='0' --> $1:<!--#echo var='1' --> \
             $2:<!--#echo var='2' --> <!--#echo var='rest' --><!--#elif expr='$own' -->elif<!--#else -->\
             no<!--#endif -->|<!--#echo var='1' -->"
        ));
    }
    for document in [
        "<!--#if expr='x' -->a<!--#else -->b<!--#else -->c<!--#endif -->d<!--#endif -->e",
        "<!--#else -->a<!--#elif expr='x' -->b<!--#endif -->c",
        "<!--#if expr='' -->a<!--#elif expr='' -->b<!--#elif expr='1' -->c<!--#elif expr='1' -->d\
         <!--#else -->e\
         <!--#endif -->f",
        "<!--#if expr='' -->a<!--#else -->b<!--#elif expr='1' -->c<!--#endif -->d",
        "<!--#if expr='1' -->a<!--#if expr='1' -->b<!--#endif -->c<!--#endif -->d",
        "<!--#if expr='' -->a<!--#if expr='1' -->b<!--#endif -->c<!--#endif -->d",
        "<!--#if expr='' --><!--#echo var='uri' --><!--#bad --><!--#set var='own' value='x' -->\
         <!--#include virtual='/inc/a.html' --><!--#endif --><!--#echo var='own' -->",
        "<!--#if expr='1' -->never closed",
        "<!--#if -->a<!--#endif -->b",
    ] {
        documents.push(document.to_owned());
    }
    compare(&documents.iter().map(|document| &document[..]).collect::<Vec<_>>());
}

#[test]
fn documents_are_included() {
    compare(&[
        "1<!--#include virtual='/inc/a.html' -->2<!--#include virtual='/inc/b.html?x=y' -->3",
        "<!--#include virtual='../doc/../inc/a.html' --><!--#include virtual='/inc/..' -->.",
        "<!--#include virtual='?x' --><!--#include virtual='/%69nc/a%2ehtml' -->",
        "<!--#include virtual='/inc/%2e%2e/x' --><!--#include virtual='0.html' -->.",
        "<!--#include file='/inc/a.html' -->|<!--#include file='/inc/b.html' -->",
        "<!--#include virtual='/return?a=$arg_q&b=$own' -->",
        "<!--#include virtual='/var' -->|<!--#echo var='own' -->|<!--#include virtual='/var' wait='yes' -->\
         |<!--#echo var='own' -->",
        "<!--#set var='outer' value='o' --><!--#include virtual='/inc/set.html' wait='yes' -->|\
         <!--#echo var='inner' -->",
        "<!--#include virtual='/missing' -->|<!--#include virtual='/none' -->|\
         <!--#include virtual='/refused' -->",
        "<!--#include virtual='/moved' -->|<!--#include virtual='/rewritten' -->|\
         <!--#include virtual='/named' -->",
        "<!--#include virtual='/text' -->|<!--#include virtual='/internal' -->|\
         <!--#include virtual='/off/a' -->",
        "<!--#include virtual='/inc' -->|<!--#include virtual='/inc/' -->",
        "<!--#include virtual='/empty' -->|<!--#include virtual='/nothing' -->|",
        "<!--#include virtual='/return' set='x' -->|<!--#echo var='x' encoding='none' -->|<!--#include \
         virtual='/missing' set='x' -->|<!--#echo var='x' -->|<!--#include virtual='/missing' set='y' -->\
         <!--#echo var='y' default='z' -->|",
        "<!--#set var='x' value='old' --><!--#include virtual='/refused' set='x' --><!--#echo var='x' -->|\
         <!--#include virtual='/inc/b.html' set='x' --><!--#echo var='x' -->",
        "<!--#block name='one' -->stub <!--#echo var='uri' -->|<!--#include virtual='/return' -->\
         <!--#endblock -->\
         <!--#include virtual='/empty' stub='one' -->1<!--#include virtual='/missing' stub='one' -->2\
         <!--#include virtual='/none' stub='one' -->3<!--#include virtual='/return' stub='one' -->4\
         <!--#include virtual='/refused' stub='one' -->5",
        "<!--#include virtual='/empty' stub='none' --><!--#block -->x<!--#endblock -->",
        "<!--#include --><!--#include virtual='/return' file='/x' --><!--#include file='/x' wait='yes' -->\
         <!--#include virtual='/x' wait='maybe' --><!--#include virtual='/x' set='a' stub='b' -->",
        "<!--#include virtual='/inc/cycle.html' -->.",
        "<!--#include virtual='self.html",
    ]);
}

#[test]
fn a_block_stands_in_for_each_empty_answer() {
    let document = "<!--#block name='one' -->stub<!--#endblock -->\
                    <!--#include virtual='/empty' stub='one' -->1\
                    <!--#include virtual='/nothing' stub='one' -->2";
    let reason = "nginx 1.31 sends a block twice from the second time on that it stands in";
    let shown = Exchange::new("GET /block.html HTTP/1.1\r\nHost: a\r\n\r\n");
    Case::http(SERVER)
        .file("html/block.html", document)
        .exchange(shown.unlike_nginx("\n\nstub1stub2\n", reason))
        .run();
}

/// nginx looks at the byte behind an empty name: sometimes it means the directory, sometimes it is refused.
#[test]
fn an_empty_name_is_refused() {
    let asked = Exchange::new("GET /nameless.html HTTP/1.1\r\nHost: a\r\n\r\n");
    let refused = "\n\n<[an error occurred while processing the directive]>\n";
    Case::http(SERVER)
        .file("html/nameless.html", "<<!--#include virtual='' -->>")
        .exchange(asked.unlike_nginx(refused, "nginx looks at the byte behind an empty name"))
        .run();
}

#[test]
fn directives_say_where() {
    let document = "<!--#bad -->|<!--#echo var='uri' -->|<!--#echo var='remote_addr' -->";
    let mut case = Case::http(SERVER);
    for target in
        ["off/a.html", "silent/a.html", "short/a.html", "types/a.txt", "types/a.css", "types/a.html"]
    {
        case = case.file(&format!("html/{target}"), document).get(&format!("/{target}"));
    }
    case.file("html/dated/a.html", document)
        .file("html/post.html", "<!--#include virtual='/return' --><!--#echo var='request_method' -->")
        .get("/dated/a.html")
        .ask("HEAD /silent/a.html HTTP/1.1\r\nHost: a\r\n\r\n")
        .ask("GET /silent/a.html HTTP/1.0\r\nHost: a\r\n\r\n")
        .ask("GET /silent/a.html HTTP/1.1\r\nHost: a\r\nRange: bytes=0-3\r\n\r\n")
        .ask("POST /post.html HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
        .get("/internal")
        .run();
}

#[test]
fn large_documents_stay_in_order() {
    let filler = "0123456789abcdef".repeat(40);
    let mut document = String::new();
    for number in 0..300 {
        document.push_str(&filler[..number + 7]);
        document.push_str(&format!("<!--#set var='n' value='{number}' --><!--#echo var='n' -->"));
        match number % 5 {
            0 => document.push_str("<!--#include virtual='/inc/large.txt' -->"),
            1 => document.push_str("<!--#include virtual='/inc/small.html' wait='yes' -->"),
            2 => document.push_str("<!--#include virtual='/inc/nested.html?$n' -->"),
            3 => document.push_str("<!--#include virtual='/inc/small.html' set='s' --><!--#echo var='s' -->"),
            _ => {}
        }
    }
    let config = "ssi on; default_type text/plain; types { text/html html; }
        server { listen %%PORT%%; subrequest_output_buffer_size 8k;
        location /slow { limit_rate 10m; alias html; } location /sent { sendfile on; alias html; } }";
    Case::http(config)
        .file("html/doc.html", document)
        .file("html/inc/large.txt", "large ".repeat(20_000))
        .file("html/inc/small.html", "small <!--#echo var='n' --> <!--#echo var='uri' -->")
        .file(
            "html/inc/nested.html",
            "(<!--#include virtual='small.html' -->,<!--#include virtual='large.txt' -->)",
        )
        .get("/slow/doc.html")
        .get("/sent/doc.html")
        .get("/doc.html")
        .ask("GET /doc.html HTTP/1.0\r\n\r\n")
        .run();
}

#[test]
fn nested_as_deep_as_in_nginx() {
    let config = "server { listen %%PORT%%; root %%PREFIX%%/site; ssi on; \
                  location = /two.html { mirror /x; } location = /x { return 204; } }";
    Case::http(config)
        .file("site/cycle.html", "<<!--#include virtual='/cycle.html' -->>")
        .file("site/one.html", "[<!--#include virtual='/cycle.html' -->]")
        .file("site/two.html", "[<!--#include virtual='/one.html' --><!--#include virtual='/one.html' -->]")
        .get("/cycle.html")
        .get("/one.html")
        .get("/two.html")
        .run();
}
