//! Invariants for any headers of WebDAV, checked by the fuzz target `header_values`.

use super::Depth;
use super::destination::{Fault, decode, local_part, merge_slashes};
use super::transfer::Overwrite;

/// The first line is the host of a request, the rest the value of `Destination`, and of the others.
///
/// # Panics
/// If a destination is of another host, leads upwards, or is not what was written.
pub fn check(input: &[u8]) {
    let end = input.iter().position(|&byte| byte == b'\n').unwrap_or(input.len());
    let (host, value) = (&input[..end], input.get(end + 1..).unwrap_or_default());
    match local_part(value, Some(host)) {
        Ok(part) => {
            assert!(part.starts_with(b"/") && value.ends_with(part));
            let before = &value[..value.len() - part.len()];
            assert!(before.is_empty() || before.starts_with(&[b"http://", host].concat()));
            assert!(!before.get(7 + host.len()..).is_some_and(|port| port.contains(&b'/')));
        }
        Err(Fault::NoHost) => assert!(host.is_empty() && !value.starts_with(b"/")),
        Err(Fault::Elsewhere) => assert!(!value.starts_with(&[b"http://", host].concat())),
        Err(Fault::Invalid) => assert!(!value.starts_with(b"/")),
    }
    check_path(value);
    let (depth, problem) = Depth::read(Some(value), Depth::One);
    assert_eq!(depth == Depth::Invalid, ![&b"0"[..], b"1", b"infinity"].contains(&value));
    assert_eq!(problem.is_some(), depth == Depth::Invalid);
    assert_eq!(Overwrite::read(value).is_some(), matches!(value, [b'T' | b't' | b'F' | b'f']));
}

fn check_path(uri: &[u8]) {
    let Ok(mut path) = decode(uri) else { return };
    assert!(!path.contains(&0) && path.len() <= uri.len());
    assert!(path.split(|&byte| byte == b'/').all(|name| name != b".."));
    let written = uri.split(|&byte| byte == b'?').next().unwrap_or_default();
    let parts: Vec<&[u8]> = written.split(|&byte| byte == b'%').collect();
    let is_well_formed =
        parts.iter().skip(1).all(|part| part.len() > 1 && part[..2].iter().all(u8::is_ascii_hexdigit));
    if is_well_formed {
        let mut expected = parts[0].to_vec();
        for part in &parts[1..] {
            let digits = std::str::from_utf8(&part[..2]).expect("they are digits");
            expected.push(u8::from_str_radix(digits, 16).expect("they are digits"));
            expected.extend_from_slice(&part[2..]);
        }
        assert_eq!(path, expected);
    }
    let names = |path: &[u8]| -> Vec<Vec<u8>> {
        path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
    };
    let before = names(&path);
    merge_slashes(&mut path);
    assert!(names(&path) == before && !path.windows(2).any(|two| two == b"//"));
}
