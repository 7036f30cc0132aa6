//! The variables of a connection with TLS, in the forms of OpenSSL and nginx. On a plain connection there are
//! none of them.

use clearway_http::{Presence, Tls, VariableKind, VariableSpec, View};
use clearway_tls::ciphers::Suite;
use clearway_tls::engine::Verified;
use clearway_tls::level::Version;
use clearway_tls::{Certificate, NameOf};

macro_rules! variable {
    ($name:literal, $doc:literal, $eval:expr) => {
        VariableSpec {
            name: $name,
            kind: VariableKind::Exact,
            doc: $doc,
            eval: |view, _, out| {
                let eval: fn(&Tls, &View<'_, '_>) -> Option<Vec<u8>> = $eval;
                let value = view.request.tls().and_then(|tls| eval(tls, view));
                Presence::put(value.as_deref().filter(|value| !value.is_empty()), out)
            },
        }
    };
}

pub(super) static VARIABLES: &[VariableSpec] = &[
    variable!("ssl_protocol", "Version of TLS, such as `TLSv1.3`.", |tls, _| {
        Some(tls.info().version?.name().into())
    }),
    variable!("ssl_cipher", "Cipher suite of the connection.", |tls, _| Some(tls.info().suite?.into())),
    variable!("ssl_ciphers", "Cipher suites that the client knows, with colons.", |tls, _| {
        Some(listed(&tls.offer.suites, |number| match Suite::numbered(number) {
            Some(suite) => suite.name.to_owned(),
            None => {
                let name = suite_of_13(number).or_else(|| signal(number));
                name.map_or_else(|| format!("0x{number:04x}"), str::to_owned)
            }
        }))
    }),
    variable!("ssl_curve", "Group of the key exchange.", |tls, _| {
        let number = tls.info().group;
        (number != 0).then(|| group(number).into_bytes())
    }),
    variable!("ssl_curves", "Groups of key exchanges that the client knows, with colons.", |tls, _| {
        Some(listed(&tls.offer.groups, group))
    }),
    variable!("ssl_sigalg", "Signature algorithm of the server's part of the handshake.", |tls, _| {
        let number = tls.info().signature;
        (number != 0).then(|| signature(number).into_bytes())
    }),
    variable!("ssl_sigalgs", "Signature algorithms that the client knows, with colons.", |tls, _| {
        Some(listed(&tls.offer.signatures, signature))
    }),
    variable!(
        "ssl_session_id",
        "Identifier of the session, in hexadecimal digits; with TLS 1.3 of the connection.",
        |tls, _| { Some(hex(&tls.info().session_id)) }
    ),
    variable!("ssl_session_reused", "`r` where a session was taken up, else `.`.", |tls, _| {
        Some(if tls.info().is_resumed { b"r" } else { b"." }.to_vec())
    }),
    variable!("ssl_early_data", "`1` for a request that came before the end of the handshake.", |tls, _| {
        tls.is_early().then(|| b"1".to_vec())
    }),
    variable!("ssl_server_name", "Host that the client asked for in the handshake (SNI).", |tls, _| {
        Some(tls.offer.server_name.as_ref()?.to_vec())
    }),
    variable!("ssl_ech_status", "Nothing: encrypted hellos are not read.", |_, _| None),
    variable!("ssl_ech_outer_server_name", "Nothing: encrypted hellos are not read.", |_, _| None),
    variable!("ssl_alpn_protocol", "Protocol that was agreed on in the handshake (ALPN).", |tls, _| {
        tls.info().protocol
    }),
    variable!(
        "ssl_client_cert",
        "The client's certificate in PEM; each line but the first begins with a tab.",
        |tls, _| {
            let pem = certificate(tls)?.to_pem()?;
            let lines = pem.trim_ascii_end().split(|&byte| byte == b'\n');
            Some(lines.collect::<Vec<_>>().join(&b"\n\t"[..]))
        }
    ),
    variable!("ssl_client_raw_cert", "The client's certificate in PEM.", |tls, _| {
        certificate(tls)?.to_pem()
    }),
    variable!("ssl_client_escaped_cert", "The client's certificate in PEM, percent-encoded.", |tls, _| {
        Some(escaped(&certificate(tls)?.to_pem()?))
    }),
    variable!("ssl_client_s_dn", "Subject of the client's certificate (RFC 2253).", |tls, _| {
        certificate(tls)?.distinguished_name(NameOf::Subject)
    }),
    variable!("ssl_client_i_dn", "Issuer of the client's certificate (RFC 2253).", |tls, _| {
        certificate(tls)?.distinguished_name(NameOf::Issuer)
    }),
    variable!("ssl_client_s_dn_legacy", "The same as `/C=…/CN=…`.", |tls, _| {
        certificate(tls)?.legacy_name(NameOf::Subject)
    }),
    variable!("ssl_client_i_dn_legacy", "The same as `/C=…/CN=…`.", |tls, _| {
        certificate(tls)?.legacy_name(NameOf::Issuer)
    }),
    variable!("ssl_client_serial", "Number of the client's certificate.", |tls, _| {
        certificate(tls)?.serial()
    }),
    variable!("ssl_client_fingerprint", "SHA-1 of the client's certificate.", |tls, _| {
        Some(hex(&certificate(tls)?.fingerprint()?))
    }),
    variable!(
        "ssl_client_verify",
        "`SUCCESS`, `FAILED:REASON`, or `NONE` without a certificate.",
        |tls, _| {
            Some(match tls.info().verification {
                Verified::None => b"NONE".to_vec(),
                Verified::Sound => b"SUCCESS".to_vec(),
                Verified::Failed(_, reason) => format!("FAILED:{reason}").into_bytes(),
            })
        }
    ),
    variable!("ssl_client_v_start", "From when on the client's certificate is good.", |tls, _| {
        certificate(tls)?.begins()
    }),
    variable!("ssl_client_v_end", "Until when the client's certificate is good.", |tls, _| {
        certificate(tls)?.ends()
    }),
    variable!("ssl_client_v_remain", "For how many days the client's certificate is good.", |tls, view| {
        const DAY_S: i64 = 86_400;
        let left_s = certificate(tls)?.ends_at_s()? - view.request.now_unix_s();
        Some((left_s.max(0) / DAY_S).to_string().into_bytes())
    }),
    variable!("ssl_client_sigalg", "Signature algorithm of the client's part of the handshake.", |tls, _| {
        let number = tls.info().peer_signature;
        (number != 0).then(|| signature(number).into_bytes())
    }),
];

fn certificate(tls: &Tls) -> Option<Certificate> {
    Certificate::from_der(&tls.peer_certificate()?)
}

fn listed(numbers: &[u16], name: impl Fn(u16) -> String) -> Vec<u8> {
    let names: Vec<String> = numbers.iter().map(|&number| name(number)).collect();
    names.join(":").into_bytes()
}

/// Numbers among suites that stand for none but say something else (RFC 5746, RFC 7507).
fn signal(number: u16) -> Option<&'static str> {
    match number {
        0x00ff => Some("TLS_EMPTY_RENEGOTIATION_INFO_SCSV"),
        0x5600 => Some("TLS_FALLBACK_SCSV"),
        _ => None,
    }
}

fn suite_of_13(number: u16) -> Option<&'static str> {
    debug_assert!(Version::Tls13.number() > 0);
    Some(match number {
        0x1301 => "TLS_AES_128_GCM_SHA256",
        0x1302 => "TLS_AES_256_GCM_SHA384",
        0x1303 => "TLS_CHACHA20_POLY1305_SHA256",
        0x1304 => "TLS_AES_128_CCM_SHA256",
        0x1305 => "TLS_AES_128_CCM_8_SHA256",
        _ => return None,
    })
}

/// A group as OpenSSL calls it, or its number.
fn group(number: u16) -> String {
    let name = match number {
        21 => "secp224r1",
        22 => "secp256k1",
        23 => "prime256v1",
        24 => "secp384r1",
        25 => "secp521r1",
        26 => "brainpoolP256r1",
        27 => "brainpoolP384r1",
        28 => "brainpoolP512r1",
        29 => "X25519",
        30 => "X448",
        256 => "ffdhe2048",
        257 => "ffdhe3072",
        258 => "ffdhe4096",
        259 => "ffdhe6144",
        260 => "ffdhe8192",
        0x11eb => "SecP256r1MLKEM768",
        0x11ec => "X25519MLKEM768",
        0x11ed => "SecP384r1MLKEM1024",
        _ => return format!("0x{number:04x}"),
    };
    name.to_owned()
}

/// A signature algorithm as OpenSSL calls it, or its number.
fn signature(number: u16) -> String {
    let name = match number {
        0x0401 => "rsa_pkcs1_sha256",
        0x0501 => "rsa_pkcs1_sha384",
        0x0601 => "rsa_pkcs1_sha512",
        0x0403 => "ecdsa_secp256r1_sha256",
        0x0503 => "ecdsa_secp384r1_sha384",
        0x0603 => "ecdsa_secp521r1_sha512",
        0x0804 => "rsa_pss_rsae_sha256",
        0x0805 => "rsa_pss_rsae_sha384",
        0x0806 => "rsa_pss_rsae_sha512",
        0x0807 => "ed25519",
        0x0808 => "ed448",
        0x0809 => "rsa_pss_pss_sha256",
        0x080a => "rsa_pss_pss_sha384",
        0x080b => "rsa_pss_pss_sha512",
        0x0201 => "rsa_pkcs1_sha1",
        0x0203 => "ecdsa_sha1",
        _ => return format!("0x{number:04x}"),
    };
    name.to_owned()
}

fn hex(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]).collect()
}

/// As nginx escapes a component of a URI.
fn escaped(text: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = Vec::with_capacity(text.len() * 3);
    for &byte in text {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte);
        } else {
            out.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
    out
}
