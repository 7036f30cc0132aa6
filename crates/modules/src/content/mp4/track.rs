//! A movie's tracks: what their atoms say, as tables of numbers.

use super::atoms::{Fault, Wanted, set_once, u32_at, u64_at, walk, wrong, wrong_in};

/// The contents of `moov`.
#[derive(Default)]
pub(super) struct Movie<'a> {
    /// `mvhd` with the new duration, without its header.
    pub(super) head: Option<Vec<u8>>,
    /// Units of a second.
    timescale: u64,
    pub(super) tracks: Vec<Track<'a>>,
}

/// A table in an atom, with version and flags before it.
#[derive(Clone, Debug)]
pub(super) struct Table<T> {
    pub(super) flags: [u8; 4],
    pub(super) entries: Vec<T>,
}

/// Where chunks lie (`stco`, `co64`).
#[derive(Clone, Debug)]
pub(super) struct Offsets {
    pub(super) width: Width,
    pub(super) table: Table<u64>,
}

/// How offsets are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    /// `stco`
    Four,
    /// `co64`
    Eight,
}

/// How large samples are (`stsz`).
#[derive(Clone, Debug)]
pub(super) enum Sizes<'a> {
    /// All alike: the content of the atom as it is.
    Uniform(&'a [u8]),
    Listed(Table<u32>),
}

/// The contents of `trak`.
#[derive(Default)]
pub(super) struct Track<'a> {
    /// `tkhd` with the new duration.
    pub(super) head: Option<Vec<u8>>,
    /// `mdhd`
    pub(super) media_head: Option<Vec<u8>>,
    /// `hdlr`
    pub(super) handler: Option<&'a [u8]>,
    /// `vmhd`
    pub(super) video_head: Option<&'a [u8]>,
    /// `smhd`
    pub(super) sound_head: Option<&'a [u8]>,
    /// `dinf`
    pub(super) data_info: Option<&'a [u8]>,
    /// `stsd`
    pub(super) description: Option<&'a [u8]>,
    /// `stts`: samples, and how long each lasts.
    pub(super) times: Option<Table<[u32; 2]>>,
    /// `stss`: key frames, from 1.
    pub(super) keys: Option<Table<u32>>,
    /// `ctts`: samples, and how much later each is shown.
    pub(super) compositions: Option<Table<[u32; 2]>>,
    /// `stsc`: from which chunk on (from 1) there are how many samples in each, and of which description.
    pub(super) chunks: Option<Table<[u32; 3]>>,
    pub(super) sizes: Option<Sizes<'a>>,
    pub(super) offsets: Option<Offsets>,
    /// Units of a second in the media.
    pub(super) timescale: u64,
    /// The duration of the media, in its units.
    pub(super) duration: u64,
    /// The duration of the track, in units of the movie.
    pub(super) movie_duration: u64,
    /// Atoms with others in them that there were.
    seen: Vec<[u8; 4]>,
}

impl<'a> Movie<'a> {
    /// Reads what is in `moov`.
    pub(super) fn read(bytes: &'a [u8], wanted: &Wanted) -> Result<Self, Fault> {
        let mut movie = Self::default();
        walk(bytes, &mut |name, content| match &name {
            b"mvhd" => movie.read_head(content, wanted),
            b"trak" => movie.read_track(content, wanted),
            b"cmov" => wrong(" mp4 compressed moov atom (cmov) is not supported"),
            _ => Ok(()),
        })?;
        if movie.tracks.is_empty() {
            return wrong_in("no mp4 trak atoms were found in ");
        }
        Ok(movie)
    }

    fn read_head(&mut self, content: &[u8], wanted: &Wanted) -> Result<(), Fault> {
        const TOO_SMALL: &str = " mp4 mvhd atom too small";
        let (timescale, place, bytes) = match content.first() {
            Some(0) => (12, DurationPlace::Short(16), 100),
            _ => (20, DurationPlace::Long(24), 112),
        };
        let mut content = content.to_vec();
        let (Some(timescale), true) = (u32_at(&content, timescale), content.len() >= bytes) else {
            return wrong(TOO_SMALL);
        };
        self.timescale = u64::from(timescale);
        let duration = place.read(&content);
        let start = units(wanted.start_ms, self.timescale);
        let Some(rest) = duration.checked_sub(start) else {
            return wrong(" mp4 start time exceeds file duration");
        };
        place.write(&mut content, limited(rest, wanted, self.timescale));
        set_once(&mut self.head, content, "duplicate mp4 mvhd atom in ")
    }

    fn read_track(&mut self, content: &'a [u8], wanted: &Wanted) -> Result<(), Fault> {
        let mut track = Track::default();
        let reading = Reading { wanted, movie_timescale: self.timescale };
        match track.read(content, Parent::Track, &reading) {
            Ok(()) => self.tracks.push(track),
            Err(Fault::EmptyTrack) => {}
            Err(fault) => return Err(fault),
        }
        Ok(())
    }
}

/// The purpose for which a track is read.
struct Reading<'a> {
    wanted: &'a Wanted,
    movie_timescale: u64,
}

/// The atom whose children are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parent {
    Track,
    Media,
    Info,
    Samples,
}

impl<'a> Track<'a> {
    fn read(&mut self, content: &'a [u8], parent: Parent, reading: &Reading<'_>) -> Result<(), Fault> {
        walk(content, &mut |name, content| match (parent, &name) {
            (Parent::Track, b"tkhd") => self.read_head(content, reading),
            (Parent::Track, b"mdia") => self.enter(name, content, Parent::Media, reading),
            (Parent::Media, b"mdhd") => self.read_media_head(content, reading),
            (Parent::Media, b"hdlr") => set_once(&mut self.handler, content, "duplicate mp4 hdlr atom in "),
            (Parent::Media, b"minf") => self.enter(name, content, Parent::Info, reading),
            (Parent::Info, b"vmhd" | b"smhd") => self.read_kind(&name, content),
            (Parent::Info, b"dinf") => set_once(&mut self.data_info, content, "duplicate mp4 dinf atom in "),
            (Parent::Info, b"stbl") => self.enter(name, content, Parent::Samples, reading),
            (Parent::Samples, name) => self.read_table(name, content),
            _ => Ok(()),
        })
    }

    fn enter(
        &mut self,
        name: [u8; 4],
        content: &'a [u8],
        parent: Parent,
        reading: &Reading<'_>,
    ) -> Result<(), Fault> {
        if self.seen.contains(&name) {
            return wrong_in(match &name {
                b"mdia" => "duplicate mp4 mdia atom in ",
                b"minf" => "duplicate mp4 minf atom in ",
                _ => "duplicate mp4 stbl atom in ",
            });
        }
        self.seen.push(name);
        self.read(content, parent, reading)
    }

    fn read_head(&mut self, content: &[u8], reading: &Reading<'_>) -> Result<(), Fault> {
        let (place, bytes) = match content.first() {
            Some(0) => (DurationPlace::Short(20), 84),
            _ => (DurationPlace::Long(28), 96),
        };
        if content.len() < bytes {
            return wrong(" mp4 tkhd atom too small");
        }
        let mut content = content.to_vec();
        let Reading { wanted, movie_timescale } = *reading;
        let start = units(wanted.start_ms, movie_timescale);
        let rest = place.read(&content).checked_sub(start).filter(|&rest| rest > 0);
        let rest = rest.ok_or(Fault::EmptyTrack)?;
        self.movie_duration = limited(rest, wanted, movie_timescale);
        place.write(&mut content, self.movie_duration);
        set_once(&mut self.head, content, "duplicate mp4 tkhd atom in ")
    }

    fn read_media_head(&mut self, content: &[u8], reading: &Reading<'_>) -> Result<(), Fault> {
        let (timescale, bytes) = match content.first() {
            Some(0) => (12, 24),
            _ => (20, 36),
        };
        let (Some(timescale), true) = (u32_at(content, timescale), content.len() >= bytes) else {
            return wrong(" mp4 mdhd atom too small");
        };
        let timescale = u64::from(timescale);
        let start = units(reading.wanted.start_ms, timescale);
        let rest = media_duration(content).read(content).checked_sub(start).filter(|&rest| rest > 0);
        let rest = rest.ok_or(Fault::EmptyTrack)?;
        set_once(&mut self.media_head, content.to_vec(), "duplicate mp4 mdhd atom in ")?;
        (self.timescale, self.duration) = (timescale, limited(rest, reading.wanted, timescale));
        Ok(())
    }

    fn read_kind(&mut self, name: &[u8; 4], content: &'a [u8]) -> Result<(), Fault> {
        if self.video_head.is_some() || self.sound_head.is_some() {
            return wrong_in("duplicate mp4 vmhd/smhd atom in ");
        }
        let slot = if name == b"vmhd" { &mut self.video_head } else { &mut self.sound_head };
        *slot = Some(content);
        Ok(())
    }

    fn read_table(&mut self, name: &[u8; 4], content: &'a [u8]) -> Result<(), Fault> {
        match name {
            b"stsd" if content.len() < 16 => wrong(" mp4 stsd atom too small"),
            b"stsd" => set_once(&mut self.description, content, "duplicate mp4 stsd atom in "),
            b"stts" => {
                let table = table(content, " mp4 stts atom too small")?;
                set_once(&mut self.times, table, "duplicate mp4 stts atom in ")
            }
            b"stss" => {
                let Table { flags, entries } = table::<1>(content, " mp4 stss atom too small")?;
                let table = Table { flags, entries: entries.into_flattened() };
                set_once(&mut self.keys, table, "duplicate mp4 stss atom in ")
            }
            b"ctts" => {
                let table = table(content, " mp4 ctts atom too small")?;
                set_once(&mut self.compositions, table, "duplicate mp4 ctts atom in ")
            }
            b"stsc" => {
                let table = table(content, " mp4 stsc atom too small")?;
                set_once(&mut self.chunks, table, "duplicate mp4 stsc atom in ")
            }
            b"stsz" => set_once(&mut self.sizes, read_sizes(content)?, "duplicate mp4 stsz atom in "),
            b"stco" | b"co64" => {
                let offsets =
                    if name == b"stco" { read_offsets(content)? } else { read_long_offsets(content)? };
                set_once(&mut self.offsets, offsets, "duplicate mp4 stco/co64 atom in ")
            }
            _ => Ok(()),
        }
    }
}

/// Where a duration stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum DurationPlace {
    /// In four bytes at this place.
    Short(usize),
    /// In eight.
    Long(usize),
}

impl DurationPlace {
    /// The number at this place; 0 if the bytes end before it.
    fn read(self, bytes: &[u8]) -> u64 {
        match self {
            Self::Short(at) => u64::from(u32_at(bytes, at).unwrap_or(0)),
            Self::Long(at) => u64_at(bytes, at).unwrap_or(0),
        }
    }

    /// Writes what is to stand there.
    pub(super) fn write(self, bytes: &mut [u8], number: u64) {
        match self {
            Self::Short(at) => bytes[at..at + 4].copy_from_slice(&(number as u32).to_be_bytes()),
            Self::Long(at) => bytes[at..at + 8].copy_from_slice(&number.to_be_bytes()),
        }
    }
}

/// Where `mdhd` says how long the media last.
pub(super) fn media_duration(content: &[u8]) -> DurationPlace {
    if content.first() == Some(&0) { DurationPlace::Short(16) } else { DurationPlace::Long(24) }
}

/// Milliseconds in units of which a second has `timescale`.
pub(super) fn units(ms: u64, timescale: u64) -> u64 {
    u64::try_from(u128::from(ms) * u128::from(timescale) / 1000).unwrap_or(u64::MAX)
}

fn limited(duration: u64, wanted: &Wanted, timescale: u64) -> u64 {
    match wanted.length_ms {
        0 => duration,
        length_ms => duration.min(units(length_ms, timescale)),
    }
}

fn table<const N: usize>(content: &[u8], too_small: &'static str) -> Result<Table<[u32; N]>, Fault> {
    let Some((flags, count, rest)) = table_head(content, N * 4) else { return wrong(too_small) };
    let (entries, _) = rest.as_chunks::<4>();
    let numbers: Vec<u32> = entries[..count * N].iter().map(|number| u32::from_be_bytes(*number)).collect();
    let (entries, _) = numbers.as_chunks::<N>();
    Ok(Table { flags, entries: entries.to_vec() })
}

/// Flags, number of entries, and what is behind those, if there are so many.
fn table_head(content: &[u8], entry_bytes: usize) -> Option<([u8; 4], usize, &[u8])> {
    let flags = *content.first_chunk()?;
    let count = u32_at(content, 4)? as usize;
    let rest = &content[8..];
    (count.checked_mul(entry_bytes)? <= rest.len()).then_some((flags, count, rest))
}

fn read_offsets(content: &[u8]) -> Result<Offsets, Fault> {
    let Table { flags, entries } = table::<1>(content, " mp4 stco atom too small")?;
    let entries = entries.into_flattened().into_iter().map(u64::from).collect();
    Ok(Offsets { width: Width::Four, table: Table { flags, entries } })
}

fn read_long_offsets(content: &[u8]) -> Result<Offsets, Fault> {
    let Some((flags, count, rest)) = table_head(content, 8) else {
        return wrong(" mp4 co64 atom too small");
    };
    let (entries, _) = rest.as_chunks::<8>();
    let entries = entries[..count].iter().map(|number| u64::from_be_bytes(*number)).collect();
    Ok(Offsets { width: Width::Eight, table: Table { flags, entries } })
}

fn read_sizes(content: &[u8]) -> Result<Sizes<'_>, Fault> {
    const TOO_SMALL: &str = " mp4 stsz atom too small";
    let (Some(flags), Some(uniform), Some(count)) =
        (content.first_chunk(), u32_at(content, 4), u32_at(content, 8))
    else {
        return wrong(TOO_SMALL);
    };
    if uniform != 0 {
        return Ok(Sizes::Uniform(content));
    }
    let (numbers, _) = content[12..].as_chunks::<4>();
    let Some(numbers) = numbers.get(..count as usize) else { return wrong(TOO_SMALL) };
    let entries = numbers.iter().map(|number| u32::from_be_bytes(*number)).collect();
    Ok(Sizes::Listed(Table { flags: *flags, entries }))
}
