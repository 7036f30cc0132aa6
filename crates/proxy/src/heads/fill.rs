//! The head of a response as it goes to the client: the lines that were received but for those that are
//! hidden or speak of the connection alone, with redirects and cookies rewritten. Runs on the loop of the
//! request.

use std::borrow::Cow;

use bytes::Bytes;
use clearway_http::{Conditions, HeaderName, Output, Ranges, ResponseHead, View};
use clearway_message::{Header, Known};

use crate::heads::cookies::{are_rewritten, rewrite_cookie};
use crate::heads::rewrite::rewrite;
use crate::settings::pass::PassConf;
use crate::settings::proxy::ProxyConf;

const SET_COOKIE: HeaderName<'_> = HeaderName::new(b"Set-Cookie");
const LOCATION: HeaderName<'_> = HeaderName::new(b"Location");
const REFRESH: HeaderName<'_> = HeaderName::new(b"Refresh");

/// A head that was received.
pub(crate) struct Received<'a> {
    /// From the status on.
    pub(crate) status_line: Cow<'a, [u8]>,
    pub(crate) bytes: &'a Bytes,
    pub(crate) lines: &'a [Header],
    pub(crate) content_length: Option<u64>,
}

/// The parts that are rewritten.
#[derive(Default)]
pub(crate) struct Rewritten {
    location: Option<Vec<u8>>,
    refresh: Option<Vec<u8>>,
    /// The new form of each `Set-Cookie`.
    cookies: Vec<Option<Vec<u8>>>,
    /// `Server` and `Date` are the other server's to say, where they are passed; applications say none.
    is_of_server: bool,
}

/// Makes the head of the response from one that was received.
pub(crate) fn fill(output: &mut Output<'_, '_>, pass: &PassConf, rewritten: Rewritten, from: &Received<'_>) {
    let lines = from.lines.iter().filter(|line| is_passed(line, from.bytes, pass)).copied();
    output.pass_head(&from.status_line, from.bytes.clone(), lines);
    for (known, name) in [(Known::Server, &b"Server"[..]), (Known::Date, b"Date")] {
        if rewritten.is_of_server && !pass.hidden.has(known, name) {
            // As in nginx what the other server says stands there, or nothing.
            output.leave_out_own_line(known);
        }
    }
    let head = output.head();
    head.content_length = from.content_length;
    head.conditions = Conditions::JudgedThere;
    if *pass.force_ranges {
        head.ranges = Ranges::OnePart;
    }
    rewritten.apply(head);
}

/// Whether a line goes to the client.
fn is_passed(line: &Header, bytes: &[u8], pass: &PassConf) -> bool {
    match line.known {
        Known::ContentLength | Known::TransferEncoding | Known::Connection | Known::KeepAlive => false,
        Known::AcceptRanges if *pass.force_ranges => false,
        known => !pass.hidden.has(known, line.name.of(bytes)),
    }
}

impl Rewritten {
    pub(crate) fn new<'c>(
        view: &View<'_, 'c>,
        (pass, proxy): (&'c PassConf, &'c ProxyConf),
        from: &Received<'_>,
    ) -> Self {
        let mut rewritten = Self { is_of_server: true, ..Self::default() };
        let rewrites_cookies = are_rewritten(proxy);
        let rewritable = [Known::Location, Known::Refresh, Known::SetCookie];
        for line in from.lines.iter().filter(|line| rewritable.contains(&line.known)) {
            if pass.hidden.has(line.known, line.name.of(from.bytes)) {
                continue;
            }
            let value = line.value.of(from.bytes);
            match line.known {
                Known::Location => rewritten.location = rewrite(proxy.redirects.list(), view, value, 0),
                Known::Refresh => rewritten.refresh = refresh(view, proxy, value),
                Known::SetCookie if rewrites_cookies => {
                    rewritten.cookies.push(rewrite_cookie(proxy, view, value));
                }
                _ => {}
            }
        }
        rewritten
    }

    fn apply(self, head: &mut ResponseHead<'_>) {
        match self.location {
            // As in nginx a path becomes absolute.
            Some(location) if location.starts_with(b"/") => {
                head.headers.remove(LOCATION);
                head.location = Some(location.into());
            }
            Some(location) => head.headers.set(LOCATION, &location),
            None => {}
        }
        if let Some(refresh) = self.refresh {
            head.headers.set(REFRESH, &refresh);
        }
        if self.cookies.iter().any(Option::is_some) {
            let mut cookies = self.cookies.into_iter();
            head.headers
                .replace(SET_COOKIE, |line| Some(cookies.next().flatten().unwrap_or_else(|| line.to_vec())));
        }
    }
}

/// `Refresh: 5; url=http://…`
fn refresh<'c>(view: &View<'_, 'c>, proxy: &'c ProxyConf, value: &[u8]) -> Option<Vec<u8>> {
    let url = value.windows(4).position(|part| part.eq_ignore_ascii_case(b"url="))? + 4;
    rewrite(proxy.redirects.list(), view, value, url)
}
