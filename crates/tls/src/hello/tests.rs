//! Hellos that are written here, whole and in pieces, and what is wrong with them.

use super::*;

fn prefixed_u8(content: &[u8]) -> Vec<u8> {
    [&[u8::try_from(content.len()).unwrap()], content].concat()
}

fn prefixed_u16(content: &[u8]) -> Vec<u8> {
    [&u16::try_from(content.len()).unwrap().to_be_bytes(), content].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &prefixed_u16(content)].concat()
}

fn server_name(name: &[u8]) -> Vec<u8> {
    extension(0, &prefixed_u16(&[&[0][..], &prefixed_u16(name)].concat()))
}

/// A body with these suites and extensions.
fn body(suites: &[u8], extensions: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; RANDOM_LENGTH]);
    body.extend(prefixed_u8(&[9; 32]));
    body.extend(prefixed_u16(suites));
    body.extend(prefixed_u8(&[0]));
    body.extend(prefixed_u16(&extensions.concat()));
    body
}

fn modern() -> Vec<u8> {
    body(
        &[0x13, 0x01, 0xc0, 0x2f],
        &[
            server_name(b"www.example.com"),
            extension(10, &prefixed_u16(&[0x11, 0xec, 0, 29])),
            extension(13, &prefixed_u16(&[4, 3, 8, 4])),
            extension(16, &prefixed_u16(b"\x02h2\x08http/1.1")),
            extension(27, &prefixed_u8(&[0, 1, 0, 2])),
            extension(35, b""),
            extension(42, b""),
            extension(43, &prefixed_u8(&[0x0a, 0x0a, 3, 4, 3, 3])),
            extension(45, &prefixed_u8(&[1])),
            extension(51, &prefixed_u16(&[&[0, 29][..], &prefixed_u16(&[5; 32])].concat())),
            extension(0xfe0d, b"any"),
            extension(
                41,
                &[prefixed_u16(&[&prefixed_u16(b"ticket")[..], &[0; 4]].concat()), prefixed_u16(&[32; 33])]
                    .concat(),
            ),
        ],
    )
}

fn message(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[1, length[1], length[2], length[3]], body].concat()
}

/// A message in records of `size` bytes.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|part| [&[22, 3, 1][..], &prefixed_u16(part)].concat()).collect()
}

fn read(received: &[u8]) -> Result<Option<Hello>, HelloError> {
    HelloReader::default().read(received)
}

fn refused(body: &[u8]) -> HelloError {
    Hello::parse(body).map(|_| ()).unwrap_err()
}

#[test]
fn a_hello_says_what_it_holds() {
    let hello = Hello::parse(&modern()).unwrap();
    assert_eq!(hello.server_name(), Some(&b"www.example.com"[..]));
    assert_eq!(hello.protocols().collect::<Vec<_>>(), [&b"h2"[..], b"http/1.1"]);
    assert_eq!(hello.versions().collect::<Vec<_>>(), [0x0a0a, 0x0304, 0x0303]);
    assert_eq!(hello.suites().collect::<Vec<_>>(), [0x1301, 0xc02f]);
    assert_eq!(hello.groups().collect::<Vec<_>>(), [0x11ec, 29]);
    assert_eq!(hello.signatures().collect::<Vec<_>>(), [0x0403, 0x0804]);
    assert_eq!(hello.key_shares().collect::<Vec<_>>(), [29]);
    assert_eq!(hello.compressions().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(hello.session_id(), [9; 32]);
    assert_eq!(hello.ticket(), Some(&b""[..]));
    assert_eq!(hello.identity(), Some(&b"ticket"[..]));
    assert!(hello.has_early_data() && hello.takes_up_with_exchange() && hello.has_encrypted_hello());
}

#[test]
fn without_extensions_the_version_says_all() {
    let mut body = body(&[0, 0x2f], &[]);
    body.truncate(body.len() - 2);
    let hello = Hello::parse(&body).unwrap();
    assert_eq!(hello.versions().collect::<Vec<_>>(), [0x0303, 0x0302, 0x0301]);
    assert_eq!((hello.server_name(), hello.ticket(), hello.identity()), (None, None, None));
    assert_eq!(hello.protocols().count() + hello.groups().count() + hello.key_shares().count(), 0);
    assert!(!hello.has_early_data() && !hello.takes_up_with_exchange());
    body[1] = 1;
    assert_eq!(Hello::parse(&body).unwrap().versions().collect::<Vec<_>>(), [0x0301]);
    body[1] = 0;
    assert_eq!(refused(&body), HelloError::Version, "SSL 3.0");
}

#[test]
fn records_of_any_size_hold_it() {
    let message = message(&modern());
    for size in [1, 2, 3, 4, 5, 100, message.len()] {
        let hello = read(&records(&message, size)).unwrap().unwrap();
        assert_eq!(&hello.body[..], modern(), "records of {size} bytes");
    }
}

#[test]
fn bytes_may_come_one_by_one() {
    for size in [1, 7, 16_384] {
        let records = records(&message(&modern()), size);
        let mut reader = HelloReader::default();
        for end in 0..records.len() {
            assert!(reader.read(&records[..end]).unwrap().is_none(), "{end} of {}", records.len());
        }
        assert!(reader.read(&records).unwrap().is_some());
    }
}

#[test]
fn early_data_behind_it_is_not_looked_at() {
    let mut received = records(&message(&modern()), 16_384);
    received.extend([23, 9, 9, 255, 255]);
    assert!(read(&received).unwrap().is_some());
}

#[test]
fn every_prefix_is_refused_or_waited_for() {
    let body = modern();
    // Without its extensions it would be whole.
    let fixed = 2 + RANDOM_LENGTH + 1 + 32 + 2 + 4 + 2;
    for end in (0..body.len()).filter(|&end| end != fixed) {
        let expected = if end < 2 { HelloError::TooShort } else { HelloError::Malformed };
        assert_eq!(refused(&body[..end]), expected, "{end}");
    }
    let longer = [&body[..], b"x"].concat();
    assert_eq!(refused(&longer), HelloError::Malformed);
}

#[test]
fn records_that_are_none_are_refused() {
    let error = |received: &[u8]| read(received).map(|_| ()).unwrap_err();
    assert_eq!(error(b"GET / HTTP/1.1\r\n"), HelloError::RecordVersion);
    assert_eq!(error(&[23, 3, 1, 0, 1, 0]), HelloError::UnexpectedRecord);
    assert_eq!(error(&[21, 3, 1, 0, 2, 2, 40]), HelloError::Alert);
    assert_eq!(error(&[22, 3, 1, 0x40, 1]), HelloError::RecordTooLong);
    assert_eq!(error(&records(&[2, 0, 0, 0], 9)), HelloError::UnexpectedMessage);
    assert_eq!(error(&records(&[1, 0, 0x40, 1], 9)), HelloError::TooLong);
    let empty = [22, 3, 1, 0, 0].repeat(usize::from(EMPTY_RECORDS_MAX));
    let hello = records(&message(&modern()), 16_384);
    assert!(read(&[&empty[..], &hello].concat()).unwrap().is_some());
    assert_eq!(error(&[&empty[..], &[22, 3, 1, 0, 0]].concat()), HelloError::EmptyRecords);
}

#[test]
fn what_a_client_may_have_held_is_limited() {
    let message = message(&body(&[0x13, 1].repeat(3_000), &[]));
    let received = records(&message, 1);
    assert!(read(&received[..RECEIVED_MAX - 1]).unwrap().is_none());
    assert_eq!(read(&received[..RECEIVED_MAX]).map(|_| ()).unwrap_err(), HelloError::TooLong);
    assert!(read(&records(&message, 2)).unwrap().is_some());
}

#[test]
fn extensions_have_their_form() {
    let with = |kind, content: &[u8]| refused(&body(&[0, 1], &[extension(kind, content)]));
    for kind in [0, 10, 13, 16, 43] {
        let error = if kind == 0 { HelloError::ServerNames } else { HelloError::Extension(kind) };
        let cut = if kind == 43 { HelloError::NoVersion } else { error };
        assert_eq!(with(kind, b""), error, "nothing");
        assert_eq!(with(kind, &[0]), cut, "an empty list, or a cut one");
        assert_eq!(with(kind, &[0, 3, 1, 1]), error, "a cut list");
        assert_eq!(with(kind, &[0, 2, 1, 1, 1]), error, "more than the list");
    }
    let cut = refused(&body(&[0, 1], &[extension(60_000, b"")[..3].to_vec()]));
    assert_eq!(cut, HelloError::Extensions);
    assert_eq!(with(16, &prefixed_u16(&[0])), HelloError::Extension(16), "a protocol without a name");
    assert_eq!(with(10, &prefixed_u16(&[0, 29, 0])), HelloError::Extension(10));
    assert_eq!(with(0, &prefixed_u16(&[1, 0, 1, b'a'])), HelloError::ServerNames, "another kind of name");
    let twice = [extension(5, b"a"), extension(23, b""), extension(5, b"b")];
    assert_eq!(refused(&body(&[0, 1], &twice)), HelloError::Extension(5));
}

#[test]
fn names_that_can_be_none_are_refused() {
    let with = |name: &[u8]| Hello::parse(&body(&[0, 1], &[server_name(name)])).map(|_| ());
    assert_eq!(with(&[b'a'; SERVER_NAME_MAX]), Ok(()));
    for name in [&b""[..], b"a\0b", &[b'a'; SERVER_NAME_MAX + 1]] {
        assert_eq!(with(name), Err(HelloError::ServerName));
    }
}

#[test]
fn every_error_tells_the_client() {
    assert_eq!(HelloError::Alert.alert(), 10);
    assert_eq!(HelloError::RecordVersion.alert(), 70);
    assert_eq!(HelloError::Extension(16).alert(), 50);
    assert_eq!(HelloError::Extension(16).to_string(), "bad extension");
}
