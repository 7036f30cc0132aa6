//! The wishes of a server in the head of its response (`X-Accel-…`). Runs on the loop of the request.

use clearway_base::log::{Level, Verbatim};
use clearway_http::{Answer, HeaderName, Redirect, Request, ResponseHead, split_content_type, uri};
use clearway_message::{Header, Known};

use crate::heads::fill::Received;
use crate::settings::masks::{Ignored, Mask};
use crate::settings::pass::PassConf;

/// How a response is to be relayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffering {
    Off,
    On,
}

/// The wishes.
#[derive(Debug, Default)]
pub(crate) struct Accel<'a> {
    pub(crate) buffering: Option<Buffering>,
    /// Bytes a second; 0 is no limit.
    pub(crate) limit_rate: Option<u64>,
    /// In place of what the location says.
    pub(crate) charset: Option<&'a [u8]>,
}

impl<'a> Accel<'a> {
    /// The wishes in the lines of a head; `bytes` has their text.
    pub(crate) fn read(conf: &PassConf, lines: &[Header], bytes: &'a [u8]) -> Self {
        let ignored = *conf.ignore_headers;
        let mut accel = Self::default();
        for line in lines {
            let value = line.value.of(bytes);
            match line.known {
                Known::XAccelBuffering if !ignored.has(Ignored::BUFFERING) => {
                    if value.eq_ignore_ascii_case(b"no") {
                        accel.buffering = Some(Buffering::Off);
                    } else if value.eq_ignore_ascii_case(b"yes") {
                        accel.buffering = Some(Buffering::On);
                    }
                }
                Known::XAccelLimitRate if !ignored.has(Ignored::LIMIT_RATE) => {
                    accel.limit_rate = clearway_base::units::parse_number(value).or(accel.limit_rate);
                }
                Known::XAccelCharset if !ignored.has(Ignored::CHARSET) => {
                    accel.charset = Some(value).filter(|value| !value.is_empty());
                }
                _ => {}
            }
        }
        accel
    }
}

/// Where `X-Accel-Redirect` leads, if it is there and counts.
pub(crate) fn redirect(request: &Request<'_>, conf: &PassConf, from: &Received<'_>) -> Option<Answer> {
    if conf.ignore_headers.has(Ignored::REDIRECT) {
        return None;
    }
    let line = from.lines.iter().find(|line| line.known == Known::XAccelRedirect)?;
    let target = line.value.of(from.bytes);
    if target.starts_with(b"@") {
        return Some(Answer::Named(target.into()));
    }
    Some(match uri::split_foreign(target) {
        Ok((path, args)) => {
            let args = (!args.is_empty()).then(|| args.to_vec());
            Answer::Redirect(Box::new(Redirect { path, args }))
        }
        Err(shown) => {
            request.log(Level::Error, format_args!("unsafe URI \"{}\" was detected", Verbatim(&shown)));
            Answer::Status(404)
        }
    })
}

/// Puts what outlasts such a redirect into the head of the response that is made in place of this one.
pub(crate) fn keep_for_redirect(head: &mut ResponseHead<'_>, from: &Received<'_>) {
    for line in from.lines {
        let (name, value) = (line.name.of(from.bytes), line.value.of(from.bytes));
        match line.known {
            Known::ContentType => {
                let (content_type, charset) = split_content_type(value);
                head.content_type = Some(content_type.to_vec().into());
                head.charset = charset.map(|charset| charset.to_vec().into());
            }
            Known::SetCookie
            | Known::ContentDisposition
            | Known::CacheControl
            | Known::Expires
            | Known::AcceptRanges => {
                // If a header that may appear once appears twice, the later one counts.
                if !matches!(line.known, Known::SetCookie | Known::CacheControl) {
                    head.headers.remove(HeaderName::new(name));
                }
                head.headers.add(name, value);
            }
            _ => {}
        }
    }
}
