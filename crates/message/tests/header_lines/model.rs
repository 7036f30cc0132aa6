//! Header lines against a list of owned ones: what the proptest and the fuzz target `header_lines` compare.

use clearway_message::{Header, HeaderName, Headers, Known, Piece, Span, name_hash};

/// One thing that is done to a list.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    Add(Vec<u8>, Vec<u8>),
    Set(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    /// Appends to the values, and drops those that become longer than so many bytes.
    Replace(Vec<u8>, Vec<u8>, usize),
}

/// A line as it is received: name, what stands between it and the value, value, end.
pub(crate) type Received = (Vec<u8>, &'static str, Vec<u8>, &'static str);

/// Applies the edits to both lists, compares them after each, and returns what is sent.
pub(crate) fn check(received: &[Received], edits: &[Edit]) -> Vec<u8> {
    let (mut bytes, mut spans) = (Vec::new(), Vec::new());
    for (name, between, value, end) in received {
        let start = bytes.len();
        bytes.extend_from_slice(name);
        let name_end = bytes.len();
        bytes.extend_from_slice(between.as_bytes());
        let value_start = bytes.len();
        bytes.extend_from_slice(value);
        spans.push(Header {
            name: Span::new(start, name_end),
            value: Span::new(value_start, bytes.len()),
            hash: name_hash(name),
            known: Known::find(name),
        });
        bytes.extend_from_slice(end.as_bytes());
    }
    let mut headers = Headers::default();
    headers.pass(bytes, spans);
    let mut model: Vec<(Vec<u8>, Vec<u8>)> =
        received.iter().map(|(name, _, value, _)| (name.clone(), value.clone())).collect();
    compare(&headers, &model);
    for edit in edits {
        apply(&mut headers, edit);
        apply_to_model(&mut model, edit);
        compare(&headers, &model);
    }
    sent(&headers)
}

fn apply(headers: &mut Headers, edit: &Edit) {
    match edit {
        Edit::Add(name, value) => headers.add(name, value),
        Edit::Set(name, value) => headers.set(HeaderName::new(name), value),
        Edit::Remove(name) => {
            let was_there = headers.has(HeaderName::new(name));
            assert_eq!(headers.remove(HeaderName::new(name)), was_there);
        }
        Edit::Replace(name, more, max_bytes) => headers.replace(HeaderName::new(name), |value| {
            Some([value, more].concat()).filter(|value| value.len() <= *max_bytes)
        }),
    }
}

fn apply_to_model(model: &mut Vec<(Vec<u8>, Vec<u8>)>, edit: &Edit) {
    match edit {
        Edit::Add(name, value) => model.push((clean(name), clean(value))),
        Edit::Set(name, value) => {
            let first = model.iter().position(|(other, _)| other.eq_ignore_ascii_case(name));
            let at = first.unwrap_or(model.len());
            let mut line = vec![(clean(name), clean(value))];
            line.extend(
                model
                    .drain(at..)
                    .skip(usize::from(first.is_some()))
                    .filter(|(other, _)| !other.eq_ignore_ascii_case(name)),
            );
            model.extend(line);
        }
        Edit::Remove(name) => model.retain(|(other, _)| !other.eq_ignore_ascii_case(name)),
        Edit::Replace(name, more, max_bytes) => model.retain_mut(|(other, value)| {
            if !other.eq_ignore_ascii_case(name) {
                return true;
            }
            value.extend_from_slice(more);
            let fits = value.len() <= *max_bytes;
            *value = clean(value);
            fits
        }),
    }
}

fn compare(headers: &Headers, model: &[(Vec<u8>, Vec<u8>)]) {
    let lines: Vec<_> = headers.iter().map(|line| (line.name.to_vec(), line.value.to_vec())).collect();
    assert_eq!(lines, model);
    for line in headers.iter() {
        assert_eq!(line.known, Known::find(line.name));
    }
    for (name, _) in model {
        let values = model.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        let values: Vec<&[u8]> = values.map(|(_, value)| &value[..]).collect();
        assert_eq!(headers.named(HeaderName::new(name)).collect::<Vec<_>>(), values);
    }
    let expected: Vec<u8> =
        model.iter().flat_map(|(name, value)| [name, &b": "[..], value, b"\r\n"].concat()).collect();
    assert_eq!(sent(headers), expected);
}

fn sent(headers: &Headers) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in headers.pieces() {
        match piece {
            Piece::Lines(lines) => out.extend_from_slice(lines),
            Piece::Line(name, value) => out.extend([name, b": ", value, b"\r\n"].concat()),
        }
    }
    out
}

fn clean(text: &[u8]) -> Vec<u8> {
    text.iter().map(|&byte| if b"\r\n\0".contains(&byte) { b' ' } else { byte }).collect()
}
