//! The value of a `priority` field, which PRIORITY_UPDATE has as well (RFC 9218 §4): a dictionary of
//! structured fields. What is not understood of it is left out, as if it was not said.

/// How urgent a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Urgency {
    level: u8,
    delivery: Delivery,
}

/// How a response is of use to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    /// When it is complete.
    Whole,
    /// In parts, as they come.
    Incremental,
}

impl Default for Urgency {
    fn default() -> Self {
        Self { level: 3, delivery: Delivery::Whole }
    }
}

impl Urgency {
    /// How many levels there are.
    pub const LEVELS: usize = 8;

    /// Reads the value of a field.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        let mut urgency = Self::default();
        for member in text.split(|&byte| byte == b',') {
            let member = member.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
            match member {
                [b'u', b'=', level @ b'0'..=b'7'] => urgency.level = level - b'0',
                b"i" | b"i=?1" => urgency.delivery = Delivery::Incremental,
                b"i=?0" => urgency.delivery = Delivery::Whole,
                _ => {}
            }
        }
        urgency
    }

    /// 0 is sent first, 7 last.
    #[must_use]
    pub fn level(self) -> usize {
        usize::from(self.level)
    }

    /// Whether a part of the response is of use.
    #[must_use]
    pub fn is_incremental(self) -> bool {
        self.delivery == Delivery::Incremental
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_understood_is_left_out() {
        for (text, level, is_incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i;a=b, u=2;x", 2, true),
            ("i=?1", 3, true),
            ("i, i=?0", 3, false),
            ("u=8", 3, false),
            ("u=-1,i=1", 3, false),
            ("u=5,u=1, other=\"x\"", 1, false),
        ] {
            let urgency = Urgency::parse(text.as_bytes());
            assert_eq!((urgency.level(), urgency.is_incremental()), (level, is_incremental), "{text}");
        }
    }
}
