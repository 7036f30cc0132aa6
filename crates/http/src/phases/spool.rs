//! What a handler receives faster than its client takes it, put aside in a temporary file (`proxy_temp_path`
//! and others): written and read by threads of the pool, removed when nobody uses it any more.

use std::sync::Arc;

use clearway_offload::temp_file::Failure;
use clearway_site::temp_paths::TempPath;

use crate::config::body_directives::BODY_MAIN;
use crate::request::Request;
use crate::request::body_file::{Fate, Keeper, Making, TempFile, Unwritten, Writer};

/// Access rights of the file: the owner's alone.
const MODE: u32 = 0o600;

/// Why something could not be put aside. Displays nginx's text.
#[derive(Debug)]
pub enum NotPutAside {
    /// The system has refused the file, or to write to it.
    Failed(Failure),
    /// The pool takes no more, which it has logged, or the configuration has none.
    NotTaken,
}

/// See the file's head. One response's; the bytes go to its end.
pub struct Spool {
    keeper: Arc<Keeper>,
    place: Arc<TempPath>,
    writer: Option<Writer>,
}

impl Spool {
    /// Nothing is made before something is put aside.
    ///
    /// # Errors
    /// There is no pool that could do it.
    pub fn new(request: &Request<'_>, place: Arc<TempPath>) -> Result<Self, NotPutAside> {
        let pool = request.file_pool().ok_or(NotPutAside::NotTaken)?;
        let keeper = Keeper {
            pool,
            home: request.client.home,
            log: Option::clone(&request.main_conf(&BODY_MAIN).log),
            _setup: Arc::clone(request.setup),
        };
        Ok(Self { keeper: Arc::new(keeper), place, writer: None })
    }

    /// Writes behind what there is, and is ready when that is done. The first time it makes the file.
    ///
    /// # Errors
    /// What was given is lost, and so is the rest.
    pub async fn append(mut self, data: Vec<u8>) -> Result<Self, NotPutAside> {
        match &mut self.writer {
            Some(writer) => {
                writer.write(data).await?;
                writer.settle().await?;
            }
            None => {
                let making = Making { place: Arc::clone(&self.place), mode: MODE, fate: Fate::Brief };
                let (writer, _) = Writer::create(Arc::clone(&self.keeper), making, data, |_| {}).await?;
                self.writer = Some(writer);
            }
        }
        Ok(self)
    }

    /// The file, once something was put aside.
    #[must_use]
    pub fn file(&self) -> Option<&Arc<TempFile>> {
        self.writer.as_ref().map(Writer::file)
    }

    /// The file's content is not needed any more: it is written anew from its beginning.
    pub fn rewind(&mut self) {
        if let Some(writer) = &mut self.writer {
            writer.offset = 0;
        }
    }
}

impl From<Unwritten> for NotPutAside {
    fn from(unwritten: Unwritten) -> Self {
        match unwritten {
            Unwritten::Failed(failure) => Self::Failed(failure),
            Unwritten::NotTaken(_) => Self::NotTaken,
        }
    }
}
