//! A script's changes of a request: header lines of the client, the method, variables by name. Used by the
//! request's task.

use std::sync::Arc;

use bytes::Bytes;
use clearway_message::{HeaderName, Known, Method, validate_host};
use clearway_site::{Look, VariableKind};

use super::stored_body::{BodyPlace, KEPT, StoredBody};
use super::{Host, Request};

/// The fate of a variable that a script writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The variable has the value from now on.
    Kept,
    /// The configuration does not know it, so nothing can read it.
    Unknown,
    /// The variable cannot be changed.
    Fixed,
}

/// A subrequest has the head of the request that the client has made, which it cannot change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedHead;

impl Request<'_> {
    /// When its first byte came, milliseconds of the clock of the loop.
    pub fn started_ms(&self) -> u64 {
        self.started_ms
    }

    /// When its first byte came, milliseconds since the epoch.
    pub fn started_unix_ms(&self) -> u64 {
        self.now_unix_ms().saturating_sub(self.elapsed_ms())
    }

    /// The directory that relative paths of the configuration begin in, with a slash at its end.
    pub fn configured_prefix(&self) -> &[u8] {
        self.prefix()
    }

    /// The head as it was received, with the request line or without, as far as it is there.
    pub fn raw_head(&self) -> &[u8] {
        let len = self.parts.parser.len().min(self.received().len());
        &self.received()[..len]
    }

    /// Gives a header line another value, or adds one; further lines of that name go.
    ///
    /// # Errors
    /// [`SharedHead`].
    pub fn set_header(&mut self, name: &[u8], value: &[u8]) -> Result<(), SharedHead> {
        let start = self.start;
        let parts = self.parts.own_head().ok_or(SharedHead)?;
        parts.head.headers.set(&parts.input[start..], HeaderName::new(name), value);
        self.note_header(name, Some(value));
        Ok(())
    }

    /// Adds a header line behind the others.
    ///
    /// # Errors
    /// [`SharedHead`].
    pub fn add_header(&mut self, name: &[u8], value: &[u8]) -> Result<(), SharedHead> {
        self.parts.own_head().ok_or(SharedHead)?.head.headers.add(name, value);
        self.note_header(name, Some(value));
        Ok(())
    }

    /// Removes the header lines of that name.
    ///
    /// # Errors
    /// [`SharedHead`].
    pub fn remove_header(&mut self, name: &[u8]) -> Result<(), SharedHead> {
        let (start, line) = (self.start, HeaderName::new(name));
        if !self.parts.has_own_head() {
            return Err(SharedHead);
        }
        // A head that nothing changes in need not be copied.
        let is_there = self.parts.head.headers.named(self.received(), line).next().is_some();
        if is_there && let Some(parts) = self.parts.own_head() {
            parts.head.headers.remove(&parts.input[start..], line);
        }
        self.note_header(name, None);
        Ok(())
    }

    /// Updates the copies of a header that are kept elsewhere.
    fn note_header(&mut self, name: &[u8], value: Option<&[u8]>) {
        if Known::find(name) != Known::Host {
            return;
        }
        let found = value.and_then(|value| validate_host(value, 0).map(|host| (value, host)));
        self.host = match found {
            Some((value, host)) => Host::Lowered(host.name.of(value).to_ascii_lowercase().into()),
            None => Host::Absent,
        };
    }

    /// Whether a handler has read the body, if there is one.
    pub fn has_read_body(&self) -> bool {
        self.context(&KEPT).is_some()
    }

    /// Has other bytes stand for the body that was read.
    ///
    /// # Errors
    /// [`SharedHead`].
    pub fn set_stored_body(&mut self, bytes: Bytes) -> Result<(), SharedHead> {
        self.replace_body(StoredBody { len: bytes.len() as u64, place: BodyPlace::Memory(bytes) })
    }

    /// Replaces the request's body by one that is stored.
    ///
    /// # Errors
    /// [`SharedHead`].
    pub fn replace_body(&mut self, body: StoredBody) -> Result<(), SharedHead> {
        let length = body.len.to_string();
        self.set_header(b"Content-Length", length.as_bytes())?;
        self.set_context(&KEPT, Some(Arc::new(body)));
        Ok(())
    }

    /// Has it have no body, although its parent may have one.
    pub fn leave_out_body(&mut self) {
        self.set_context(&KEPT, None);
        // One that shares the head of its parent says what that says.
        let _ = self.remove_header(b"Content-Length");
        let _ = self.remove_header(b"Transfer-Encoding");
    }

    /// Goes on as if the client had used another method.
    pub fn set_method(&mut self, method: Method) {
        self.method = method;
    }

    /// Gives a variable a value, by its name in lower case; `None`: it has none from now on.
    pub fn write_variable(&mut self, name: &[u8], value: Option<&[u8]>) -> Written {
        let variables = self.variables();
        if let Some((spec, _)) = variables.spec(name)
            && let VariableKind::Assigned(assign) = spec.kind
        {
            assign(self, value.unwrap_or_default().to_vec());
            if value.is_none() && name == b"args" {
                self.clear_args();
            }
            return Written::Kept;
        }
        self.keep_variable(name, value)
    }

    /// The result that writing a variable would have.
    pub fn writable(&self, name: &[u8]) -> Written {
        let variables = self.variables();
        match (variables.spec(name), variables.id(name)) {
            (Some((spec, _)), _) if matches!(spec.kind, VariableKind::Assigned(_)) => Written::Kept,
            (_, Some(id)) if variables.binding(id).look != Look::Source => Written::Kept,
            (None, None) => Written::Unknown,
            _ => self.refusal(name),
        }
    }

    /// As nginx has it: the name of a header, cookie or argument is no variable to write to, unless the
    /// configuration makes it one.
    fn refusal(&self, name: &[u8]) -> Written {
        match self.variables().spec(name) {
            Some((spec, _)) if matches!(spec.kind, VariableKind::Prefix) => Written::Unknown,
            _ => Written::Fixed,
        }
    }

    /// Sets a variable where the request itself cannot be changed.
    pub fn keep_variable(&self, name: &[u8], value: Option<&[u8]>) -> Written {
        let variables = self.variables();
        let Some(id) = variables.id(name) else {
            let is_known = variables.spec(name).is_some();
            return if is_known { self.refusal(name) } else { Written::Unknown };
        };
        if variables.binding(id).look == Look::Source {
            return self.refusal(name);
        }
        self.values.keep(id, value.map(|value| value.to_vec().into()));
        Written::Kept
    }
}
