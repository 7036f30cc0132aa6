//! Functions with which code sets the server of an attempt.

use clearway_http::LastAttempt;
use clearway_luajit::Reply;
use clearway_luajit::core::CoreCall;

use super::codes::{OK, failed, with};
use crate::api::balancer::{REDUCED, add_tries, bind, choose_peer, keep_alive, limit_times, with_attempt};

/// `NGX_PEER_NEXT` and `NGX_PEER_FAILED`
const NEXT: i32 = 2;
const FAILED: i32 = 4;

/// (what; of the server's address its port, and so on): what was said, by number.
pub(super) fn balance(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    with(call, reply, |current, reply| {
        let said = with_attempt(current, |balancing| {
            match call.number(0) as u8 {
                0 => {
                    let host = Some(call.text(1).to_vec());
                    choose_peer(balancing, call.text(0), call.number(1) as i64 as u16, host)?;
                }
                1 => keep_alive(balancing, call.number(1) as u64, call.number(2) as u32)?,
                2 => {
                    if add_tries(balancing, call.number(1) as i64) {
                        reply.text.extend_from_slice(REDUCED.as_bytes());
                    }
                }
                3 => {
                    let Some((last, status)) = balancing.last else { return Ok(OK) };
                    reply.number = f64::from(status);
                    return Ok(match last {
                        LastAttempt::Next => NEXT,
                        LastAttempt::Failed => FAILED,
                    });
                }
                4 => {
                    let ms = [call.number(1) as u64, call.number(2) as u64, call.number(3) as u64];
                    limit_times(balancing, ms);
                }
                5 => balancing.is_made_anew = true,
                6 => balancing.tls = Some(call.number(1) != 0.0),
                _ => bind(balancing, &String::from_utf8_lossy(call.text(0)))?,
            }
            Ok(OK)
        });
        said.unwrap_or_else(|words| failed(reply, &words))
    })
}
