//! Command-line options: `--name value` anywhere, everything else in order.

use std::collections::BTreeMap;
use std::str::FromStr;

/// What a command was given. Commands take what they know and call [`Args::finish`].
#[derive(Debug, Default)]
pub(crate) struct Args {
    options: BTreeMap<String, String>,
    words: Vec<String>,
}

impl Args {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args = Self::default();
        while let Some(word) = words.next() {
            match word.strip_prefix("--") {
                Some(name) => {
                    let value = words.next().ok_or_else(|| format!("--{name} wants a value"))?;
                    args.options.insert(name.to_owned(), value);
                }
                None => args.words.push(word),
            }
        }
        Ok(args)
    }

    /// The value of an option, or its default.
    pub(crate) fn take<T: FromStr>(&mut self, name: &str, default: T) -> Result<T, String> {
        match self.options.remove(name) {
            Some(text) => text.parse().map_err(|_| format!("--{name} {text}: not understood")),
            None => Ok(default),
        }
    }

    /// The comma-separated values of an option.
    pub(crate) fn list(&mut self, name: &str, default: &str) -> Vec<String> {
        let text = self.options.remove(name).unwrap_or_else(|| default.to_owned());
        text.split(',').map(str::to_owned).collect()
    }

    /// What stands without a name, in order.
    pub(crate) fn words(&mut self) -> Vec<String> {
        std::mem::take(&mut self.words)
    }

    /// Refuses what nobody took.
    pub(crate) fn finish(self) -> Result<(), String> {
        match (self.options.keys().next(), self.words.first()) {
            (Some(name), _) => Err(format!("--{name}: no such option")),
            (None, Some(word)) => Err(format!("{word}: not understood")),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_words() {
        let words = ["a=b", "--secs", "3", "--only", "x,y"].map(str::to_owned);
        let mut args = Args::parse(words.into_iter()).expect("well formed");
        assert_eq!(args.take("secs", 1_u32), Ok(3));
        assert_eq!(args.take("reps", 7_u32), Ok(7));
        assert_eq!(args.list("only", ""), ["x", "y"]);
        assert_eq!(args.words(), ["a=b"]);
        assert_eq!(args.finish(), Ok(()));
    }

    #[test]
    fn mistakes_are_told() {
        assert!(Args::parse(["--secs".to_owned()].into_iter()).is_err());
        let args = Args::parse(["--nonsense", "1"].map(str::to_owned).into_iter()).expect("well formed");
        assert!(args.finish().is_err());
    }
}
