//! The atoms of an MP4 file (ISO 14496-12) that matter for cutting it: where media data lies, and what each
//! track says of its samples. Pure functions over bytes that anybody may have written; run by threads of a
//! pool. Sizes are bounded by the file, and what is read into memory by `mp4_max_buffer_size`.

use std::borrow::Cow;
use std::io;
use std::ops::Range;

/// Why a file cannot be cut.
#[derive(Debug)]
pub(super) enum Fault {
    /// A fault of the file: the words before its name, and those behind it.
    Wrong(&'static str, Cow<'static, str>),
    /// Reading failed.
    Read(io::Error),
    /// Fewer bytes were there than its size says.
    Short { read: usize, of: usize },
    /// The track ends before the start: it is left out.
    EmptyTrack,
}

/// Something that is wrong within the file.
pub(super) fn wrong_in<T>(before: &'static str) -> Result<T, Fault> {
    Err(Fault::Wrong(before, Cow::Borrowed("")))
}

/// Something that is wrong with the file.
pub(super) fn wrong<T>(behind: impl Into<Cow<'static, str>>) -> Result<T, Fault> {
    Err(Fault::Wrong("", behind.into()))
}

/// Where bytes come from.
pub(super) trait MediaSource {
    /// Size of the file, bytes.
    fn size(&self) -> u64;
    /// So many bytes from a place on, which are there.
    fn read(&mut self, offset: u64, count: usize) -> Result<Vec<u8>, Fault>;
}

/// How much is read, and what of it is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Milliseconds.
    pub(super) start_ms: u64,
    /// Milliseconds; 0: up to the end.
    pub(super) length_ms: u64,
    /// Bytes that are read at once (`mp4_buffer_size`).
    pub(super) buffer_bytes: u64,
    /// The largest description of a movie (`mp4_max_buffer_size`), bytes.
    pub(super) buffer_max_bytes: u64,
    pub(super) beginning: Beginning,
}

/// Where a part begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// With the sample at its start.
    Sample,
    /// With the key frame before that (`mp4_start_key_frame`).
    KeyFrame,
}

/// The outermost atoms.
pub(super) struct Outline {
    /// `ftyp`, with its header.
    pub(super) kind: Vec<u8>,
    /// The contents of `moov`.
    pub(super) movie: Vec<u8>,
    /// Where the data in `mdat` lies.
    pub(super) data: Range<u64>,
}

/// Outermost atoms that are looked at.
const OUTER_ATOMS_MAX: usize = 4096;
/// The largest `ftyp`, bytes.
const KIND_MAX_BYTES: u64 = 1024;

/// Reads the outermost atoms; `None`: the file can be sent as it is.
pub(super) fn read_outline(source: &mut dyn MediaSource, wanted: &Wanted) -> Result<Option<Outline>, Fault> {
    let (mut kind, mut movie, mut data) = (None, None, None);
    let mut window = Window { start: 0, bytes: Vec::new(), step_bytes: wanted.buffer_bytes };
    let (mut offset, size) = (0, source.size());
    let mut left = OUTER_ATOMS_MAX;
    while offset < size {
        let Some((name, header, atom)) = window.header(source, offset)? else { break };
        let content = offset + header..offset + atom;
        let bytes = content.end - content.start;
        match &name {
            b"ftyp" if bytes > KIND_MAX_BYTES => {
                return wrong(format!(" mp4 ftyp atom is too large:{bytes}"));
            }
            b"ftyp" => {
                let content = window.take(source, content.start, bytes as usize)?;
                let mut atom = Vec::new();
                put_atom(&mut atom, b"ftyp", |out| out.extend_from_slice(&content));
                set_once(&mut kind, atom, "duplicate mp4 ftyp atom in ")?;
            }
            b"moov" => {
                if data.is_none() && wanted.start_ms == 0 && wanted.length_ms == 0 {
                    return Ok(None);
                }
                if bytes > wanted.buffer_bytes.max(wanted.buffer_max_bytes) {
                    return wrong(format!(
                        " mp4 moov atom is too large:{bytes}, you may want to increase mp4_max_buffer_size"
                    ));
                }
                let content = window.take(source, content.start, bytes as usize)?;
                set_once(&mut movie, content, "duplicate mp4 moov atom in ")?;
            }
            b"mdat" => set_once(&mut data, content, "duplicate mp4 mdat atom in ")?,
            _ => {}
        }
        if movie.is_some() && data.is_some() {
            break;
        }
        offset += atom;
        left -= 1;
        if left == 0 {
            return wrong_in("too many mp4 atoms in ");
        }
    }
    let Some(movie) = movie else { return wrong_in("no mp4 trak atoms were found in ") };
    let Some(data) = data else { return wrong_in("no mp4 mdat atom was found in ") };
    Ok(Some(Outline { kind: kind.unwrap_or_default(), movie, data }))
}

/// A part of the file that was read.
struct Window {
    start: u64,
    bytes: Vec<u8>,
    step_bytes: u64,
}

impl Window {
    /// Name, size of the header and size of the atom at a place; `None`: there are no more.
    fn header(
        &mut self,
        source: &mut dyn MediaSource,
        at: u64,
    ) -> Result<Option<([u8; 4], u64, u64)>, Fault> {
        let left = source.size() - at;
        let head = self.take(source, at, left.min(16) as usize)?;
        let header = read_header(&head, left)?;
        Ok(header)
    }

    /// So many bytes from a place on.
    fn take(&mut self, source: &mut dyn MediaSource, at: u64, count: usize) -> Result<Vec<u8>, Fault> {
        let is_inside = |window: &Self| {
            at >= window.start && at - window.start + count as u64 <= window.bytes.len() as u64
        };
        if !is_inside(self) {
            let left = source.size() - at;
            let step = self.step_bytes.max(count as u64).min(left) as usize;
            if step < count {
                return wrong(" mp4 file truncated");
            }
            (self.start, self.bytes) = (at, source.read(at, step)?);
        }
        let from = (at - self.start) as usize;
        match self.bytes.get(from..from + count) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => wrong(" mp4 file truncated"),
        }
    }
}

/// Name, size of the header and size of an atom, of which `left` bytes can be there; `None`: no atom, but the
/// end of them.
fn read_header(bytes: &[u8], left: u64) -> Result<Option<([u8; 4], u64, u64)>, Fault> {
    let Some(size) = u32_at(bytes, 0) else { return wrong(" mp4 file truncated") };
    if size == 0 {
        return Ok(None);
    }
    let (header, size) = match size {
        1 => match u64_at(bytes, 8) {
            Some(size) => (16, size),
            None => return wrong(" mp4 file truncated"),
        },
        size => (8, u64::from(size)),
    };
    if size < header {
        return wrong(format!(" mp4 atom is too small:{size}"));
    }
    let Some(name) = bytes.get(4..8) else { return wrong(" mp4 file truncated") };
    if size > left {
        return wrong(format!(" mp4 atom too large:{size}"));
    }
    Ok(Some(([name[0], name[1], name[2], name[3]], header, size)))
}

/// Looks at the atoms in a part of memory.
pub(super) fn walk<'a>(
    mut bytes: &'a [u8],
    visit: &mut dyn FnMut([u8; 4], &'a [u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    while !bytes.is_empty() {
        let Some((name, header, size)) = read_header(bytes, bytes.len() as u64)? else { break };
        visit(name, &bytes[header as usize..size as usize])?;
        bytes = &bytes[size as usize..];
    }
    Ok(())
}

/// Keeps what must not come twice.
pub(super) fn set_once<T>(slot: &mut Option<T>, value: T, message: &'static str) -> Result<(), Fault> {
    if slot.is_some() {
        return wrong_in(message);
    }
    *slot = Some(value);
    Ok(())
}

/// The number at a place, if there is one.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|number| u32::from_be_bytes(*number))
}

/// The long number at a place, if there is one.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|number| u64::from_be_bytes(*number))
}

/// Writes an atom with what `content` writes in it.
pub(super) fn put_atom(out: &mut Vec<u8>, name: &[u8; 4], content: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(name);
    content(out);
    // What is written was read, so it fits.
    let size = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&size.to_be_bytes());
}
