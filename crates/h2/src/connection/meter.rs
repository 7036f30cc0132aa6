//! Limits on work that a client causes without asking for anything.

use super::failure::Reason;

/// Frames that neither ask for anything nor carry a body, beyond those that do.
pub const USELESS_FRAMES_MAX: u64 = 10_000;
/// Streams that the client has reset, or made this side reset, beyond those that were answered.
pub const RESETS_MAX: u64 = 1_000;
/// As nginx counts: bytes received may be eight times those of heads and bodies, and this more.
const OVERHEAD_BYTES: u64 = 1 << 20;
/// See above.
const OVERHEAD_SHARE: u64 = 8;
/// As nginx has it: so many streams may be refused, and PRIORITY frames come, however few may be open.
const ALLOWANCE_MIN: u32 = 100;

/// The counters of one connection.
#[derive(Debug)]
pub(crate) struct Meter {
    streams_max: u32,
    received_bytes: u64,
    payload_bytes: u64,
    useful: u64,
    useless: u64,
    resets: u64,
    answered: u64,
    refused: u32,
    priorities_left: u64,
    begun_by_read: u32,
}

impl Meter {
    pub(crate) fn new(streams_max: u32) -> Self {
        Self {
            streams_max,
            received_bytes: 0,
            payload_bytes: 0,
            useful: 0,
            useless: 0,
            resets: 0,
            answered: 0,
            refused: 0,
            priorities_left: u64::from(streams_max.max(ALLOWANCE_MIN)),
            begun_by_read: 0,
        }
    }

    /// `count` bytes were received, after all before were taken.
    pub(crate) fn begin_read(&mut self, count: usize) -> Result<(), Reason> {
        self.begun_by_read = 0;
        if self.received_bytes / OVERHEAD_SHARE > self.payload_bytes + OVERHEAD_BYTES {
            return Err(Reason::Flood);
        }
        self.received_bytes += count as u64;
        Ok(())
    }

    /// A frame asks for something, or carries so many bytes of a body.
    pub(crate) fn useful(&mut self, bytes: usize) {
        self.useful += 1;
        self.payload_bytes += bytes as u64;
    }

    /// The client is given something: it may have to say that it has seen it.
    pub(crate) fn sent(&mut self) {
        self.useful += 1;
    }

    pub(crate) fn useless(&mut self) -> Result<(), Reason> {
        self.useless += 1;
        if self.useless > self.useful + USELESS_FRAMES_MAX { Err(Reason::Useless) } else { Ok(()) }
    }

    pub(crate) fn priority(&mut self) -> Result<(), Reason> {
        self.priorities_left = self.priorities_left.checked_sub(1).ok_or(Reason::Priorities)?;
        self.useless()
    }

    /// A stream begins; whether too many have in one read.
    pub(crate) fn begin_stream(&mut self) -> bool {
        self.begun_by_read += 1;
        self.priorities_left += u64::from(self.streams_max);
        u64::from(self.begun_by_read) > 2 * u64::from(self.streams_max)
    }

    pub(crate) fn refuse(&mut self) -> Result<(), Reason> {
        self.refused += 1;
        if self.refused > self.streams_max.max(ALLOWANCE_MIN) + 1 { Err(Reason::Refused) } else { Ok(()) }
    }

    pub(crate) fn reset(&mut self) -> Result<(), Reason> {
        self.resets += 1;
        if self.resets > self.answered + RESETS_MAX { Err(Reason::Resets) } else { Ok(()) }
    }

    pub(crate) fn answered(&mut self) {
        self.answered += 1;
    }
}
