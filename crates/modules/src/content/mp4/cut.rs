//! Makes the beginning of a part of an MP4 file: a new `moov`, and the header of the data that follow. Run by
//! threads of a pool.

use std::ops::Range;

use super::atoms::{Fault, MediaSource, Outline, Wanted, put_atom, read_outline, wrong_in};
use super::crop::{Cropped, Whole, crop};
use super::track::{Movie, Offsets, Sizes, Table, Width, media_duration};

/// A part of a file: what was made, and which bytes of the file follow.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) front: Vec<u8>,
    pub(super) data: Range<u64>,
}

/// The largest size of an atom that is written in four bytes.
const SHORT_ATOM_MAX: u64 = u32::MAX as u64;

/// Cuts a file; `None`: it is to be sent as it is.
pub(super) fn cut(source: &mut dyn MediaSource, wanted: &Wanted) -> Result<Option<Cut>, Fault> {
    let Some(Outline { kind, movie, data }) = read_outline(source, wanted)? else { return Ok(None) };
    let movie = Movie::read(&movie, wanted)?;
    let whole = Whole { size: source.size(), data_end: data.end };
    let tracks = movie.tracks.into_iter().map(|track| crop(track, wanted, whole));
    let tracks: Vec<_> = tracks.collect::<Result<_, _>>()?;
    let start = tracks.iter().map(|track| track.start_offset).min().unwrap_or(whole.size);
    let end = tracks.iter().map(|track| track.end_offset).max().unwrap_or(0);
    if end <= start {
        return wrong_in("no data between start time and end time in ");
    }
    if start >= data.end {
        return wrong_in("start time is out mp4 mdat atom in ");
    }
    let (mut front, mut places) = (kind, Vec::new());
    put_atom(&mut front, b"moov", |out| {
        if let Some(head) = &movie.head {
            put_content(out, b"mvhd", Some(head));
        }
        tracks.iter().for_each(|track| put_track(out, track, &mut places));
    });
    put_data_header(&mut front, end - start);
    let adjustment = (front.len() as u64).wrapping_sub(start);
    places.iter().for_each(|place| place.adjust(&mut front, adjustment));
    Ok(Some(Cut { front, data: start..end }))
}

fn put_data_header(out: &mut Vec<u8>, bytes: u64) {
    let is_short = bytes <= SHORT_ATOM_MAX - 8;
    let size = if is_short { (bytes + 8) as u32 } else { 1 };
    out.extend_from_slice(&size.to_be_bytes());
    out.extend_from_slice(b"mdat");
    if !is_short {
        out.extend_from_slice(&(bytes + 16).to_be_bytes());
    }
}

/// Where offsets were written that are to be corrected when all sizes are known.
struct OffsetPlace {
    bytes: Range<usize>,
    width: Width,
}

impl OffsetPlace {
    fn adjust(&self, out: &mut [u8], adjustment: u64) {
        let bytes = &mut out[self.bytes.clone()];
        match self.width {
            Width::Four => bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|number| {
                *number = u32::from_be_bytes(*number).wrapping_add(adjustment as u32).to_be_bytes();
            }),
            Width::Eight => bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|number| {
                *number = u64::from_be_bytes(*number).wrapping_add(adjustment).to_be_bytes();
            }),
        }
    }
}

fn put_content(out: &mut Vec<u8>, name: &[u8; 4], content: Option<&[u8]>) {
    if let Some(content) = content {
        put_atom(out, name, |out| out.extend_from_slice(content));
    }
}

fn put_track(out: &mut Vec<u8>, cropped: &Cropped<'_>, places: &mut Vec<OffsetPlace>) {
    let track = &cropped.track;
    put_atom(out, b"trak", |out| {
        put_content(out, b"tkhd", track.head.as_deref());
        if cropped.prefix > 0 {
            put_edits(out, cropped);
        }
        put_atom(out, b"mdia", |out| {
            if let Some(mut head) = track.media_head.clone() {
                media_duration(&head).write(&mut head, track.duration);
                put_content(out, b"mdhd", Some(&head));
            }
            put_content(out, b"hdlr", track.handler);
            put_atom(out, b"minf", |out| {
                put_content(out, b"vmhd", track.video_head);
                put_content(out, b"smhd", track.sound_head);
                put_content(out, b"dinf", track.data_info);
                put_atom(out, b"stbl", |out| put_samples(out, cropped, places));
            });
        });
    });
}

/// What is before the start is not shown.
fn put_edits(out: &mut Vec<u8>, cropped: &Cropped<'_>) {
    put_atom(out, b"edts", |out| {
        put_atom(out, b"elst", |out| {
            out.extend_from_slice(&[1, 0, 0, 0]);
            out.extend_from_slice(&1_u32.to_be_bytes());
            out.extend_from_slice(&cropped.track.movie_duration.to_be_bytes());
            out.extend_from_slice(&cropped.prefix.to_be_bytes());
            // Played at its own rate.
            out.extend_from_slice(&[0, 1, 0, 0]);
        });
    });
}

fn put_samples(out: &mut Vec<u8>, cropped: &Cropped<'_>, places: &mut Vec<OffsetPlace>) {
    let track = &cropped.track;
    put_content(out, b"stsd", track.description);
    if let Some(Table { flags, entries }) = &track.times {
        put_table(out, b"stts", *flags, entries.as_flattened(), entries.len());
    }
    if let Some(Table { flags, entries }) = &track.keys {
        put_table(out, b"stss", *flags, entries, entries.len());
    }
    if let Some(Table { flags, entries }) = &track.compositions {
        put_table(out, b"ctts", *flags, entries.as_flattened(), entries.len());
    }
    if let Some(Table { flags, entries }) = &track.chunks {
        let all = cropped.first_chunk.iter().chain(entries).chain(&cropped.last_chunk);
        let all: Vec<[u32; 3]> = all.copied().collect();
        put_table(out, b"stsc", *flags, all.as_flattened(), all.len());
    }
    match &track.sizes {
        None => {}
        Some(Sizes::Uniform(content)) => put_content(out, b"stsz", Some(content)),
        Some(Sizes::Listed(Table { flags, entries })) => put_atom(out, b"stsz", |out| {
            out.extend_from_slice(flags);
            put_numbers(out, &[0, entries.len() as u32]);
            put_numbers(out, entries);
        }),
    }
    if let Some(Offsets { width, table }) = &track.offsets {
        put_offsets(out, *width, table, places);
    }
}

fn put_offsets(out: &mut Vec<u8>, width: Width, table: &Table<u64>, places: &mut Vec<OffsetPlace>) {
    let name = if width == Width::Four { b"stco" } else { b"co64" };
    put_atom(out, name, |out| {
        out.extend_from_slice(&table.flags);
        put_numbers(out, &[table.entries.len() as u32]);
        let start = out.len();
        for &offset in &table.entries {
            match width {
                Width::Four => out.extend_from_slice(&(offset as u32).to_be_bytes()),
                Width::Eight => out.extend_from_slice(&offset.to_be_bytes()),
            }
        }
        places.push(OffsetPlace { bytes: start..out.len(), width });
    });
}

fn put_table(out: &mut Vec<u8>, name: &[u8; 4], flags: [u8; 4], numbers: &[u32], count: usize) {
    put_atom(out, name, |out| {
        out.extend_from_slice(&flags);
        put_numbers(out, &[count as u32]);
        put_numbers(out, numbers);
    });
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[u32]) {
    out.reserve(numbers.len() * 4);
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::content::mp4::atoms::Beginning;

    struct Memory(Vec<u8>);

    impl MediaSource for Memory {
        fn size(&self) -> u64 {
            self.0.len() as u64
        }

        fn read(&mut self, offset: u64, count: usize) -> Result<Vec<u8>, Fault> {
            Ok(self.0[offset as usize..][..count].to_vec())
        }
    }

    fn numbers(numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
    }

    fn atom(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_atom(&mut out, name, |out| out.extend_from_slice(content));
        out
    }

    /// Ten samples of a second and ten bytes each, two in a chunk; a key frame every five.
    fn movie() -> Vec<u8> {
        let data = atom(b"mdat", &(0..100).collect::<Vec<u8>>());
        let samples = [
            atom(b"stsd", &[0; 16]),
            atom(b"stts", &numbers(&[0, 1, 10, 1000])),
            atom(b"stss", &numbers(&[0, 2, 1, 6])),
            atom(b"ctts", &numbers(&[0, 1, 10, 0])),
            atom(b"stsc", &numbers(&[0, 1, 1, 2, 1])),
            atom(b"stsz", &numbers(&[0, 0, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10])),
            atom(b"stco", &numbers(&[0, 5, 8, 28, 48, 68, 88])),
        ];
        let media = [
            atom(b"mdhd", &numbers(&[0, 0, 0, 1000, 10_000, 0])),
            atom(b"minf", &atom(b"stbl", &samples.concat())),
        ];
        let head = [numbers(&[0, 0, 0, 1, 0, 10_000]), vec![0; 60]].concat();
        let track = [atom(b"tkhd", &head), atom(b"mdia", &media.concat())].concat();
        let head = [numbers(&[0, 0, 0, 1000, 10_000]), vec![0; 80]].concat();
        let movie = [atom(b"mvhd", &head), atom(b"trak", &track)].concat();
        [data, atom(b"moov", &movie)].concat()
    }

    fn wanted(start_ms: u64, length_ms: u64, beginning: Beginning) -> Wanted {
        Wanted { start_ms, length_ms, buffer_bytes: 64, buffer_max_bytes: 1 << 20, beginning }
    }

    fn data(start_ms: u64, length_ms: u64, beginning: Beginning) -> Range<u64> {
        cut(&mut Memory(movie()), &wanted(start_ms, length_ms, beginning)).unwrap().unwrap().data
    }

    #[test]
    fn whole_samples_are_sent() {
        assert_eq!(data(0, 0, Beginning::Sample), 8..108);
        assert_eq!(data(3000, 0, Beginning::Sample), 38..108);
        assert_eq!(data(3999, 2000, Beginning::Sample), 38..58);
        assert_eq!(data(3000, 0, Beginning::KeyFrame), 8..108);
        assert_eq!(data(7000, 1000, Beginning::KeyFrame), 58..88);
        assert_eq!(data(9000, 5000, Beginning::Sample), 98..108);
    }

    #[test]
    fn offsets_point_into_the_new_file() {
        let Cut { front, data } =
            cut(&mut Memory(movie()), &wanted(3000, 0, Beginning::Sample)).unwrap().unwrap();
        let at = front.windows(4).position(|name| name == b"stco").unwrap();
        let offset = u32::from_be_bytes(front[at + 12..at + 16].try_into().unwrap());
        assert_eq!((u64::from(offset), data.start), (front.len() as u64, 38));
    }

    proptest! {
        /// Whatever the bytes are, there is an answer, and what it says of the file is in the file.
        #[test]
        fn broken_files(
            changes in prop::collection::vec((0_usize..1000, any::<u8>()), 1..8),
            length in 0_usize..1200,
            times in (0_u64..12_000, 0_u64..12_000),
            key_frame in any::<bool>(),
        ) {
            let mut file = movie();
            for (at, byte) in changes {
                let at = at % file.len();
                file[at] = byte;
            }
            file.truncate(length.max(16));
            let size = file.len() as u64;
            let beginning = if key_frame { Beginning::KeyFrame } else { Beginning::Sample };
            if let Ok(Some(cut)) = cut(&mut Memory(file), &wanted(times.0, times.1, beginning)) {
                prop_assert!(cut.data.start < cut.data.end && cut.data.end <= size);
            }
        }
    }
}
