//! The settings that each side sends (RFC 9113 §6.5).

use crate::frame::{FrameHead, PAYLOAD_MIN_MAX_BYTES, STREAM_MAX, Violation, flag, kind};

/// Numbers of settings.
mod number {
    pub(super) const HEADER_TABLE_SIZE: u16 = 1;
    pub(super) const ENABLE_PUSH: u16 = 2;
    pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(super) const MAX_FRAME_SIZE: u16 = 5;
    pub(super) const NO_RFC7540_PRIORITIES: u16 = 9;
}

/// The longest payload that may be allowed, bytes.
const PAYLOAD_MAX_BYTES: u32 = (1 << 24) - 1;

/// The settings of one frame; `None` leaves the earlier value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How large the table of header fields may become that the other side decodes with, bytes.
    pub header_table_bytes: Option<u32>,
    /// Whether it may be pushed to.
    pub push: Option<Push>,
    /// How many streams it takes at once.
    pub concurrent_streams: Option<u32>,
    /// How many bytes may be sent on a new stream, up to 2^31 − 1.
    pub window_bytes: Option<u32>,
    /// The longest payload that it takes, bytes.
    pub payload_max_bytes: Option<u32>,
    /// Whether it uses the priorities of RFC 7540.
    pub priorities: Option<Priorities>,
}

/// Whether responses may be pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Push {
    Disabled,
    Enabled,
}

/// Which priorities are meant (RFC 9218 §2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priorities {
    /// The tree of RFC 7540.
    Tree,
    /// The tree of RFC 7540 is not used.
    NoTree,
}

impl Settings {
    /// Length of a setting, bytes.
    pub const ENTRY_BYTES: usize = 6;

    /// Reads whole settings. Those that are not known are skipped; of several the last one holds.
    ///
    /// # Errors
    /// One has a value that it may not have.
    pub(crate) fn read(payload: &[u8]) -> Result<Self, Violation> {
        let mut settings = Self::default();
        for entry in payload.chunks_exact(Self::ENTRY_BYTES) {
            let value = u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]);
            match u16::from_be_bytes([entry[0], entry[1]]) {
                number::HEADER_TABLE_SIZE => settings.header_table_bytes = Some(value),
                number::ENABLE_PUSH => {
                    settings.push = Some(match value {
                        0 => Push::Disabled,
                        1 => Push::Enabled,
                        _ => return Err(Violation::Setting("ENABLE_PUSH", value)),
                    });
                }
                number::MAX_CONCURRENT_STREAMS => settings.concurrent_streams = Some(value),
                number::INITIAL_WINDOW_SIZE if value > STREAM_MAX => {
                    return Err(Violation::Setting("INITIAL_WINDOW_SIZE", value));
                }
                number::INITIAL_WINDOW_SIZE => settings.window_bytes = Some(value),
                number::MAX_FRAME_SIZE if !(PAYLOAD_MIN_MAX_BYTES..=PAYLOAD_MAX_BYTES).contains(&value) => {
                    return Err(Violation::Setting("MAX_FRAME_SIZE", value));
                }
                number::MAX_FRAME_SIZE => settings.payload_max_bytes = Some(value),
                number::NO_RFC7540_PRIORITIES => {
                    settings.priorities = Some(match value {
                        0 => Priorities::Tree,
                        1 => Priorities::NoTree,
                        _ => return Err(Violation::Setting("NO_RFC7540_PRIORITIES", value)),
                    });
                }
                _ => {}
            }
        }
        Ok(settings)
    }

    /// Writes a frame that says this behind what `out` holds.
    pub fn push_frame(self, out: &mut Vec<u8>) {
        let entries = [
            (number::HEADER_TABLE_SIZE, self.header_table_bytes),
            (number::ENABLE_PUSH, self.push.map(|push| push as u32)),
            (number::MAX_CONCURRENT_STREAMS, self.concurrent_streams),
            (number::INITIAL_WINDOW_SIZE, self.window_bytes),
            (number::MAX_FRAME_SIZE, self.payload_max_bytes),
            (number::NO_RFC7540_PRIORITIES, self.priorities.map(|priorities| priorities as u32)),
        ];
        let said = entries.into_iter().filter_map(|(number, value)| Some((number, value?)));
        let length = (said.clone().count() * Self::ENTRY_BYTES) as u32;
        FrameHead { length, kind: kind::SETTINGS, flags: 0, stream: 0 }.push(out);
        for (number, value) in said {
            out.extend_from_slice(&number.to_be_bytes());
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

/// Writes that the other side's settings were seen.
pub fn push_settings_ack(out: &mut Vec<u8>) {
    FrameHead { length: 0, kind: kind::SETTINGS, flags: flag::ACK, stream: 0 }.push(out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{ErrorCode, Frame, HEAD_BYTES};

    #[test]
    fn what_is_written_is_read() {
        let settings = Settings {
            header_table_bytes: Some(0),
            push: Some(Push::Disabled),
            concurrent_streams: Some(128),
            window_bytes: Some(STREAM_MAX),
            payload_max_bytes: Some(PAYLOAD_MAX_BYTES),
            priorities: Some(Priorities::NoTree),
        };
        for settings in
            [settings, Settings { window_bytes: Some(0), ..Settings::default() }, Settings::default()]
        {
            let mut out = Vec::new();
            settings.push_frame(&mut out);
            let head = FrameHead::read(out.first_chunk().expect("a head"));
            assert_eq!(Frame::read(head, &out[HEAD_BYTES..]), Ok(Frame::Settings(settings)));
        }
        let mut ack = Vec::new();
        push_settings_ack(&mut ack);
        assert_eq!(ack, [0, 0, 0, 4, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn values_that_may_not_be_are_refused() {
        let read = |number: u16, value: u32| {
            let payload = [&number.to_be_bytes()[..], &value.to_be_bytes()].concat();
            Settings::read(&payload)
        };
        assert_eq!(read(77, u32::MAX), Ok(Settings::default()));
        for (number, value, name, code) in [
            (2, 2, "ENABLE_PUSH", ErrorCode::ProtocolError),
            (4, 1 << 31, "INITIAL_WINDOW_SIZE", ErrorCode::FlowControlError),
            (5, 16_383, "MAX_FRAME_SIZE", ErrorCode::ProtocolError),
            (5, 1 << 24, "MAX_FRAME_SIZE", ErrorCode::ProtocolError),
            (9, 2, "NO_RFC7540_PRIORITIES", ErrorCode::ProtocolError),
        ] {
            let violation = read(number, value).expect_err("refused");
            let text = format!("client sent SETTINGS frame with incorrect {name} value {value}");
            assert_eq!((violation.to_string(), violation.code()), (text, code));
        }
    }
}
