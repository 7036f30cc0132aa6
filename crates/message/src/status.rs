//! Status codes: the status lines and the built-in pages, which look like nginx's with another name at
//! the bottom. Lines are constants; pages are put together once at load for a product name and cheap to
//! clone after, on any thread.

use bytes::Bytes;

/// Codes that exist only inside the server and reach the client as 400 (494 to 497).
pub mod internal {
    /// A header line or the whole head is too large.
    pub const REQUEST_HEADER_TOO_LARGE: u16 = 494;
    /// The client's certificate did not verify.
    pub const SSL_CERTIFICATE_ERROR: u16 = 495;
    /// The client sent no certificate.
    pub const NO_SSL_CERTIFICATE: u16 = 496;
    /// Plain HTTP on a port for TLS.
    pub const HTTP_TO_HTTPS: u16 = 497;
    /// The client went away; logged, never sent.
    pub const CLIENT_CLOSED_REQUEST: u16 = 499;
}

/// The code that a client sees where the server says `code`.
#[must_use]
pub fn sent_status(code: u16) -> u16 {
    match code {
        494..=497 => 400,
        code => code,
    }
}

/// Code and reason phrase of a status line, such as `404 Not Found`; `None` for codes that nginx has no
/// phrase for, which it writes as the three digits and a space.
#[must_use]
pub fn status_line(code: u16) -> Option<&'static str> {
    Some(match code {
        200 => "200 OK",
        201 => "201 Created",
        202 => "202 Accepted",
        204 => "204 No Content",
        206 => "206 Partial Content",
        301 => "301 Moved Permanently",
        302 => "302 Moved Temporarily",
        303 => "303 See Other",
        304 => "304 Not Modified",
        307 => "307 Temporary Redirect",
        308 => "308 Permanent Redirect",
        400 => "400 Bad Request",
        401 => "401 Unauthorized",
        402 => "402 Payment Required",
        403 => "403 Forbidden",
        404 => "404 Not Found",
        405 => "405 Not Allowed",
        406 => "406 Not Acceptable",
        407 => "407 Proxy Authentication Required",
        408 => "408 Request Time-out",
        409 => "409 Conflict",
        410 => "410 Gone",
        411 => "411 Length Required",
        412 => "412 Precondition Failed",
        413 => "413 Request Entity Too Large",
        414 => "414 Request-URI Too Large",
        415 => "415 Unsupported Media Type",
        416 => "416 Requested Range Not Satisfiable",
        421 => "421 Misdirected Request",
        429 => "429 Too Many Requests",
        500 => "500 Internal Server Error",
        501 => "501 Not Implemented",
        502 => "502 Bad Gateway",
        503 => "503 Service Temporarily Unavailable",
        504 => "504 Gateway Time-out",
        505 => "505 HTTP Version Not Supported",
        507 => "507 Insufficient Storage",
        _ => return None,
    })
}

/// Title and second line of the page of a code.
fn page_text(code: u16) -> Option<(&'static str, Option<&'static str>)> {
    let (title, detail) = match code {
        302 => ("302 Found", None),
        401 => ("401 Authorization Required", None),
        494 => ("400 Request Header Or Cookie Too Large", Some("Request Header Or Cookie Too Large")),
        495 => ("400 The SSL certificate error", Some("The SSL certificate error")),
        496 => ("400 No required SSL certificate was sent", Some("No required SSL certificate was sent")),
        497 => (
            "400 The plain HTTP request was sent to HTTPS port",
            Some("The plain HTTP request was sent to HTTPS port"),
        ),
        498 => ("404 Not Found", None),
        304 => return None,
        301..=599 => (status_line(code)?, None),
        _ => return None,
    };
    Some((title, detail))
}

/// A line of the padding at the end of error pages, without which some browsers do not show them.
const PADDING_LINE: &str = "<!-- a padding to disable MSIE and Chrome friendly error page -->\r\n";

/// How many of them.
const PADDING_LINES: usize = 6;

/// Whether the page of an error grows for a browser that shows its own page in place of a short one
/// (`msie_padding on`, the default).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// Everybody else.
    Off,
    /// For the browsers of [`wants_padding`], which ask in HTTP/1.0 or later.
    On,
}

/// Whether a `User-Agent` is one that nginx pads pages of 4xx and 5xx for: Internet Explorer, and what
/// calls itself Chrome but neither Opera nor Gecko.
#[must_use]
pub fn wants_padding(user_agent: &[u8]) -> bool {
    let has = |word: &[u8]| memchr::memmem::find(user_agent, word).is_some();
    is_msie(user_agent) || !has(b"Opera") && !has(b"Gecko/") && has(b"Chrome/")
}

/// Whether a `User-Agent` is Internet Explorer: something must follow the version's first digits.
#[must_use]
pub fn is_msie(user_agent: &[u8]) -> bool {
    let find = |word: &[u8]| memchr::memmem::find(user_agent, word);
    find(b"MSIE ").is_some_and(|at| at + 7 < user_agent.len()) && find(b"Opera").is_none()
}

/// The built-in pages of one product name.
#[derive(Clone, Debug)]
pub struct Pages {
    /// Sorted by code: the page, and the page with padding where it differs.
    pages: Box<[(u16, Bytes, Option<Bytes>)]>,
}

impl Pages {
    /// Puts the pages together; `product` is what stands below the line, such as `clearway`.
    #[must_use]
    pub fn new(product: &str) -> Self {
        let pages = (301..=599).filter_map(|code| {
            let (title, detail) = page_text(code)?;
            let page = render(title, detail, product);
            let padded =
                (code >= 400).then(|| Bytes::from(page.clone() + &PADDING_LINE.repeat(PADDING_LINES)));
            Some((code, Bytes::from(page), padded))
        });
        Self { pages: pages.collect() }
    }

    /// The page of a code, of the type `text/html`; `None` means an empty body, as for 304, 204 and
    /// codes without a name.
    #[must_use]
    pub fn find(&self, code: u16, padding: Padding) -> Option<&Bytes> {
        let at = self.pages.binary_search_by_key(&code, |(code, ..)| *code).ok()?;
        let (_, page, padded) = &self.pages[at];
        match padding {
            Padding::On => padded.as_ref().or(Some(page)),
            Padding::Off => Some(page),
        }
    }
}

fn render(title: &str, detail: Option<&str>, product: &str) -> String {
    let headline = if detail.is_some() { "400 Bad Request" } else { title };
    let detail = detail.map(|text| format!("<center>{text}</center>\r\n")).unwrap_or_default();
    format!(
        "<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{headline}</h1></center>\r\n\
         {detail}<hr><center>{product}</center>\r\n</body>\r\n</html>\r\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bodies that nginx 1.31.5 sends with `server_tokens off`, in bytes; all other codes have none.
    #[rustfmt::skip]
    const PAGE_LENGTHS: &[(u16, usize)] = &[
        (301, 162), (302, 138), (303, 146), (307, 164), (308, 164), (400, 150), (401, 172), (402, 160),
        (403, 146), (404, 146), (405, 150), (406, 156), (407, 186), (408, 160), (409, 144), (410, 136),
        (411, 158), (412, 166), (413, 176), (414, 170), (415, 172), (416, 190), (421, 166), (429, 162),
        (494, 226), (495, 208), (496, 230), (497, 248), (498, 146), (500, 170), (501, 158), (502, 150),
        (503, 190), (504, 160), (505, 180), (507, 168),
    ];

    #[test]
    fn pages_are_as_long_as_in_nginx() {
        let pages = Pages::new("nginx");
        for code in 0..=999 {
            let expected = PAGE_LENGTHS.iter().find(|(other, _)| *other == code).map(|(_, length)| *length);
            assert_eq!(pages.find(code, Padding::Off).map(Bytes::len), expected, "{code}");
            let padding = if code >= 400 { 402 } else { 0 };
            let padded = expected.map(|length| length + padding);
            assert_eq!(pages.find(code, Padding::On).map(Bytes::len), padded, "{code}");
        }
    }

    #[test]
    fn pages_name_the_product() {
        let pages = Pages::new("clearway");
        assert_eq!(
            pages.find(404, Padding::Off).unwrap(),
            "<html>\r\n<head><title>404 Not Found</title></head>\r\n<body>\r\n\
             <center><h1>404 Not Found</h1></center>\r\n\
             <hr><center>clearway</center>\r\n</body>\r\n</html>\r\n"
        );
        assert_eq!(
            pages.find(internal::REQUEST_HEADER_TOO_LARGE, Padding::Off).unwrap(),
            "<html>\r\n<head><title>400 Request Header Or Cookie Too Large</title></head>\r\n<body>\r\n\
             <center><h1>400 Bad Request</h1></center>\r\n\
             <center>Request Header Or Cookie Too Large</center>\r\n\
             <hr><center>clearway</center>\r\n</body>\r\n</html>\r\n"
        );
        assert!(
            pages.find(302, Padding::Off).unwrap().starts_with(b"<html>\r\n<head><title>302 Found</title>")
        );
    }

    #[test]
    fn lines_begin_with_their_code() {
        let known = (0..=999).filter_map(|code| Some((code, status_line(code)?)));
        let mut count = 0;
        for (code, line) in known {
            assert!(line.starts_with(&format!("{code} ")) && line.len() > 4, "{line}");
            count += 1;
        }
        assert_eq!(count, 37);
        assert_eq!(sent_status(internal::HTTP_TO_HTTPS), 400);
        assert_eq!(sent_status(404), 404);
        assert_eq!(sent_status(internal::CLIENT_CLOSED_REQUEST), 499);
    }

    /// The expectations are the pages' lengths in nginx 1.31.5.
    #[test]
    fn padding_is_for_two_families_of_browsers() {
        for (agent, wanted) in [
            ("MSIE 6", false),
            ("MSIE 6.", false),
            ("MSIE 6.0", true),
            ("MSIE ", false),
            ("x MSIE 7.0; y", true),
            ("MSIE 7.0 Opera 9", false),
            ("Opera/9 Chrome/1", false),
            ("Mozilla Chrome/120 Safari/537", true),
            ("Gecko/2010 Chrome/1", false),
            ("Chrome", false),
            ("Firefox Gecko/1", false),
            ("MSIE 7.0 Gecko/1", true),
            ("(KHTML, like Gecko) Chrome/120.0", true),
            ("curl/8", false),
        ] {
            assert_eq!(wants_padding(agent.as_bytes()), wanted, "{agent}");
        }
    }
}
