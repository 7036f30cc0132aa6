//! Responses by their grammar, for one that sees all of a response at once and reads it from left to right:
//! what the codec is compared with. It knows no limits on the overhead of chunks and on interim responses.

use clearway_h1::{Asked, Eof, ResponseFault, ResponseFraming, Trailers};

use super::play::{End, Head, Lines, Observed, Reading};

/// What comes of `input`.
pub(crate) fn read(input: &[u8], reading: Reading) -> Observed {
    let mut observed = Observed::default();
    let mut rest = input;
    loop {
        let window = &rest[..rest.len().min(reading.head_max_bytes)];
        match head(window) {
            Ok(None) if window.len() == reading.head_max_bytes => {
                observed.end = End::Fault(ResponseFault::TooBigHeader);
                return observed;
            }
            Ok(None) => return observed,
            Err(None) => {
                observed.body = Some((ResponseFraming::UntilClose, false));
                break;
            }
            Err(Some(fault)) => {
                observed.end = End::Fault(fault);
                return observed;
            }
            Ok(Some((head, announced, keeps, len))) => {
                rest = &rest[len..];
                let status = head.status;
                observed.heads.push(head);
                if status != 101 && (100..200).contains(&status) {
                    continue;
                }
                let framing = match announced {
                    _ if reading.asked == Asked::Head || status == 204 || status == 304 => {
                        ResponseFraming::Empty
                    }
                    Announced::Length(0) => ResponseFraming::Empty,
                    Announced::Length(bytes) => ResponseFraming::Length(bytes),
                    Announced::Chunked => ResponseFraming::Chunked,
                    Announced::Nothing => ResponseFraming::UntilClose,
                };
                observed.body = Some((framing, keeps && status != 101));
                break;
            }
        }
    }
    let (framing, _) = observed.body.expect("the head is complete");
    body(rest, framing, reading.trailers, &mut observed);
    observed
}

#[derive(Clone, Copy)]
enum Announced {
    Nothing,
    Length(u64),
    Chunked,
}

type Parsed = (Head, Announced, bool, usize);

/// A head, or nothing where it is incomplete.
///
/// # Errors
/// What is wrong with it; nothing where there is none.
fn head(text: &[u8]) -> Result<Option<Parsed>, Option<ResponseFault>> {
    let (version, status, reason, mut at) = match status_line(text) {
        Ok(line) => line,
        Err(Short) => return Ok(None),
        Err(Wrong) => return Err(None),
    };
    if version < 1001 && status == 103 {
        return Err(Some(ResponseFault::EarlyHintsInHttp10));
    }
    let is_interim = status != 101 && (100..200).contains(&status);
    let mut head = Head { status, reason, lines: Vec::new(), dropped: 0 };
    let (mut announced, mut keeps) = (Announced::Nothing, version >= 1001);
    loop {
        let Some((line, len)) = line(&text[at..]).map_err(|_| Some(ResponseFault::InvalidHeader))? else {
            return Ok(None);
        };
        at += len;
        match line {
            Line::End => return Ok(Some((head, announced, keeps, at))),
            Line::Skipped => {}
            Line::Header(name, value) if is_interim => head.lines.push((name, value)),
            Line::Header(name, value) => {
                let lower = String::from_utf8_lossy(&name).to_lowercase();
                let is_second = head.lines.iter().any(|(other, _)| other.eq_ignore_ascii_case(&name));
                match &lower[..] {
                    "content-length" | "transfer-encoding" => {
                        announced = frame(&lower, &value, is_second, announced).map_err(Some)?;
                    }
                    "connection" => {
                        keeps &= !String::from_utf8_lossy(&value).to_lowercase().contains("close");
                    }
                    lower if is_second && ONCE.contains(&lower) => {
                        head.dropped = (head.dropped + 1).min(16);
                        continue;
                    }
                    _ => {}
                }
                head.lines.push((name, value));
            }
        }
    }
}

const ONCE: [&str; 12] = [
    "status",
    "content-type",
    "date",
    "last-modified",
    "etag",
    "server",
    "location",
    "refresh",
    "expires",
    "x-accel-expires",
    "x-accel-redirect",
    "x-accel-limit-rate",
];

fn frame(name: &str, value: &[u8], is_second: bool, before: Announced) -> Result<Announced, ResponseFault> {
    if is_second {
        return Err(ResponseFault::DuplicateHeader);
    }
    if !matches!(before, Announced::Nothing) {
        return Err(ResponseFault::ContentLengthAndTransferEncoding);
    }
    if name == "transfer-encoding" {
        let is_chunked = value.eq_ignore_ascii_case(b"chunked");
        return is_chunked.then_some(Announced::Chunked).ok_or(ResponseFault::UnknownTransferEncoding);
    }
    let text = std::str::from_utf8(value).unwrap_or_default();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse::<i64>().ok().filter(|_| is_number);
    number.map(|bytes| Announced::Length(bytes.unsigned_abs())).ok_or(ResponseFault::InvalidContentLength)
}

/// Why there is no status line.
enum NoLine {
    Short,
    Wrong,
}
use NoLine::{Short, Wrong};

/// Version, code, what is behind it, and the length of the line.
fn status_line(text: &[u8]) -> Result<(u32, u16, Vec<u8>, usize), NoLine> {
    let mut at = 0;
    let mut next = || {
        at += 1;
        text.get(at - 1).copied().ok_or(Short)
    };
    for expected in *b"HTTP/" {
        if next()? != expected {
            return Err(Wrong);
        }
    }
    let mut numbers = [0, 0];
    for (number, (end, lowest)) in numbers.iter_mut().zip([(b'.', b'1'), (b' ', b'0')]) {
        let first = next()?;
        if !(lowest..=b'9').contains(&first) {
            return Err(Wrong);
        }
        *number = u32::from(first - b'0');
        loop {
            match next()? {
                byte if byte == end => break,
                digit @ b'0'..=b'9' if *number < 100 => *number = *number * 10 + u32::from(digit - b'0'),
                _ => return Err(Wrong),
            }
        }
    }
    let (mut code, mut digits) = (0, 0);
    while digits < 3 {
        match next()? {
            b' ' if digits == 0 => {}
            digit @ b'0'..=b'9' => {
                code = code * 10 + u16::from(digit - b'0');
                digits += 1;
            }
            _ => return Err(Wrong),
        }
    }
    let mut reason = Vec::new();
    loop {
        match next()? {
            b'\n' => break,
            b'\r' if next()? == b'\n' => break,
            b'\r' => return Err(Wrong),
            byte if !reason.is_empty() || b" .".contains(&byte) => reason.push(byte),
            _ => return Err(Wrong),
        }
    }
    Ok((numbers[0] * 1000 + numbers[1], code, reason, at))
}

enum Line {
    Header(Vec<u8>, Vec<u8>),
    Skipped,
    End,
}

/// A line and its length, or nothing where it is incomplete.
fn line(text: &[u8]) -> Result<Option<(Line, usize)>, NoLine> {
    let end = text.iter().position(|&byte| byte == b'\n');
    let line = &text[..end.unwrap_or(text.len())];
    let is_empty = matches!(line, b"" | b"\r");
    let parsed = match line {
        _ if line.starts_with(b"HTTP/") => Line::Skipped,
        _ if is_empty => Line::End,
        _ => {
            let (name, value) = parts(line)?;
            Line::Header(name.to_vec(), value.to_vec())
        }
    };
    Ok(end.map(|end| (parsed, end + 1)))
}

fn parts(line: &[u8]) -> Result<(&[u8], &[u8]), NoLine> {
    let returns = line.iter().rev().take_while(|&&byte| byte == b'\r').count();
    let line = &line[..line.len() - returns];
    let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
    let (name, value) = (&line[..colon], line.get(colon + 1..).unwrap_or_default());
    let is_fatal = |byte: &u8| *byte <= b' ' || *byte == 0x7f;
    if name.is_empty() || name.iter().any(is_fatal) || value.iter().any(|byte| b"\0\r".contains(byte)) {
        return Err(Wrong);
    }
    let from = value.iter().position(|&byte| byte != b' ').unwrap_or(value.len());
    let to = value.iter().rposition(|&byte| byte != b' ').map_or(from, |last| last + 1);
    Ok((name, &value[from..to]))
}

fn body(text: &[u8], framing: ResponseFraming, trailers: Trailers, observed: &mut Observed) {
    let length = match framing {
        ResponseFraming::Empty => 0,
        ResponseFraming::Length(bytes) => bytes,
        ResponseFraming::UntilClose => {
            observed.data = text.to_vec();
            observed.end = End::InBody(Eof::Complete);
            return;
        }
        ResponseFraming::Chunked => {
            observed.end = match chunks(text, &mut observed.data) {
                Ok(Some(section)) => match section_end(section, trailers, &mut observed.trailers) {
                    Ok(Some(rest)) => End::Complete { rest },
                    Ok(None) => End::InBody(Eof::Premature),
                    Err(fault) => {
                        observed.trailers.clear();
                        End::Fault(fault)
                    }
                },
                Ok(None) => End::InBody(Eof::Premature),
                Err(fault) => End::Fault(fault),
            };
            if !matches!(observed.end, End::Complete { .. }) {
                observed.trailers.clear();
            }
            return;
        }
    };
    let len = usize::try_from(length).unwrap_or(usize::MAX).min(text.len());
    observed.data = text[..len].to_vec();
    observed.end = match len as u64 == length {
        true => End::Complete { rest: text.len() - len },
        false => End::InBody(Eof::Premature),
    };
}

/// Appends the data of chunks; what follows the line of the last one.
fn chunks<'t>(text: &'t [u8], data: &mut Vec<u8>) -> Result<Option<&'t [u8]>, ResponseFault> {
    let mut rest = text;
    loop {
        let end = rest.iter().position(|byte| b"\r\n".contains(byte)).unwrap_or(rest.len());
        let (line, after) = rest.split_at(end);
        let digits = line.iter().position(|byte| b" \t;".contains(byte)).unwrap_or(end);
        if digits == 0 && !rest.is_empty() || !line[..digits].iter().all(u8::is_ascii_hexdigit) {
            return Err(ResponseFault::InvalidChunked);
        }
        let text = std::str::from_utf8(&line[..digits]).unwrap_or_default();
        let size = u64::from_str_radix(if text.is_empty() { "0" } else { text }, 16);
        let size = size.ok().filter(|&size| size <= i64::MAX as u64 / 16);
        let size = size.ok_or(ResponseFault::InvalidChunked)?;
        rest = match after {
            [b'\r', b'\n', rest @ ..] => rest,
            [] | [b'\r'] => return Ok(None),
            _ => return Err(ResponseFault::InvalidChunked),
        };
        if size == 0 {
            return Ok(Some(rest));
        }
        let len = usize::try_from(size).unwrap_or(usize::MAX).min(rest.len());
        data.extend_from_slice(&rest[..len]);
        rest = match &rest[len..] {
            [b'\r', b'\n', rest @ ..] => rest,
            [] | [b'\r'] => return Ok(None),
            _ => return Err(ResponseFault::InvalidChunked),
        };
    }
}

/// How many bytes are left behind the trailers.
fn section_end(text: &[u8], trailers: Trailers, lines: &mut Lines) -> Result<Option<usize>, ResponseFault> {
    let mut at = 0;
    match trailers {
        Trailers::Dropped => loop {
            let rest = &text[at..];
            let end = rest.iter().position(|byte| b"\r\n".contains(byte));
            match end.map(|end| (end, &rest[end..])) {
                None | Some((_, [b'\r'])) => return Ok(None),
                Some((0, [b'\r', b'\n', rest @ ..])) => return Ok(Some(rest.len())),
                Some((end, [b'\r', b'\n', ..])) => at += end + 2,
                _ => return Err(ResponseFault::InvalidChunked),
            }
        },
        Trailers::Kept { max_bytes } => {
            let window = &text[..text.len().min(max_bytes)];
            while let Some((line, len)) = line(&window[at..]).map_err(|_| ResponseFault::InvalidTrailer)? {
                at += len;
                match line {
                    Line::Header(name, value) => lines.push((name, value)),
                    Line::Skipped => {}
                    Line::End => return Ok(Some(text.len() - at)),
                }
            }
            if window.len() == max_bytes { Err(ResponseFault::TooBigTrailers) } else { Ok(None) }
        }
    }
}
