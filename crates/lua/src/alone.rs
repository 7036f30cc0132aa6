//! The context of code that has no request: a timer. Owned by its task.

use std::sync::Arc;

use clearway_base::log::{Level, Record, Sink};
use clearway_luajit::Reference;
use clearway_runtime::{LoopRef, TaskCell};

use crate::place::AlonePlace;
use crate::request_state::Kept;
use crate::vm::of_loop::Slot;

/// The context of code without a request.
pub(crate) struct Alone {
    pub(crate) home: LoopRef,
    pub(crate) place: AlonePlace,
    /// The VM that its code belongs to.
    pub(crate) slot: Arc<Slot>,
    pub(crate) kept: TaskCell<Kept>,
    /// The handshake that it is for, if it is for one.
    #[cfg(feature = "tls")]
    pub(crate) shaking: Option<crate::shaking::Shaking>,
}

impl Drop for Alone {
    fn drop(&mut self) {
        let number = self.kept.enter().ctx.as_ref().map(Reference::number);
        if let Some(number) = number {
            self.log(Level::Debug, format_args!("lua release ngx.ctx at ref {number}"));
        }
        self.slot.note_left(Some(self));
    }
}

impl Sink for Alone {
    fn enabled(&self, level: Level) -> bool {
        self.place.sinks.iter().any(|sink| sink.enabled(level))
    }

    fn write(&self, record: &Record<'_>) {
        for sink in self.place.sinks.iter().filter(|sink| sink.enabled(record.level)) {
            let message = format_args!("{}{}", record.message, self.place.tail);
            sink.write(&Record {
                level: record.level,
                tid: self.place.tail.tid,
                connection: self.place.tail.serial,
                message,
            });
        }
    }
}
