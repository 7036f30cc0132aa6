//! Whether answers come from recordings or from an nginx that runs.

/// Where the oracle's answers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OracleSource {
    /// The recordings.
    Recorded,
    /// An nginx, which is asked beside the server under test.
    Live,
    /// An nginx, whose answers become the recordings; nothing is compared.
    Record,
}

impl OracleSource {
    /// The value of `CLEARWAY_ORACLE`: `recorded` (also if it is not there), `live` or `record`.
    ///
    /// # Panics
    /// If it says anything else.
    pub fn chosen() -> Self {
        match std::env::var("CLEARWAY_ORACLE").as_deref() {
            Err(_) | Ok("recorded") => Self::Recorded,
            Ok("live") => Self::Live,
            Ok("record") => Self::Record,
            Ok(other) => panic!("CLEARWAY_ORACLE is recorded, live or record, not {other:?}"),
        }
    }
}
