//! Parses arguments of directives; errors are in nginx's words. Runs at load.
//!
//! An index counts arguments from 0. Before a handler runs, the number of arguments was checked against the
//! directive's entry in its table. An index that is too large is therefore a mistake in the table, and
//! panics.

use std::time::Duration;

use bytes::Bytes;
use clearway_base::units;

use crate::error::{Error, message, printed};
use crate::tree::Directive;

impl Directive {
    /// An error on the line of this directive.
    #[must_use]
    pub fn error(&self, message: impl Into<Vec<u8>>) -> Error {
        Error::new(message, &self.pos)
    }

    /// `"NAME" directive REASON`, on the line of this directive.
    #[must_use]
    pub fn reject(&self, reason: &str) -> Error {
        self.error(message(&[&"\"", &printed(&self.name), &"\" directive ", &reason]))
    }

    /// `invalid value "X"`, on the line of this directive.
    #[must_use]
    pub fn invalid_value(&self, index: usize) -> Error {
        self.error(message(&[&"invalid value \"", &printed(&self.args[index]), &"\""]))
    }

    /// Sets a value that may be set only once; `parse` makes it of this directive.
    ///
    /// # Errors
    ///
    /// `"NAME" directive is duplicate` before `parse` is called, or the error of `parse`.
    pub fn set<T>(
        &self,
        slot: &mut Option<T>,
        parse: impl FnOnce(&Self) -> Result<T, Error>,
    ) -> Result<(), Error> {
        if slot.is_some() {
            return Err(self.reject("is duplicate"));
        }
        *slot = Some(parse(self)?);
        Ok(())
    }

    /// The argument, unchanged.
    ///
    /// # Errors
    ///
    /// None: it is a `Result` so that [`Directive::set`] takes it.
    pub fn value(&self, index: usize) -> Result<Bytes, Error> {
        Ok(self.args[index].clone())
    }

    /// `on` or `off`, in any case.
    ///
    /// # Errors
    ///
    /// `invalid value "X" in "NAME" directive, it must be "on" or "off"`.
    pub fn flag(&self, index: usize) -> Result<bool, Error> {
        let value = printed(&self.args[index]);
        if value.eq_ignore_ascii_case(b"on") {
            return Ok(true);
        }
        if value.eq_ignore_ascii_case(b"off") {
            return Ok(false);
        }
        let name = printed(&self.name);
        let parts: [&dyn AsRef<[u8]>; 5] =
            [&"invalid value \"", &value, &"\" in \"", &name, &"\" directive, it must be \"on\" or \"off\""];
        Err(self.error(message(&parts)))
    }

    /// A plain number.
    ///
    /// # Errors
    ///
    /// `"NAME" directive invalid number`.
    pub fn number(&self, index: usize) -> Result<u64, Error> {
        units::parse_number(&self.args[index]).ok_or_else(|| self.reject("invalid number"))
    }

    /// A plain number between two limits; without `high` only the lower one counts.
    ///
    /// # Errors
    ///
    /// That of [`Directive::number`], `value must be between LOW and HIGH`, or `value must be equal to or
    /// greater than LOW`.
    pub fn number_within(&self, index: usize, low: u64, high: Option<u64>) -> Result<u64, Error> {
        let number = self.number(index)?;
        match high {
            Some(high) if number < low || number > high => {
                Err(self.error(format!("value must be between {low} and {high}")))
            }
            None if number < low => Err(self.error(format!("value must be equal to or greater than {low}"))),
            _ => Ok(number),
        }
    }

    /// A size in bytes.
    ///
    /// # Errors
    ///
    /// `"NAME" directive invalid value`.
    pub fn size(&self, index: usize) -> Result<u64, Error> {
        units::parse_size(&self.args[index]).ok_or_else(|| self.reject("invalid value"))
    }

    /// An offset in a file in bytes (a size that may be written in `g`).
    ///
    /// # Errors
    ///
    /// `"NAME" directive invalid value`.
    pub fn offset(&self, index: usize) -> Result<u64, Error> {
        units::parse_offset(&self.args[index]).ok_or_else(|| self.reject("invalid value"))
    }

    /// A time with the precision of a millisecond.
    ///
    /// # Errors
    ///
    /// `"NAME" directive invalid value`.
    pub fn msec(&self, index: usize) -> Result<Duration, Error> {
        units::parse_msec(&self.args[index]).ok_or_else(|| self.reject("invalid value"))
    }

    /// A time with the precision of a second.
    ///
    /// # Errors
    ///
    /// `"NAME" directive invalid value`.
    pub fn sec(&self, index: usize) -> Result<Duration, Error> {
        units::parse_sec(&self.args[index]).ok_or_else(|| self.reject("invalid value"))
    }

    /// A number of buffers and their size in bytes, in two arguments from `index` on; neither is 0.
    ///
    /// # Errors
    ///
    /// `"NAME" directive invalid value`.
    pub fn buffers(&self, index: usize) -> Result<(u64, u64), Error> {
        let number = units::parse_number(&self.args[index]).filter(|&number| number > 0);
        let size = units::parse_size(&self.args[index + 1]).filter(|&bytes| bytes > 0);
        number.zip(size).ok_or_else(|| self.reject("invalid value"))
    }

    /// The meaning of the argument in a list of words, without regard to case.
    ///
    /// # Errors
    ///
    /// `invalid value "X"`.
    pub fn choice<T: Copy>(&self, index: usize, words: &[(&str, T)]) -> Result<T, Error> {
        let value = &self.args[index];
        words
            .iter()
            .find(|(word, _)| word.as_bytes().eq_ignore_ascii_case(value))
            .map(|&(_, meaning)| meaning)
            .ok_or_else(|| self.invalid_value(index))
    }
}
