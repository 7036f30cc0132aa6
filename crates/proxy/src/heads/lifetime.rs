//! How long a response may be used, by its head.

use clearway_cache::{Freshness, Ignored as Unheard};
use clearway_message::{Header, Known};

use crate::settings::masks::{Ignored, Mask};
use crate::settings::pass::PassConf;

/// How long a response may be used, by its lines.
pub(crate) fn freshness(pass: &PassConf, now_s: i64, lines: &[Header], bytes: &[u8]) -> Freshness {
    let mut unheard = Unheard::default();
    for (ignored, one) in [
        (Ignored::ACCEL_EXPIRES, Unheard::ACCEL_EXPIRES),
        (Ignored::EXPIRES, Unheard::EXPIRES),
        (Ignored::CACHE_CONTROL, Unheard::CACHE_CONTROL),
        (Ignored::SET_COOKIE, Unheard::SET_COOKIE),
        (Ignored::VARY, Unheard::VARY),
    ] {
        if pass.ignore_headers.has(ignored) {
            unheard = unheard.and(one);
        }
    }
    let mut freshness = Freshness::new(now_s, unheard);
    for line in lines {
        let value = line.value.of(bytes);
        match line.known {
            Known::XAccelExpires => freshness.accel_expires(value),
            Known::CacheControl => freshness.cache_control(value),
            Known::Expires => freshness.expires(value),
            Known::SetCookie => freshness.set_cookie(),
            Known::Vary => freshness.vary(value),
            _ => {}
        }
    }
    freshness
}
