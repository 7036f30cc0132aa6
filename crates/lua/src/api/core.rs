//! The functions that lua-resty-core calls (`clearway_luajit::core`), in terms of what the rooms beside this
//! one do: `plain` needs no request, `regex` has expressions, `request` is one's, `shared` dictionaries,
//! `balancer` the server of an attempt. Codes are nginx's.

mod balancer;
mod plain;
mod regex;
mod request;
mod shared;

use clearway_luajit::core::{CoreCall, CoreFunctions, provide};
use clearway_luajit::{Fault, Reply};

use super::room::Install;
use crate::current::{Current, Run};

/// `NGX_OK`, `NGX_ERROR`, `NGX_DONE`, `NGX_DECLINED`; no request; not in this phase.
const OK: i32 = 0;
const ERROR: i32 = -1;
const DONE: i32 = -4;
const DECLINED: i32 = -5;
const NO_REQUEST: i32 = -100;
const BAD_CONTEXT: i32 = -101;

/// What upstream says of a phase that a function is not for.
const WRONG_PHASE: &str = "API disabled in the current context";

pub(super) fn install(_: &mut Install<'_>) -> Result<(), Fault> {
    provide(CoreFunctions {
        clock: plain::clock,
        date: plain::date,
        parse_date: plain::parse_date,
        digest: plain::digest,
        crc32: plain::crc32,
        escape_uri: plain::escape_uri,
        unescape_uri: plain::unescape_uri,
        encode_base64: plain::encode_base64,
        decode_base64: plain::decode_base64,
        worker: plain::worker,
        process: plain::process,
        raw_log: plain::raw_log,
        regex_cache_max: regex::cache_max,
        regex_compile: regex::compile,
        regex_exec: regex::exec,
        regex_template: regex::check_template,
        regex_expand: regex::expand,
        regex_stack: regex::set_stack,
        var_get: request::var_get,
        var_set: request::var_set,
        exit: request::exit,
        get_phase: request::get_phase,
        start_time: request::start_time,
        req_headers: request::req_headers,
        uri_args: request::uri_args,
        query_len: request::query_len,
        get_method: request::get_method,
        set_method: request::set_method,
        set_req_header: request::set_req_header,
        get_resp_header: request::get_resp_header,
        set_resp_header: request::set_resp_header,
        get_status: request::get_status,
        set_status: request::set_status,
        set_phrased_status: request::set_phrased_status,
        bypass_if_checks: request::bypass_if_checks,
        property: request::property,
        balance: balancer::balance,
        set_by_param: request::set_by_param,
        body_param: request::body_param,
        ndk_find: plain::ndk_find,
        ndk_call: plain::ndk_call,
        shdict_get: shared::get,
        shdict_incr: shared::incr,
        shdict_store: shared::store,
        shdict_flush_all: shared::flush_all,
        shdict_ttl: shared::ttl,
        shdict_expire: shared::expire,
        shdict_capacity: shared::capacity,
        shdict_free_space: shared::free_space,
    });
    Ok(())
}

/// Does it with what Lua runs for.
fn with(
    call: &CoreCall<'_>,
    reply: &mut Reply,
    work: impl for<'a> FnOnce(&mut Current<'a>, &mut Reply) -> i32,
) -> i32 {
    call.with_context::<Run, i32>(reply, work).unwrap_or(NO_REQUEST)
}

/// -1 with words.
fn failed(reply: &mut Reply, words: &str) -> i32 {
    reply.text.clear();
    reply.text.extend_from_slice(words.as_bytes());
    ERROR
}

/// Appends a text to the reply, and where it is.
fn put_piece(reply: &mut Reply, text: &[u8]) {
    let from = reply.text.len();
    reply.text.extend_from_slice(text);
    reply.places.extend([from as i32, reply.text.len() as i32]);
}
