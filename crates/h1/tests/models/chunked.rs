//! The chunked coding by its grammar, for a reader that has all of a body at once: what the decoder is
//! compared with by tests, and by the fuzz target `h1_body`. It knows no limits on overhead and trailers.

use clearway_h1::{BodyDecoder, BodyEvent, Fault};
use clearway_message::BodyLength;

/// Data, and how many bytes are left behind a complete body (`None`: it is incomplete).
pub(crate) type DecodingOutcome = Result<(Vec<u8>, Option<usize>), Fault>;

/// What the decoder makes of a body that comes in pieces of `piece` bytes.
///
/// # Errors
/// The mistake that the decoder has found.
pub(crate) fn decode(body: &[u8], piece: usize, limit: u64) -> DecodingOutcome {
    decode_cut(body, (1..).map(|count: usize| count.saturating_mul(piece)), limit)
}

/// What the decoder makes of a body of which more and more bytes are there; all of them in the end.
///
/// # Errors
/// The mistake that the decoder has found.
pub(crate) fn decode_cut(body: &[u8], cuts: impl IntoIterator<Item = usize>, limit: u64) -> DecodingOutcome {
    let mut decoder = BodyDecoder::new(BodyLength::Chunked);
    decoder.limit(limit)?;
    let mut cuts = cuts.into_iter();
    let (mut data, mut start, mut end) = (Vec::new(), 0, 0);
    loop {
        let decoded = decoder.decode(&body[start..end])?;
        match decoded.event {
            BodyEvent::Data(range) => {
                assert!(!range.is_empty());
                data.extend_from_slice(&body[start..end][range]);
            }
            BodyEvent::End => return Ok((data, Some(body.len() - start - decoded.consumed))),
            BodyEvent::NeedInput if end == body.len() => return Ok((data, None)),
            BodyEvent::NeedInput => end = cuts.next().unwrap_or(body.len()).clamp(end, body.len()),
        }
        assert_eq!(decoder.received(), data.len() as u64);
        start += decoded.consumed;
    }
}

/// The same by the grammar.
///
/// # Errors
/// The mistake.
pub(crate) fn reference(body: &[u8], limit: u64) -> DecodingOutcome {
    let (mut data, mut rest) = (Vec::new(), body);
    loop {
        let Some((size, after)) = take_line(rest, parse_size)? else {
            return Ok((data, None));
        };
        if size == 0 {
            rest = after;
            break;
        }
        if data.len() as u64 + size > limit {
            return Err(Fault::ChunkedBodyTooLarge);
        }
        let len = usize::try_from(size).expect("not above the limit").min(after.len());
        data.extend_from_slice(&after[..len]);
        match &after[len..] {
            [] | [b'\r'] => return Ok((data, None)),
            [b'\r', b'\n', next @ ..] => rest = next,
            _ => return Err(Fault::InvalidChunkedBody),
        }
    }
    while let Some((len, after)) = take_line(rest, |line| Ok(line.len() as u64))? {
        if len == 0 {
            return Ok((data, Some(after.len())));
        }
        rest = after;
    }
    Ok((data, None))
}

/// Parses a line that CRLF ends; an incomplete one has to be the beginning of a valid one.
fn take_line(text: &[u8], parse: fn(&[u8]) -> Result<u64, Fault>) -> Result<Option<(u64, &[u8])>, Fault> {
    let end = text.iter().position(|byte| b"\r\n".contains(byte));
    match end.map(|end| (&text[..end], &text[end..])) {
        None if text.is_empty() => Ok(None),
        None => parse(text).map(|_| None),
        Some((line, [b'\r'])) => parse(line).map(|_| None),
        Some((line, [b'\r', b'\n', rest @ ..])) => parse(line).map(|number| Some((number, rest))),
        _ => Err(Fault::InvalidChunkedBody),
    }
}

fn parse_size(line: &[u8]) -> Result<u64, Fault> {
    let end = line.iter().position(|byte| b" \t;".contains(byte)).unwrap_or(line.len());
    let digits = std::str::from_utf8(&line[..end]).map_err(|_| Fault::InvalidChunkedBody)?;
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(Fault::InvalidChunkedBody);
    }
    match u64::from_str_radix(digits, 16) {
        Ok(size) if size <= i64::MAX as u64 / 16 => Ok(size),
        _ => Err(Fault::InvalidChunkedBody),
    }
}
