//! Windows: how much may be sent before the other side allows more (RFC 9113 §5.2).

use crate::frame::STREAM_MAX;

/// The size of a window before any setting, bytes.
pub const WINDOW_FIRST_BYTES: u32 = 65_535;

/// A window of the connection or of a stream, on either side. It may be negative: settings that shrink it
/// count for streams that are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(i64);

/// An addition or a withdrawal beyond the limits of a window (FLOW_CONTROL_ERROR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfWindow;

impl Window {
    /// A window of so many bytes.
    #[must_use]
    pub fn new(bytes: u32) -> Self {
        Self(i64::from(bytes))
    }

    /// How much may be sent now, bytes.
    #[must_use]
    pub fn available(self) -> u32 {
        u32::try_from(self.0.max(0)).unwrap_or(STREAM_MAX)
    }

    /// The other side allows more (WINDOW_UPDATE).
    ///
    /// # Errors
    /// The window would be larger than 2^31 − 1.
    pub fn widen(&mut self, increment: u32) -> Result<(), OutOfWindow> {
        self.add(i64::from(increment))
    }

    /// The size of new windows has changed, and counts for this one, too (SETTINGS_INITIAL_WINDOW_SIZE).
    ///
    /// # Errors
    /// The window would be larger than 2^31 − 1.
    pub fn resize(&mut self, before: u32, after: u32) -> Result<(), OutOfWindow> {
        self.add(i64::from(after) - i64::from(before))
    }

    /// Notes that so many bytes were sent, or have come.
    ///
    /// # Errors
    /// There are more than the window allows; it stays as it was.
    pub fn take(&mut self, bytes: u32) -> Result<(), OutOfWindow> {
        if i64::from(bytes) > self.0.max(0) {
            return Err(OutOfWindow);
        }
        self.0 -= i64::from(bytes);
        debug_assert!(self.0 >= 0, "what is sent leaves a window that is not negative");
        Ok(())
    }

    fn add(&mut self, bytes: i64) -> Result<(), OutOfWindow> {
        let sum = self.0 + bytes;
        if sum > i64::from(STREAM_MAX) {
            return Err(OutOfWindow);
        }
        self.0 = sum;
        debug_assert!(self.0 >= -i64::from(STREAM_MAX), "settings shrink a window once by what it had");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_bounded_on_both_sides() {
        let mut window = Window::new(WINDOW_FIRST_BYTES);
        assert_eq!(window.take(65_536), Err(OutOfWindow));
        assert_eq!(window.take(65_535), Ok(()));
        assert_eq!((window.available(), window.take(1)), (0, Err(OutOfWindow)));
        assert_eq!(window.take(0), Ok(()));
        assert_eq!(window.widen(STREAM_MAX), Ok(()));
        assert_eq!(window.available(), STREAM_MAX);
        assert_eq!(window.widen(1), Err(OutOfWindow));
    }

    #[test]
    fn settings_may_make_a_window_negative() {
        let mut window = Window::new(100);
        window.take(60).expect("there is room");
        window.resize(100, 10).expect("smaller is allowed");
        assert_eq!((window.available(), window.take(1)), (0, Err(OutOfWindow)));
        window.widen(50).expect("there is room");
        assert_eq!((window.available(), window.take(0)), (0, Ok(())));
        window.widen(5).expect("there is room");
        assert_eq!(window.available(), 5);
        assert_eq!(window.resize(10, STREAM_MAX), Ok(()), "it had less than new ones");
        assert_eq!(window.available(), STREAM_MAX - 5);
    }
}
