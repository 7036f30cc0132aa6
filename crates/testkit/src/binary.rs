//! The program under test, and the one that it is compared with.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::source::OracleSource;

/// The product that a program is: extensions of the configuration language and version texts depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// The oracle.
    Nginx,
    /// The server this repository builds.
    Clearway,
}

/// A server program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// Its path.
    pub path: PathBuf,
    /// Its product, told by its name.
    pub product: Product,
}

impl Binary {
    /// A program called `nginx` is taken for nginx, everything else for Clearway.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let nginx = path.file_name().is_some_and(|name| name == "nginx");
        Self { product: if nginx { Product::Nginx } else { Product::Clearway }, path }
    }

    /// The server under test: `CLEARWAY_BIN`, or what cargo has built beside this test program. It may
    /// be an nginx: then nginx is compared with nginx, which proves the cases themselves.
    ///
    /// # Panics
    /// If it has not been built.
    pub fn under_test() -> Self {
        let path = std::env::var_os("CLEARWAY_BIN").map_or_else(built, PathBuf::from);
        assert!(path.is_file(), "{}: not built; cargo build -p clearway --features testing", path.display());
        Self::at(path)
    }

    /// The nginx to ask: `NGINX_BIN`, or where distributions put it.
    ///
    /// # Panics
    /// If it is not there.
    pub fn oracle() -> Self {
        let found = Self::installed_oracle();
        found.unwrap_or_else(|| panic!("{}: no nginx there; NGINX_BIN names one", oracle_path().display()))
    }

    /// The oracle, if one is installed.
    pub fn installed_oracle() -> Option<Self> {
        let path = oracle_path();
        path.is_file().then(|| Self::at(path))
    }

    /// The programs that an expectation has to hold for: the server under test, or the oracle, or both, as
    /// `CLEARWAY_ORACLE` says.
    pub fn expected_alike() -> Vec<Self> {
        match OracleSource::chosen() {
            OracleSource::Recorded => vec![Self::under_test()],
            OracleSource::Live => vec![Self::oracle(), Self::under_test()],
            OracleSource::Record => vec![Self::oracle()],
        }
    }

    /// Copies the program, by the command `cp`. If this process wrote the file itself, a child that another
    /// thread starts at that moment would inherit the descriptor, and until it executes its own program the
    /// copy could not be run ("text file busy").
    ///
    /// # Panics
    /// If there is no room.
    pub fn copy_to(&self, path: &Path) {
        let copied = Command::new("cp").arg("--").arg(&self.path).arg(path).status();
        assert!(copied.is_ok_and(|status| status.success()), "there is room for {}", path.display());
    }

    /// Whether this is the server of this repository, and not an nginx in its place.
    pub fn is_clearway(&self) -> bool {
        self.product == Product::Clearway
    }
}

fn oracle_path() -> PathBuf {
    std::env::var_os("NGINX_BIN").map_or_else(|| "/usr/sbin/nginx".into(), PathBuf::from)
}

/// `target/debug/clearway`, from a test program in `target/debug/deps`.
fn built() -> PathBuf {
    let here = std::env::current_exe().expect("a running program has a path");
    let dir = here.parent().expect("a program lies in a directory");
    if dir.ends_with("deps") { dir.with_file_name("clearway") } else { dir.join("clearway") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nginx_is_known_by_name() {
        assert_eq!(Binary::at("/usr/sbin/nginx").product, Product::Nginx);
        assert!(Binary::at("target/debug/clearway").is_clearway());
    }
}
