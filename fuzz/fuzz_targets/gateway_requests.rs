//! What is asked of applications: whatever parameters there are, a plain reading of the bytes gives the same
//! ones back, or the request is refused. A line of the input is a parameter: its name, `=`, its value; a line
//! that begins with a digit has its value repeated that many thousand times.
#![no_main]

use clearway_gateway::{fastcgi, memcached, scgi, uwsgi};

type Params = Vec<(Vec<u8>, Vec<u8>)>;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let params: Params = input.split(|&byte| byte == b'\n').map(param).collect();
    through_fastcgi(&params);
    through_scgi(&params);
    through_uwsgi(&params);
    key(input);
});

fn param(line: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let equals = line.iter().position(|&byte| byte == b'=').unwrap_or(line.len());
    let (name, value) = (&line[..equals], line.get(equals + 1..).unwrap_or_default());
    let times =
        name.first().filter(|byte| byte.is_ascii_digit()).map_or(1, |byte| usize::from(byte - b'0') * 1000);
    (name.to_vec(), value.repeat(times))
}

fn through_fastcgi(params: &Params) {
    let mut out = Vec::new();
    let mut request = fastcgi::Request::begin(&mut out, fastcgi::KeepConnection::No);
    params.iter().for_each(|(name, value)| request.param(name, value));
    let is_said = request.finish().is_ok();
    let length = |text: &[u8]| text.len() + if text.len() < 128 { 1 } else { 4 };
    let bytes: usize = params.iter().map(|(name, value)| length(name) + length(value)).sum();
    assert_eq!(is_said, bytes <= 65_535);
    if !is_said {
        return;
    }
    // Behind the record that begins the request.
    let header = &out[16..24];
    assert_eq!(header[..4], [1, 4, 0, 1]);
    let (content, padding) =
        (usize::from(u16::from_be_bytes([header[4], header[5]])), usize::from(header[6]));
    assert!(content == bytes && (content + padding) % 8 == 0 && out.len() == 24 + content + padding + 8);
    let mut rest = &out[24..24 + content];
    for (name, value) in params {
        let lengths = [take_length(&mut rest), take_length(&mut rest)];
        assert_eq!(lengths, [name.len(), value.len()]);
        assert_eq!((take(&mut rest, lengths[0]), take(&mut rest, lengths[1])), (&name[..], &value[..]));
    }
    assert!(rest.is_empty());
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> &'a [u8] {
    let (taken, behind) = rest.split_at(bytes);
    *rest = behind;
    taken
}

fn take_length(rest: &mut &[u8]) -> usize {
    match take(rest, 1)[0] {
        short @ 0..128 => usize::from(short),
        long => take(rest, 3).iter().fold(usize::from(long & 127), |sum, &byte| sum << 8 | usize::from(byte)),
    }
}

fn through_scgi(params: &Params) {
    let mut out = Vec::new();
    let mut request = scgi::Request::begin(&mut out, 7);
    params.iter().for_each(|(name, value)| request.param(name, value));
    let is_said = request.finish().is_ok();
    assert_eq!(is_said, params.iter().all(|(name, value)| !name.contains(&0) && !value.contains(&0)));
    if !is_said {
        return;
    }
    let colon = out.iter().position(|&byte| byte == b':').expect("a length comes first");
    let length: usize = String::from_utf8_lossy(&out[..colon]).parse().expect("it is a number");
    assert_eq!((out.len(), out.last()), (colon + 1 + length + 1, Some(&b',')));
    let mut texts = out[colon + 1..colon + 1 + length].split(|&byte| byte == 0);
    assert_eq!([texts.next(), texts.next()], [Some(&b"CONTENT_LENGTH"[..]), Some(b"7")]);
    for (name, value) in params {
        assert_eq!([texts.next(), texts.next()], [Some(&name[..]), Some(value)]);
    }
    assert_eq!((texts.next(), texts.next()), (Some(&b""[..]), None));
}

fn through_uwsgi(params: &Params) {
    let mut out = Vec::new();
    let mut request = uwsgi::Request::begin(&mut out, [1, 2]);
    params.iter().for_each(|(name, value)| request.param(name, value));
    let is_said = request.finish(b"!").is_ok();
    let bytes = 1 + params.iter().map(|(name, value)| 4 + name.len() + value.len()).sum::<usize>();
    assert_eq!(is_said, bytes <= 65_535);
    if !is_said {
        return;
    }
    assert_eq!([out[0], out[3]], [1, 2]);
    assert_eq!((usize::from(u16::from_le_bytes([out[1], out[2]])), out.len()), (bytes, 4 + bytes));
    let mut rest = &out[4..];
    for text in params.iter().flat_map(|(name, value)| [name, value]) {
        let length = take(&mut rest, 2);
        assert_eq!(take(&mut rest, usize::from(u16::from_le_bytes([length[0], length[1]]))), text);
    }
    assert_eq!(rest, b"!");
}

/// A key is one word on one line, whatever it is made of.
fn key(key: &[u8]) {
    let mut out = Vec::new();
    let sent = memcached::push_get(key, &mut out);
    let line = out.strip_suffix(b"\r\n").expect("the line ends");
    assert_eq!(line.strip_prefix(b"get "), Some(&out[sent.clone()]));
    assert!(out[sent].iter().all(|&byte| byte > b' '));
}
