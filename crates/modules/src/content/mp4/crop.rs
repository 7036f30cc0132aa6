//! Cuts the tables of one track to the samples of a part, as nginx does. Pure; run by threads of a pool.

use super::atoms::{Beginning, Fault, Wanted, wrong_in};
use super::track::{Offsets, Sizes, Table, Track, Width, units};

/// A track with its tables cut.
pub(super) struct Cropped<'a> {
    pub(super) track: Track<'a>,
    /// The media before its start that are sent to begin with a key frame, in its units.
    pub(super) prefix: u64,
    /// Samples of the first and of the last chunk, where only some of it are sent.
    pub(super) first_chunk: Option<[u32; 3]>,
    pub(super) last_chunk: Option<[u32; 3]>,
    /// The range of its data in the file, bytes.
    pub(super) start_offset: u64,
    pub(super) end_offset: u64,
}

/// Which samples and chunks are sent.
#[derive(Default)]
struct Limits {
    start_sample: u64,
    end_sample: u64,
    start_chunk: u64,
    end_chunk: u64,
    /// Samples of the first chunk that are not sent.
    start_chunk_samples: u64,
    /// Samples of the last chunk that are sent.
    end_chunk_samples: u64,
    /// Their size, bytes.
    start_chunk_bytes: u64,
    end_chunk_bytes: u64,
}

/// The file that samples lie in.
#[derive(Clone, Copy)]
pub(super) struct Whole {
    /// Bytes.
    pub(super) size: u64,
    /// Where `mdat` ends.
    pub(super) data_end: u64,
}

/// Which end of a table is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Start,
    Last,
}

/// Cuts a track.
pub(super) fn crop<'a>(track: Track<'a>, wanted: &Wanted, whole: Whole) -> Result<Cropped<'a>, Fault> {
    let mut cropping = Cropping {
        cropped: Cropped {
            track,
            prefix: 0,
            first_chunk: None,
            last_chunk: None,
            start_offset: 0,
            end_offset: 0,
        },
        limits: Limits::default(),
        wanted,
    };
    cropping.crop_times()?;
    cropping.crop_keys();
    cropping.crop_compositions();
    cropping.crop_chunks()?;
    cropping.crop_sizes(whole)?;
    cropping.crop_offsets(whole)?;
    Ok(cropping.cropped)
}

struct Cropping<'a, 'w> {
    cropped: Cropped<'a>,
    limits: Limits,
    wanted: &'w Wanted,
}

impl Cropping<'_, '_> {
    fn has_length(&self) -> bool {
        self.wanted.length_ms > 0
    }

    fn crop_times(&mut self) -> Result<(), Fault> {
        let Some(mut table) = self.cropped.track.times.take() else {
            return wrong_in("no mp4 stts atoms were found in ");
        };
        let start = units(self.wanted.start_ms, self.cropped.track.timescale);
        let Ok((index, within, sample)) = find_time(&table.entries, start) else {
            return wrong_in("start time is out mp4 stts samples in ");
        };
        self.begin_at(&mut table.entries, (index, within, sample))?;
        if self.has_length() {
            let length = units(self.wanted.length_ms, self.cropped.track.timescale);
            let samples = match find_time(&table.entries, length.saturating_add(self.cropped.prefix)) {
                Ok((index, within, sample)) => {
                    table.entries.truncate(index + 1);
                    table.entries[index][0] = within;
                    sample
                }
                Err(samples) => samples,
            };
            self.limits.end_sample = self.limits.start_sample + samples;
        }
        self.cropped.track.times = Some(table);
        Ok(())
    }

    /// Drops what comes before a sample, or before the key frame before it.
    fn begin_at(
        &mut self,
        entries: &mut Vec<[u32; 2]>,
        (mut index, within, sample): (usize, u32, u64),
    ) -> Result<(), Fault> {
        let mut back = self.samples_since_key_frame(sample)?;
        self.limits.start_sample = sample - back;
        let mut within = u64::from(within);
        while within < back && index > 0 {
            let [_, duration] = entries[index];
            self.cropped.prefix += within * u64::from(duration);
            back -= within;
            index -= 1;
            within = u64::from(entries[index][0]);
        }
        let [count, duration] = entries[index];
        let back = back.min(within);
        self.cropped.prefix += back * u64::from(duration);
        self.cropped.track.duration = self.cropped.track.duration.saturating_add(self.cropped.prefix);
        entries.drain(..index);
        entries[0][0] = count.saturating_sub((within - back) as u32);
        Ok(())
    }

    fn samples_since_key_frame(&self, sample: u64) -> Result<u64, Fault> {
        let Some(keys) = &self.cropped.track.keys else { return Ok(0) };
        if self.wanted.beginning == Beginning::Sample {
            return Ok(0);
        }
        let mut since = 0;
        for &key in &keys.entries {
            if key == 0 {
                return wrong_in("zero sync sample in ");
            }
            match (sample + 1).checked_sub(u64::from(key)) {
                Some(samples) => since = samples,
                None => break,
            }
        }
        Ok(since)
    }

    fn crop_keys(&mut self) {
        let Some(Table { entries, .. }) = &mut self.cropped.track.keys else { return };
        let Limits { start_sample, end_sample, .. } = self.limits;
        let first_from = |entries: &[u32], sample: u64| {
            entries.iter().position(|&key| u64::from(key) > sample).unwrap_or(entries.len())
        };
        entries.drain(..first_from(entries, start_sample));
        if self.wanted.length_ms > 0 {
            entries.truncate(first_from(entries, end_sample));
        }
        entries.iter_mut().for_each(|key| *key = key.wrapping_sub(start_sample as u32));
    }

    fn crop_compositions(&mut self) {
        let Some(Table { entries, .. }) = &mut self.cropped.track.compositions else { return };
        let Limits { start_sample, end_sample, .. } = self.limits;
        match find_sample(entries, start_sample) {
            Some((index, within)) => {
                entries.drain(..index);
                entries[0][0] -= within;
            }
            None => entries.clear(),
        }
        if self.wanted.length_ms > 0
            && let Some((index, within)) = find_sample(entries, end_sample - start_sample)
        {
            entries.truncate(index + 1);
            entries[index][0] = within;
        }
        if entries.is_empty() {
            self.cropped.track.compositions = None;
        }
    }

    fn crop_chunks(&mut self) -> Result<(), Fault> {
        let Some(mut table) = self.cropped.track.chunks.take() else {
            return wrong_in("no mp4 stsc atoms were found in ");
        };
        if table.entries.is_empty() {
            return wrong_in("zero number of entries in stsc atom in ");
        }
        self.begin_chunks(&mut table.entries)?;
        if self.has_length() {
            self.end_chunks(&mut table.entries)?;
        }
        let start = self.limits.start_chunk as u32;
        table.entries.iter_mut().for_each(|entry| entry[0] = entry[0].wrapping_sub(start));
        self.cropped.track.chunks = Some(table);
        Ok(())
    }

    fn begin_chunks(&mut self, entries: &mut Vec<[u32; 3]>) -> Result<(), Fault> {
        let found = find_chunk(entries, self.limits.start_sample, self.chunk_count(), End::Start)?;
        let [_, samples, id] = entries[found.index];
        entries.drain(..found.index);
        self.limits.start_chunk = found.chunk;
        self.limits.start_chunk_samples = u64::from(found.within);
        entries[0][0] = (found.chunk + 1) as u32;
        if found.within > 0 {
            let left = samples - found.within;
            if found.next_chunk.wrapping_sub(found.chunk) == 2 {
                entries[0][1] = left;
            } else {
                self.cropped.first_chunk = Some([1, left, id]);
                entries[0][0] = (found.chunk + 2) as u32;
            }
        }
        Ok(())
    }

    fn end_chunks(&mut self, entries: &mut Vec<[u32; 3]>) -> Result<(), Fault> {
        let mut sample = self.limits.end_sample - self.limits.start_sample;
        if let Some([_, samples, _]) = &mut self.cropped.first_chunk {
            *samples = u32::try_from(sample).unwrap_or(u32::MAX).min(*samples);
            sample -= u64::from(*samples);
        }
        let found = find_chunk(entries, sample, self.chunk_count(), End::Last)?;
        let [chunk, samples, id] = entries[found.index];
        let limits = &mut self.limits;
        if found.left > 0 {
            entries.truncate(found.index + 1);
            limits.end_chunk_samples = u64::from(samples);
        } else {
            entries.truncate(found.index);
            limits.end_chunk_samples = u64::from(found.samples_before);
        }
        limits.end_chunk = found.chunk;
        if found.within > 0 {
            limits.end_chunk += 1;
            limits.end_chunk_samples = u64::from(found.within);
            if u64::from(chunk) == found.chunk + 1 {
                entries[found.index][1] = found.within;
            } else {
                let number = limits.end_chunk.saturating_sub(limits.start_chunk) as u32;
                self.cropped.last_chunk = Some([number, found.within, id]);
            }
        }
        Ok(())
    }

    fn chunk_count(&self) -> u64 {
        self.cropped.track.offsets.as_ref().map_or(0, |offsets| offsets.table.entries.len() as u64)
    }

    fn crop_sizes(&mut self, whole: Whole) -> Result<(), Fault> {
        const START_OUT: &str = "start time is out mp4 stsz samples in ";
        const END_OUT: &str = "end time is out mp4 stsz samples in ";
        let Some(Sizes::Listed(Table { entries, .. })) = &mut self.cropped.track.sizes else {
            return Ok(());
        };
        let limits = &mut self.limits;
        let start = usize::try_from(limits.start_sample).unwrap_or(usize::MAX);
        if start >= entries.len() {
            return wrong_in(START_OUT);
        }
        let before = start.checked_sub(limits.start_chunk_samples as usize);
        let Some(before) = before else { return wrong_in(START_OUT) };
        limits.start_chunk_bytes = sum(&entries[before..start]);
        if limits.start_chunk_bytes > whole.size {
            return wrong_in("too large mp4 start samples size in ");
        }
        entries.drain(..start);
        if self.wanted.length_ms > 0 {
            let count = (limits.end_sample - limits.start_sample) as usize;
            if count > entries.len() {
                return wrong_in(END_OUT);
            }
            entries.truncate(count);
            let last = count.checked_sub(limits.end_chunk_samples as usize);
            let Some(last) = last else { return wrong_in(END_OUT) };
            limits.end_chunk_bytes = sum(&entries[last..]);
            if limits.end_chunk_bytes > whole.size {
                return wrong_in("too large mp4 end samples size in ");
            }
        }
        Ok(())
    }

    fn crop_offsets(&mut self, whole: Whole) -> Result<(), Fault> {
        let Some(Offsets { width, table }) = &mut self.cropped.track.offsets else {
            return wrong_in("no mp4 stco atoms were found in ");
        };
        let (width, entries, limits) = (*width, &mut table.entries, &self.limits);
        let start_out = match width {
            Width::Four => "start time is out mp4 stco chunks in ",
            Width::Eight => "start time is out mp4 co64 chunks in ",
        };
        if limits.start_chunk >= entries.len() as u64 {
            return wrong_in(start_out);
        }
        let behind = |offset: u64, bytes: u64| {
            let place = offset.checked_add(bytes).filter(|&place| place <= whole.size);
            place.filter(|&place| width == Width::Eight || place <= u64::from(u32::MAX))
        };
        const TOO_LARGE: &str = "too large chunk offset in ";
        entries.drain(..limits.start_chunk as usize);
        let Some(start) = behind(entries[0], limits.start_chunk_bytes) else { return wrong_in(TOO_LARGE) };
        entries[0] = start;
        let mut end = whole.data_end;
        if self.wanted.length_ms > 0 {
            let count = limits.end_chunk.saturating_sub(limits.start_chunk) as usize;
            if count > entries.len() {
                return wrong_in(match width {
                    Width::Four => "end time is out mp4 stco chunks in ",
                    Width::Eight => "end time is out mp4 co64 chunks in ",
                });
            }
            entries.truncate(count);
            if let Some(&last) = entries.last() {
                let Some(place) = behind(last, limits.end_chunk_bytes) else { return wrong_in(TOO_LARGE) };
                end = place;
            }
        }
        let range = if entries.is_empty() { (whole.size, 0) } else { (start, end) };
        (self.cropped.start_offset, self.cropped.end_offset) = range;
        Ok(())
    }
}

fn sum(sizes: &[u32]) -> u64 {
    sizes.iter().map(|&size| u64::from(size)).sum()
}

/// The entry that a time lies in, the samples of it before that, and all samples before it; or the number of
/// all samples.
fn find_time(entries: &[[u32; 2]], mut time: u64) -> Result<(usize, u32, u64), u64> {
    let mut before = 0;
    for (index, &[count, duration]) in entries.iter().enumerate() {
        let lasts = u64::from(count) * u64::from(duration);
        if time < lasts {
            let within = time / u64::from(duration);
            return Ok((index, within as u32, before + within));
        }
        before += u64::from(count);
        time -= lasts;
    }
    Err(before)
}

/// The entry that a sample is of, and the samples of it before that.
fn find_sample(entries: &[[u32; 2]], mut sample: u64) -> Option<(usize, u32)> {
    for (index, &[count, _]) in entries.iter().enumerate() {
        if sample < u64::from(count) {
            return Some((index, sample as u32));
        }
        sample -= u64::from(count);
    }
    None
}

/// Where a sample is among the chunks.
struct FoundChunk {
    /// The entry that its chunk is of.
    index: usize,
    /// The number of its chunk, from 0.
    chunk: u64,
    /// The first chunk of the next entry, from 1.
    next_chunk: u64,
    /// Samples of its chunk before it.
    within: u32,
    /// Samples of its entry before it.
    left: u64,
    /// How many samples the chunk before its entry has.
    samples_before: u32,
}

fn find_chunk(entries: &[[u32; 3]], mut sample: u64, chunks: u64, end: End) -> Result<FoundChunk, Fault> {
    const UNORDERED: &str = "unordered mp4 stsc chunks in ";
    let mut samples_before = 0;
    let mut index = 0;
    let next_chunk = loop {
        let [chunk, samples, _] = entries[index];
        let next = entries.get(index + 1).map_or(chunks + 1, |next| u64::from(next[0]));
        let Some(count) = next.checked_sub(u64::from(chunk)) else { return wrong_in(UNORDERED) };
        let count_samples = count * u64::from(samples);
        if index + 1 == entries.len() {
            if sample > count_samples {
                return wrong_in(match end {
                    End::Start => "start time is out mp4 stsc chunks in ",
                    End::Last => "end time is out mp4 stsc chunks in ",
                });
            }
            break next;
        }
        if sample < count_samples {
            break next;
        }
        sample -= count_samples;
        if count > 0 {
            samples_before = samples;
        }
        index += 1;
    };
    let [chunk, samples, _] = entries[index];
    if samples == 0 {
        return wrong_in("zero number of samples in ");
    }
    let Some(before) = u64::from(chunk).checked_sub(1) else { return wrong_in("zero chunk in ") };
    let (chunk, within) = (before + sample / u64::from(samples), (sample % u64::from(samples)) as u32);
    Ok(FoundChunk { index, chunk, next_chunk, within, left: sample, samples_before })
}
