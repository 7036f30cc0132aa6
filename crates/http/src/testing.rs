//! Configurations for the tests of other crates, made from a piece of text. Test threads only.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use clearway_base::log::Sink;
use clearway_conf::{Loader, Memory};
use clearway_log::{Progress, UtcOffset};

use crate::{Environment, Module, Services, Snapshot, loader};

/// Loads the content of an `http` block. All logs are `log`.
///
/// # Panics
/// If the configuration is refused.
#[must_use]
pub fn load_http(
    content: &str,
    modules: &[&'static Module],
    log: &Arc<dyn Sink>,
    services: Services,
) -> Snapshot {
    let path = Path::new("nginx.conf");
    let source = Memory::new().with(path, format!("http {{\n{content}\n}}"));
    let block = Loader::new(&source, path).file(path);
    block.end().expect("the text ends behind its blocks");
    let other_log = Arc::clone(log);
    let environment = Environment {
        prefix: PathBuf::from("/"),
        hostname: Bytes::from_static(b"machine"),
        utc_offset: UtcOffset::default(),
        log_progress: Progress::default(),
        error_log: Arc::clone(log),
        open_error_log: Box::new(move |_| Ok(Arc::clone(&other_log))),
        default_port: 8000,
        services,
    };
    let loaded = loader(modules).load(block.directives[0].clone(), environment, &mut Vec::new());
    loaded.unwrap_or_else(|error| panic!("{}", String::from_utf8_lossy(&error.text())))
}
