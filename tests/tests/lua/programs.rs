//! Programs beside the server (`ngx.pipe`): what goes through their pipes, how they end, and that they end
//! with what has started them.

use clearway_testkit::client::PATIENCE;
use clearway_testkit::wait_until;

use super::{ask, check, server};

const LOADED: &str = "init_by_lua_block { spawn = require('ngx.pipe').spawn }";

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn what_programs_read_and_write() {
    let server = server(
        LOADED,
        "location = /reads { content_by_lua_block {
             local p = assert(spawn('printf \"one\\r\\ntwothree\"; sleep 0.05; echo; printf rest'))
             ngx.print(p:stdout_read_line(), ' ', p:stdout_read_bytes(3), ' ', p:stdout_read_any(2), ' ',
                 p:stdout_read_line(), ' ', p:stdout_read_all(), ' ', #p:stdout_read_all(), ' ')
             local data, err, part = p:stdout_read_line()
             ngx.print(tostring(data), ' ', err, ' ', #part, ' ', tostring(p:wait())) } }
         location = /writes { content_by_lua_block {
             local p = assert(spawn({'cat'}))
             ngx.print(p:write('a'), p:write({'bc', 'd'}), p:write(1), ' ', p:shutdown('stdin'), ' ',
                 p:stdout_read_all(), ' ', select(2, p:write('x'))) } }
         location = /large { content_by_lua_block {
             local p, text = assert(spawn({'cat'}, {buffer_size = 1000})), ('x'):rep(1048576)
             local t = ngx.thread.spawn(function() local n = p:write(text) p:shutdown('stdin') return n end)
             local data = p:stdout_read_all()
             local _, written = ngx.thread.wait(t)
             ngx.print(written, ' ', #data) } }
         location = /errors { content_by_lua_block {
             local p = assert(spawn('echo out; echo err >&2; exit 3'))
             ngx.print(p:stdout_read_all(), p:stderr_read_line(), ' ', tostring(p:wait()), ' ')
             p = assert(spawn('echo out; echo err >&2', {merge_stderr = true}))
             local _, err = p:stderr_read_all()
             ngx.print(p:stdout_read_all(), err, ' ')
             p = assert(spawn('echo $A-$HOME', {environ = {'A=1'}}))
             ngx.print(p:stdout_read_line()) } }
         location = /refused { content_by_lua_block {
             local p = assert(spawn({'sleep', '100'}, {stdout_read_timeout = 20, wait_timeout = 20}))
             ngx.print(select(2, p:stdout_read_all()), ' ', select(2, p:wait()), ' ')
             p:set_timeouts(nil, 10000)
             local t = ngx.thread.spawn(function() return select(2, p:stdout_read_all()) end)
             ngx.print(select(2, p:stdout_read_all()), ' ')
             p:shutdown('stdout')
             local _, aborted = ngx.thread.wait(t)
             ngx.print(aborted, ' ', select(2, p:stdout_read_all()), ' ', select(2, p:kill(999)), ' ')
             ngx.print(tostring(p:kill(15)), ' ')
             local ok, reason, status = p:wait()
             ngx.print(tostring(ok), ' ', reason, ' ', status, ' ')
             ngx.print(select(2, p:wait()), ' ', select(2, p:kill(9))) } }
         location = /missing { content_by_lua_block {
             local p = assert(spawn({'/no/such/program'}))
             local ok, reason, status = p:wait()
             ngx.print(tostring(ok), ' ', reason, ' ', status, ' ', select(2, p:stdout_read_all()), ' ',
                 select(2, p:wait())) } }",
    );
    check(
        &server,
        &[
            ("/reads", 200, "one two th ree rest 0 nil closed 0 true"),
            ("/writes", 200, "131 true abcd1 closed"),
            ("/large", 200, "1048576 1048576"),
            ("/errors", 200, "out\nerr false out\nerr\nmerged to stdout 1-"),
            (
                "/refused",
                200,
                "timeout timeout pipe busy reading aborted closed invalid signal true false signal 15 \
                 exited exited",
            ),
            ("/missing", 200, "false exit 1 closed exited"),
        ],
    );
    server.wait_log(
        "logs/error.log",
        "execvp() failed while executing /no/such/program (2: No such file or directory)",
    );
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn programs_end_with_their_request() {
    let server = server(
        LOADED,
        "location = /begin { content_by_lua_block {
             kept = assert(spawn({'sleep', '1000'}))
             ngx.print(kept:pid()) } }
         location = /lost { content_by_lua_block {
             local pid = assert(spawn({'sleep', '1000'})):pid()
             collectgarbage() collectgarbage()
             ngx.print(pid) } }
         location = /many { content_by_lua_block {
             for _ = 1, 20 do assert(spawn({'true'})):wait() end
             ngx.print('ok') } }",
    );
    let is_gone = |pid: &str| !std::path::Path::new(&format!("/proc/{pid}")).exists();
    for path in ["/begin", "/lost"] {
        let (status, pid) = ask(&server, path);
        assert_eq!(status, 200, "{pid}");
        assert!(wait_until(PATIENCE, || is_gone(&pid)), "{path}: {pid} is there, or was not waited for");
    }
    check(&server, &[("/many", 200, "ok")]);
}
