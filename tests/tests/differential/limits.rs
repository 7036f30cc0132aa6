//! `limit_req` and `limit_conn` where a request makes subrequests or is redirected: it is counted once.

use clearway_testkit::Case;

#[test]
fn a_request_with_its_subrequests_is_counted_once() {
    let config = "limit_req_zone $arg_key zone=one:64k rate=1r/m;
        limit_conn_zone $arg_key zone=now:64k;
        server { listen %%PORT%%; default_type text/html;
        location /page/ { ssi on; alias html/; }
        location /limited/ { ssi on; alias html/; limit_req zone=one; limit_conn now 1; }
        location /part { limit_req zone=one; limit_conn now 1;
                         return 200 \"<$limit_req_status $limit_conn_status>\"; }
        location /asked/ { auth_request /part; error_page 404 /part?key=d; }
        }";
    let parts = |key: &str| {
        format!(
            "<!--#include virtual=\"/part?key={key}\" wait=\"yes\" -->
            <!--#include virtual=\"/part?key={key}\" wait=\"yes\" -->
            <!--#echo var=\"limit_req_status\" --> <!--#echo var=\"limit_conn_status\" -->"
        )
    };
    Case::http(config)
        .file("html/a.html", parts("a"))
        .file("html/b.html", parts("b"))
        .file("html/c.html", parts("c"))
        .get("/page/a.html")
        .get("/page/a.html")
        .get("/part?key=a")
        .get("/limited/b.html?key=b")
        .get("/limited/b.html?key=b")
        .get("/limited/c.html")
        .get("/limited/c.html?key=c")
        .get("/asked/x?key=d")
        .get("/asked/x?key=d")
        .run();
}
