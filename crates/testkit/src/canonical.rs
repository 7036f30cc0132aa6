//! The canonical text of an answer, in which only what must differ from server to server and from run to
//! run is replaced: product, dates of now, ports, directory, and the middle of bodies that are too long to
//! be kept.

use clearway_base::date::parse_http_date;

use crate::Server;
use crate::recorded::abbreviated;
use crate::response::{Answer, Response};

/// Dates this near to that of their answer were made of it; those of files are years away.
const NOW_MAX_SECONDS: i64 = 366 * 86_400;
/// A file that is no older has been made by the case, which takes some seconds.
const FRESH_MAX_SECONDS: i64 = 60;

/// Status line, headers in alphabetical order (servers agree on them as a set), body. The two that every
/// answer has are told where they are missing.
pub(crate) fn canonical(response: &Response, answer: Answer, server: &Server) -> String {
    let body = response.decoded().escape_ascii().to_string().replace("\\r\\n", "\n").replace("\\n", "\\n\n");
    let body = abbreviated(neutral(&body, server));
    let named = product_length(&response.text());
    let mut headers: Vec<String> = response
        .headers
        .iter()
        .map(|(name, value)| {
            let value = match name.to_ascii_lowercase().as_str() {
                "date" if is_date(value) => "(now)".to_owned(),
                // The length of an error page depends on the product's name, which a page has once.
                "content-length" if named > 0 => match value.parse::<usize>() {
                    Ok(n) => format!("{} + name", n - named),
                    Err(_) => value.clone(),
                },
                "content-length" if answer == Answer::HeadOnly && response.status >= 300 => {
                    "(of the page)".to_owned()
                }
                "content-length" => value.clone(),
                name => seconds_from_now(name, value, response).unwrap_or_else(|| neutral(value, server)),
            };
            format!("{name}: {value}\n")
        })
        .collect();
    headers.sort();
    for usual in ["Date: (now)\n", "Server: PRODUCT\n"] {
        match headers.iter().position(|header| header == usual) {
            Some(at) => drop(headers.remove(at)),
            None => headers.push(format!("(no {usual:?})\n")),
        }
    }
    format!("{} {} {}\n{}\n{body}\n", response.version, response.status, response.reason, headers.concat())
}

/// A date that was made of the time of the answer, as its distance from that. A file that was made for an
/// earlier request of the case is as old as the machine is slow.
fn seconds_from_now(name: &str, value: &str, response: &Response) -> Option<String> {
    let date = |text: &str| parse_http_date(text.as_bytes()).filter(|_| is_date(text));
    let mut distance = date(value)? - date(response.header("date")?)?;
    if name == "last-modified" && (-FRESH_MAX_SECONDS..=0).contains(&distance) {
        distance = 0;
    }
    (distance.abs() <= NOW_MAX_SECONDS).then(|| format!("(now {distance:+} s)"))
}

/// Takes out what differs from server to server: name and version, ports, directory, and the boundary
/// between parts.
pub(crate) fn neutral(text: &str, server: &Server) -> String {
    let mut out = server.with_keys(text);
    if let Some(boundary) = boundary(&out).map(str::to_owned) {
        out = out.replace(&boundary, "BOUNDARY");
    }
    while let Some((at, length)) = product(&out) {
        out.replace_range(at..at + length, "PRODUCT");
    }
    out
}

/// The twenty digits that nginx separates parts with.
fn boundary(text: &str) -> Option<&str> {
    const DIGITS: usize = 20;
    let digits = |at: &usize| {
        text.as_bytes().get(*at..at + DIGITS).is_some_and(|part| part.iter().all(u8::is_ascii_digit))
    };
    let at = ["--", "boundary="]
        .iter()
        .find_map(|before| text.match_indices(before).map(|(at, before)| at + before.len()).find(digits))?;
    Some(&text[at..at + DIGITS])
}

fn product_length(text: &str) -> usize {
    product(text).map_or(0, |(_, length)| length)
}

/// Where the first `nginx/VERSION`, `clearway/VERSION` or `clearway` stands, and its length.
fn product(text: &str) -> Option<(usize, usize)> {
    let version = |at: usize| {
        let rest = text[at..].strip_prefix('/').unwrap_or_default();
        rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len())
    };
    let found = |name: &str| text.find(name).map(|at| (at, name.len(), version(at + name.len())));
    match (found("nginx"), found("clearway")) {
        (Some((at, name, digits)), _) if digits > 0 => Some((at, name + 1 + digits)),
        (_, Some((at, name, 0))) => Some((at, name)),
        (_, Some((at, name, digits))) => Some((at, name + 1 + digits)),
        _ => None,
    }
}

/// Whether it has the form of an HTTP date (RFC 9110 §5.6.7).
fn is_date(value: &str) -> bool {
    value.len() == 29 && value.ends_with(" GMT") && value.as_bytes()[3] == b','
}

/// `ADDRESS - USER [TIME] "REQUEST" STATUS SIZE "REFERER" "AGENT"`: the time goes, and the size where
/// it is that of an error page.
pub(crate) fn neutral_log_line(line: &str) -> String {
    let Some((front, rest)) = line.split_once('[') else { return line.to_owned() };
    let rest = rest.split_once(']').map_or(rest, |(_, rest)| rest);
    // Quotes within are escaped, so the next one ends the request.
    let parts: Vec<&str> = rest.splitn(3, '"').collect();
    let [_, request, tail] = parts[..] else { return line.to_owned() };
    let mut words: Vec<&str> = tail.split(' ').collect();
    if words.get(1).is_some_and(|status| !status.starts_with('2'))
        && let Some(size) = words.get_mut(2).filter(|size| **size != "0")
    {
        *size = "(size)";
    }
    format!("{front}[] \"{request}\"{}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_found() {
        assert_eq!(product("Server: nginx/1.22.1"), Some((8, 12)));
        assert_eq!(product("<center>clearway/0.1.0</center>"), Some((8, 14)));
        assert_eq!(product("<center>clearway</center>"), Some((8, 8)));
        assert_eq!(product("nginx/ and nothing"), None);
    }

    #[test]
    fn log_lines_lose_time_and_page_size() {
        let line = |status| {
            format!("1.2.3.4 - - [21/Nov/2025:14:00:00 +0000] \"GET / HTTP/1.1\" {status} 153 \"-\" \"a b\"")
        };
        assert_eq!(
            neutral_log_line(&line(404)),
            "1.2.3.4 - - [] \"GET / HTTP/1.1\" 404 (size) \"-\" \"a b\""
        );
        assert_eq!(neutral_log_line(&line(200)), "1.2.3.4 - - [] \"GET / HTTP/1.1\" 200 153 \"-\" \"a b\"");
    }

    #[test]
    fn dates_are_told_from_now() {
        let mut response = Response {
            version: "HTTP/1.1".to_owned(),
            status: 200,
            reason: "OK".to_owned(),
            headers: vec![("Date".to_owned(), "Tue, 02 Jan 2024 03:04:05 GMT".to_owned())],
            body: Vec::new(),
        };
        let told = |value, response: &Response| seconds_from_now("expires", value, response);
        assert_eq!(told("Tue, 02 Jan 2024 04:04:05 GMT", &response).as_deref(), Some("(now +3600 s)"));
        assert_eq!(told("Tue, 02 Jan 2024 03:04:05 GMT", &response).as_deref(), Some("(now +0 s)"));
        assert_eq!(told("Tue, 02 Jan 2024 03:04:04 GMT", &response).as_deref(), Some("(now -1 s)"));
        let of_file = |value| seconds_from_now("last-modified", value, &response);
        assert_eq!(of_file("Tue, 02 Jan 2024 03:04:04 GMT").as_deref(), Some("(now +0 s)"));
        assert_eq!(of_file("Tue, 02 Jan 2024 02:04:05 GMT").as_deref(), Some("(now -3600 s)"));
        assert_eq!(told("Thu, 01 Jan 1970 00:00:01 GMT", &response), None);
        assert_eq!(told("tomorrow", &response), None);
        response.headers.clear();
        assert_eq!(told("Tue, 02 Jan 2024 04:04:05 GMT", &response), None);
    }

    #[test]
    fn boundaries_are_found() {
        let digits = "01234567890123456789";
        assert_eq!(boundary(&format!("multipart/byteranges; boundary={digits}")), Some(digits));
        assert_eq!(boundary(&format!("--x\r\n--{digits}--")), Some(digits));
        assert_eq!(boundary("--0123456789"), None);
    }
}
