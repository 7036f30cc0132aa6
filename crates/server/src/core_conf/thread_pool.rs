//! `thread_pool`: the pools of a configuration by name.

use bytes::Bytes;
use clearway_base::units;
use clearway_conf::error::message;
use clearway_conf::{Directive, Error};
use clearway_offload::MAX_QUEUE_DEFAULT;

/// One `thread_pool`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadPoolSpec {
    /// Its name; `default` is the pool of `aio threads`, which exists without a directive too.
    pub name: Bytes,
    /// `threads=`, per loop; not 0.
    pub threads: u32,
    /// `max_queue=`: tasks that may wait, per loop.
    pub max_queue: u32,
}

/// Reads one more directive. As in nginx, parameters that are neither of the two are passed over.
pub(super) fn read(known: &[ThreadPoolSpec], d: &Directive) -> Result<ThreadPoolSpec, Error> {
    let name = d.value(0)?;
    if known.iter().any(|pool| pool.name == name) {
        return Err(d.error(message(&[&"duplicate thread pool \"", &name, &"\""])));
    }
    let (mut threads, mut max_queue) = (0, MAX_QUEUE_DEFAULT);
    for parameter in &d.args[1..] {
        let invalid = |what: &str| d.error(message(&[&"invalid ", &what, &" value \"", parameter, &"\""]));
        let number = |digits| units::parse_number(digits).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        if let Some(digits) = parameter.strip_prefix(b"threads=") {
            threads = number(digits).filter(|&n| n > 0).ok_or_else(|| invalid("threads"))?;
        } else if let Some(digits) = parameter.strip_prefix(b"max_queue=") {
            max_queue = number(digits).ok_or_else(|| invalid("max_queue"))?;
        }
    }
    if threads == 0 {
        return Err(d.error("\"thread_pool\" must have \"threads\" parameter"));
    }
    Ok(ThreadPoolSpec { name, threads, max_queue })
}
