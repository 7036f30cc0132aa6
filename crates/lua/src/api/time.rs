//! `ngx.time`, `ngx.now` and what writes and reads dates.

use clearway_base::date::{cookie_date, error_log_time, http_date, parse_http_date};
use clearway_log::UtcOffset;
use clearway_luajit::{Call, Fault, Raise, Returns, Value};
use clearway_os::clock::unix_ms;

use crate::api::room::{Install, put};
use crate::current::current;

/// Installs the functions.
///
/// # Errors
/// None.
pub fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("", |stack| {
        put(stack, "time", |call| number(call, now_s() as f64));
        put(stack, "now", |call| number(call, unix_ms() as f64 / 1000.0));
        // Each look at the clock is one at the real one.
        put(stack, "update_time", |_| Ok(Returns::Values(0)));
        put(stack, "today", |call| local(call, 0..10));
        put(stack, "localtime", |call| local(call, 0..19));
        put(stack, "utctime", |call| text(call, &dashed(error_log_time(now_s(), 0))));
        put(stack, "cookie_time", |call| {
            let seconds = seconds(call)?;
            text(call, cookie_date(seconds).as_bytes())
        });
        put(stack, "http_time", |call| {
            let seconds = seconds(call)?;
            text(call, &http_date(seconds))
        });
        put(stack, "parse_http_time", parse_http_time);
    });
    Ok(())
}

/// Whole seconds since the epoch.
pub(super) fn now_s() -> i64 {
    (unix_ms() / 1000).cast_signed()
}

fn number(call: &mut Call<'_>, number: f64) -> Result<Returns, Raise> {
    call.stack.push(number);
    Ok(Returns::Values(1))
}

fn text(call: &mut Call<'_>, text: &[u8]) -> Result<Returns, Raise> {
    call.stack.push(text);
    Ok(Returns::Values(1))
}

/// A time of the error log with hyphens.
pub(super) fn dashed(mut time: [u8; 19]) -> [u8; 19] {
    (time[4], time[7]) = (b'-', b'-');
    time
}

fn local(call: &mut Call<'_>, part: std::ops::Range<usize>) -> Result<Returns, Raise> {
    let minutes = current(call, |current| current.vm.utc_offset.as_ref().map_or(0, UtcOffset::minutes))?;
    text(call, &dashed(error_log_time(now_s(), minutes))[part])
}

fn seconds(call: &mut Call<'_>) -> Result<i64, Raise> {
    match call.stack.get(1) {
        Value::Number(seconds) => Ok(seconds as i64),
        _ => Err(call.raise("number argument only")),
    }
}

fn parse_http_time(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let Value::Text(text) = call.stack.get(1) else {
        return Err(call.raise("string argument only"));
    };
    let seconds = parse_http_date(text).map(|seconds| seconds as f64);
    call.stack.push(seconds);
    Ok(Returns::Values(1))
}

#[cfg(test)]
mod tests {
    use crate::api::testing::Lua;

    #[test]
    fn dates_are_written_and_read() {
        let mut lua = Lua::new();
        lua.says("return ngx.http_time(1290079655)", "Thu, 18 Nov 2010 11:27:35 GMT");
        lua.says("return ngx.cookie_time(1290079655)", "Thu, 18-Nov-10 11:27:35 GMT");
        lua.says(
            "return ngx.parse_http_time('Thu, 18 Nov 2010 11:27:35 GMT'), ngx.parse_http_time('x')",
            "1290079655 nil",
        );
        lua.raises("ngx.http_time('x')", "number argument only");
        lua.says("return ngx.utctime():match('^%d+%-%d+%-%d+ %d+:%d+:%d+$') ~= nil, #ngx.today()", "true 10");
        lua.says("return ngx.localtime():sub(1, 10) == ngx.today(), ngx.time() <= ngx.now()", "true true");
    }
}
