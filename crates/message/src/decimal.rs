//! Numbers as text.

use std::net::Ipv4Addr;

/// Writes a number in decimal.
pub fn put_decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Writes an address: its four numbers with dots between them.
pub fn put_ipv4(out: &mut Vec<u8>, address: Ipv4Addr) {
    for (index, octet) in address.octets().into_iter().enumerate() {
        if index > 0 {
            out.push(b'.');
        }
        put_decimal(out, u64::from(octet));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals() {
        for number in [0, 7, 10, 65535, u64::MAX] {
            let mut out = Vec::new();
            put_decimal(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }

    #[test]
    fn addresses() {
        for address in [Ipv4Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST, Ipv4Addr::new(203, 0, 113, 255)] {
            let mut out = b"at ".to_vec();
            put_ipv4(&mut out, address);
            assert_eq!(out, format!("at {address}").as_bytes());
        }
    }
}
