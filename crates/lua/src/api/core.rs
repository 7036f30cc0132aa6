//! The functions that lua-resty-core calls (`clearway_luajit::core`), in terms of what the rooms beside this
//! one do: `plain` needs no request, `regex` has expressions, `request` is one's, `shared` dictionaries,
//! `balancer` the server of an attempt, `tls` handshakes, their certificates and keys. Codes are nginx's.

mod balancer;
mod codes;
mod pipe;
mod plain;
mod regex;
mod request;
#[cfg(feature = "tls")]
mod secure;
mod semaphore;
mod shared;
mod tcp;
#[cfg(feature = "tls")]
mod tls;

use clearway_luajit::Fault;
use clearway_luajit::core::{CoreFunction, CoreFunctions, provide};

use super::room::Install;

#[cfg(feature = "tls")]
const HANDSHAKE: CoreFunction = tls::handshake;
#[cfg(feature = "tls")]
const CERTIFICATES: CoreFunction = tls::certificates;
#[cfg(feature = "tls")]
const OCSP: CoreFunction = tls::ocsp;
#[cfg(not(feature = "tls"))]
const HANDSHAKE: CoreFunction = codes::no_tls;
#[cfg(not(feature = "tls"))]
const CERTIFICATES: CoreFunction = codes::no_tls;
#[cfg(not(feature = "tls"))]
const OCSP: CoreFunction = codes::no_tls;

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
        get_ctx: request::get_ctx,
        set_ctx: request::set_ctx,
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
        kept_lines: plain::kept_lines,
        handshake: HANDSHAKE,
        certificates: CERTIFICATES,
        ocsp: OCSP,
        semaphore: semaphore::semaphore,
        pipe: pipe::pipe,
        tcp: tcp::tcp,
    });
    Ok(())
}
