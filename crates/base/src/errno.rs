//! An error of the system as nginx writes it in its logs: `(2: No such file or directory)`.

use std::fmt;
use std::io;

/// Displays an error as `(NUMBER: TEXT)`.
#[derive(Clone, Copy, Debug)]
pub struct Errno<'a>(pub &'a io::Error);

impl fmt::Display for Errno<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        match self.0.raw_os_error() {
            Some(code) => {
                let text = text.strip_suffix(&format!(" (os error {code})")).unwrap_or(&text);
                write!(f, "({code}: {text})")
            }
            None => write!(f, "({text})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_nginx_writes_it() {
        let error = io::Error::from_raw_os_error(2);
        assert_eq!(Errno(&error).to_string(), "(2: No such file or directory)");
        let error = io::Error::other("refused");
        assert_eq!(Errno(&error).to_string(), "(refused)");
    }
}
