//! `lua report`: code that computes over large texts, makes garbage, and calls a library in C whose sockets
//! block; then what the reports of the server say of it.

use std::net::TcpListener;
use std::time::Duration;

use clearway_testkit::{Server, wait_until};

use super::{under_test, verdict};
use crate::args::Args;
use crate::servers::{self, User, config};

/// Of 100 samples, how many are to have a line of Lua.
const WITH_LUA_MIN: f64 = 95.0;

/// `%%SILENT%%` is the port of a server that accepts and says nothing.
const CODE: &str = "
    local ffi = require \"ffi\"
    pcall(ffi.cdef, [[
        int socket(int domain, int type, int protocol);
        int connect(int fd, const void *address, unsigned int len);
        long recv(int fd, void *data, size_t len, int flags);
        int setsockopt(int fd, int level, int name, const void *value, unsigned int len);
        int close(int fd);
    ]])
    MODE
    local function digests(count)
        local text = string.rep(\"x\", 200000)
        for i = 1, count do digest = ngx.md5(text .. i) end
    end
    local function sums(count)
        local sum = 0
        for i = 1, count do sum = sum + i % 7 end
        return sum
    end
    local function garbage(count)
        for i = 1, count do
            local t = {}
            for j = 1, 10000 do t[j] = { j } end
            collectgarbage()
        end
    end
    local function receive()
        local fd = ffi.C.socket(2, 1, 0)
        local address = ffi.new(\"uint8_t[16]\", { 2, 0, %%HIGH%%, %%LOW%%, 127, 0, 0, 1 })
        ffi.C.connect(fd, address, 16)
        local timeout = ffi.new(\"long[2]\", { 0, 200000 })
        ffi.C.setsockopt(fd, 1, 20, timeout, 16)
        ffi.C.recv(fd, ffi.new(\"char[16]\"), 16, 0)
        ffi.C.close(fd)
    end
    digests(400) sums(ROUNDS) garbage(20) receive()
    ngx.say(\"done\")";

pub(super) fn command(mut args: Args) -> Result<(), String> {
    let requests: usize = args.take("requests", 5)?;
    args.finish()?;
    let silent = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let port = silent.local_addr().map_err(|error| error.to_string())?.port();
    let (binary, main) = under_test();
    let mut promises = Vec::new();
    for (name, mode, rounds) in
        [("compiled", "", "3e7"), ("interpreted", "jit.off(true, true) jit.off()", "1e7")]
    {
        let code = CODE
            .replace("MODE", mode)
            .replace("ROUNDS", rounds)
            .replace("%%HIGH%%", &(port >> 8).to_string())
            .replace("%%LOW%%", &(port & 255).to_string());
        let locations = format!("location /work {{ content_by_lua_block {{{code}}} }}");
        let text =
            config(1, &format!("{main}\nstall_report_after 100ms; stall_report_rate 1000r/s;"), &locations)
                .replace("error.log error;", "error.log info;");
        let server = servers::start(&binary, &text, User::Same, None);
        for _ in 0..requests {
            if server.get("/work").status != 200 {
                return Err(format!("{name}: the workload failed: {}", server.error_log()));
            }
        }
        let log = reports(&server, requests);
        promises.extend(judge(name, &log, requests));
    }
    verdict(&promises)
}

/// The lines of all reports.
fn reports(server: &Server, count: usize) -> Vec<String> {
    let lines = || -> Vec<String> {
        let log = server.error_log();
        log.lines().filter_map(|line| Some(line.split_once("stall ")?.1.to_owned())).collect()
    };
    wait_until(Duration::from_secs(20), || {
        lines().iter().filter(|line| line.contains(" held its thread for ")).count() >= count
    });
    lines()
}

fn judge(name: &str, lines: &[String], requests: usize) -> Vec<(bool, String)> {
    println!("\n{name}: the last report");
    let last = lines.iter().rposition(|line| line.contains(" held its thread for ")).unwrap_or(0);
    lines[last..].iter().for_each(|line| println!("  {line}"));
    let all = lines.join("\n");
    let (with, samples) = with_lua(lines);
    let share = with as f64 * 100.0 / samples.max(1) as f64;
    println!("{name}: {with} of {samples} samples have a line of Lua ({share:.1} %)");
    let has = |text: &str| (all.contains(text), format!("{name}: no \"{text}\" in the reports"));
    vec![
        (all.matches(" held its thread for ").count() >= requests, format!("{name}: reports are missing")),
        has("location: \"/work\""),
        has("request: \"GET /work HTTP/1.1\""),
        has(" us in recvfrom"),
        has("[lua] content_by_lua(nginx.conf:"),
        has("md5"),
        (share >= WITH_LUA_MIN, format!("{name}: {share:.1} % of the samples have a line of Lua")),
    ]
}

/// How many samples have a line of Lua, of how many whose stacks are shown: where all stacks lead through
/// one, all have it.
fn with_lua(lines: &[String]) -> (usize, usize) {
    let number = |line: &str, behind: &str| -> Option<usize> {
        line.split(behind).next()?.split_whitespace().last()?.parse().ok()
    };
    let (mut with, mut all, mut common, mut group, mut taken) = (0, 0, false, None, 0);
    for line in lines {
        if line.contains(" held its thread for ") {
            (common, group, taken) = (false, None, 0);
        } else if line.ends_with(" samples") {
            taken = number(line, " samples").unwrap_or(0);
        } else if line.contains("all stacks lead through") {
            group = Some(0);
        } else if line.contains(" samples were ") {
            let count = number(line, " of ").unwrap_or(0);
            // Where all stacks have one, all samples were counted at once.
            all += if common { 0 } else { count };
            group = Some(if common { 0 } else { count });
        } else if line.contains(" us in ") {
            group = None;
        } else if line.contains("[lua]") {
            match group.take() {
                Some(0) if !common => {
                    common = true;
                    (with, all) = (with + taken, all + taken);
                }
                Some(count) => with += count,
                None => {}
            }
        }
    }
    (with, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_counted() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let common = "1: a task of loop 0 held its thread for 7 ms\n1:   3 ms on a processor, 67 samples\n\
                      1:   all stacks lead through\n\
                      1:     [lua] a\n1:   9 of 67 samples were then in\n1:     b\n\
                      1:   5 of 67 samples were then in";
        assert_eq!(with_lua(&lines(common)), (67, 67));
        let mixed = "1: a task of loop 0 held its thread for 7 ms\n1:   9 of 67 samples were in\n\
                     1:     [lua] b\n1:   5 of 67 samples were in\n1:     c";
        assert_eq!(with_lua(&lines(mixed)), (9, 14));
    }
}
