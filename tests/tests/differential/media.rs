//! `flv` and `mp4`: parts of videos. The files are made here: tracks with tables as encoders write them.

use clearway_testkit::Case;

fn atom(name: &str, content: &[u8]) -> Vec<u8> {
    [&(content.len() as u32 + 8).to_be_bytes(), name.as_bytes(), content].concat()
}

fn long_atom(name: &str, content: &[u8]) -> Vec<u8> {
    [&1_u32.to_be_bytes(), name.as_bytes(), &(content.len() as u64 + 16).to_be_bytes(), content].concat()
}

fn numbers(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

fn table(name: &str, width: usize, entries: &[u32]) -> Vec<u8> {
    atom(name, &[numbers(&[0, (entries.len() / width) as u32]), numbers(entries)].concat())
}

/// `mvhd`, `tkhd` or `mdhd` of version 0 with a number of bytes behind the duration.
fn head(name: &str, before: &[u32], duration: u32, rest: usize) -> Vec<u8> {
    atom(name, &[numbers(&[0, 1, 2]), numbers(before), numbers(&[duration]), vec![7; rest]].concat())
}

/// The same of version 1.
fn long_head(name: &str, before: &[u32], duration: u32, rest: usize) -> Vec<u8> {
    let times = numbers(&[1 << 24, 0, 1, 0, 2]);
    atom(name, &[times, numbers(before), numbers(&[0, duration]), vec![7; rest]].concat())
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Short,
    Long,
}

struct Track {
    timescale: u32,
    sample_duration: u32,
    samples: usize,
    /// Samples of the chunks, by turns.
    chunks: &'static [usize],
    keys_every: usize,
    kind: &'static str,
}

const VIDEO: Track =
    Track { timescale: 1000, sample_duration: 40, samples: 250, chunks: &[10], keys_every: 24, kind: "vmhd" };
const SOUND: Track = Track {
    timescale: 8000,
    sample_duration: 256,
    samples: 300,
    chunks: &[7, 7, 9, 1, 1, 1, 12],
    keys_every: 0,
    kind: "smhd",
};

impl Track {
    fn size(&self, sample: usize) -> usize {
        20 + sample * 7 % 31 + self.kind.len()
    }

    /// Numbers of samples of each chunk.
    fn chunk_samples(&self) -> Vec<usize> {
        let (mut left, mut all) = (self.samples, Vec::new());
        for &count in self.chunks.iter().cycle() {
            if left == 0 {
                break;
            }
            all.push(count.min(left));
            left -= count.min(left);
        }
        all
    }

    /// `trak`, where the data begin at `offset`; and how long they are.
    fn build(&self, offset: usize, form: Form) -> (Vec<u8>, usize) {
        let (mut place, mut offsets, mut runs, mut sample) = (offset, Vec::new(), Vec::new(), 0);
        for (chunk, count) in self.chunk_samples().into_iter().enumerate() {
            offsets.push(place as u32);
            if runs.last().is_none_or(|&(_, last)| last != count) {
                runs.push((chunk + 1, count));
            }
            place += (sample..sample + count).map(|sample| self.size(sample)).sum::<usize>();
            sample += count;
        }
        let runs: Vec<u32> =
            runs.iter().flat_map(|&(chunk, count)| [chunk as u32, count as u32, 1]).collect();
        let sizes: Vec<u32> = (0..self.samples).map(|sample| self.size(sample) as u32).collect();
        let half = self.samples as u32 / 2;
        let times = [half, self.sample_duration, self.samples as u32 - half, self.sample_duration];
        let offsets = match form {
            Form::Short => table("stco", 1, &offsets),
            Form::Long => {
                table("co64", 2, &offsets.iter().flat_map(|&offset| [0, offset]).collect::<Vec<_>>())
            }
        };
        let mut samples = vec![atom("stsd", &[1; 24]), table("stts", 2, &times)];
        if self.keys_every > 0 {
            let keys: Vec<u32> =
                (0..self.samples).step_by(self.keys_every).map(|key| key as u32 + 1).collect();
            samples.push(table("stss", 1, &keys));
            samples.push(table("ctts", 2, &[3, 80, 100, 40, self.samples as u32 - 103, 0]));
        }
        let listed = [numbers(&[0, 0, sizes.len() as u32]), numbers(&sizes)].concat();
        samples.extend([table("stsc", 3, &runs), atom("stsz", &listed), offsets]);
        let duration = self.samples as u32 * self.sample_duration;
        let seconds = duration as f64 / f64::from(self.timescale);
        let in_movie = (seconds * 600.0) as u32;
        let heads = match form {
            Form::Short => {
                [head("tkhd", &[1, 0], in_movie, 60), head("mdhd", &[self.timescale], duration, 4)]
            }
            Form::Long => {
                [long_head("tkhd", &[1, 0], in_movie, 60), long_head("mdhd", &[self.timescale], duration, 4)]
            }
        };
        let [track_head, media_head] = heads;
        let info =
            [atom(self.kind, &[0; 12]), atom("dinf", &[2; 12]), atom("stbl", &samples.concat())].concat();
        let media = [media_head, atom("hdlr", &[3; 25]), atom("minf", &info)].concat();
        (atom("trak", &[track_head, atom("mdia", &media), atom("udta", b"x")].concat()), place - offset)
    }
}

fn movie(tracks: &[Track], form: Form, data_first: bool) -> Vec<u8> {
    let kind = atom("ftyp", b"isom\0\0\0\x01isom");
    let build = |start: usize| {
        let (mut place, mut all) = (start, Vec::new());
        for track in tracks {
            let (trak, bytes) = track.build(place, form);
            all.push(trak);
            place += bytes;
        }
        let head = match form {
            Form::Short => head("mvhd", &[600], 6000, 80),
            Form::Long => long_head("mvhd", &[600], 6000, 80),
        };
        (atom("moov", &[head, all.concat(), atom("udta", b"notes")].concat()), place - start)
    };
    let header = if form == Form::Long { 16 } else { 8 };
    let (moov, bytes) = build(0);
    let start = if data_first { kind.len() + header } else { kind.len() + moov.len() + 4 + 8 + header };
    let (moov, _) = build(start);
    let data: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
    let data = if form == Form::Long { long_atom("mdat", &data) } else { atom("mdat", &data) };
    match data_first {
        true => [kind, data, moov].concat(),
        false => [kind, moov, atom("free", &[0; 4]), data].concat(),
    }
}

#[test]
fn parts_of_mp4() {
    let config = "types { video/mp4 mp4; } server { listen %%PORT%%; location / { mp4; }
        location /keys/ { mp4; mp4_start_key_frame on; }
        location /small/ { mp4; mp4_buffer_size 100; }
        location /limit/ { mp4; mp4_buffer_size 100; mp4_max_buffer_size 1k; }
        location /if/ { mp4; if ($arg_x) { set $a 1; } }
        location /plain/ { }
        location /nested/ { mp4; location /nested/in/ { } }
        }";
    let files = [
        ("a.mp4", movie(&[VIDEO, SOUND], Form::Short, false)),
        ("last.mp4", movie(&[VIDEO, SOUND], Form::Short, true)),
        ("long.mp4", movie(&[VIDEO, SOUND], Form::Long, false)),
        ("sound.mp4", movie(&[SOUND], Form::Long, true)),
    ];
    let mut case = Case::http(config);
    for directory in ["", "keys/", "small/", "limit/", "if/", "plain/", "nested/in/"] {
        for (name, content) in &files {
            case = case.file(&format!("html/{directory}{name}"), content.clone());
        }
    }
    for directory in ["", "keys/"] {
        for (name, _) in &files {
            let ask = |case: Case, args: &str| case.get(&format!("/{directory}{name}{args}"));
            case = ask(case, "");
            for start in ["0", "0.3", "0.4", "1.52", "2.4", "9.59", "9.7", "11"] {
                case = ask(case, &format!("?start={start}"));
                for length in [0.04, 1.3, 20.0] {
                    let end = start.parse::<f64>().unwrap_or_default() + length;
                    case = ask(case, &format!("?start={start}&end={end:.3}"));
                }
            }
        }
    }
    for args in
        ["?end=2", "?end=0", "?start=x", "?start=", "?start=2&end=1", "?start=1.0000009", "?start=1..2"]
    {
        case = case.get(&format!("/a.mp4{args}"));
    }
    for directory in ["small/", "limit/", "if/", "plain/", "nested/in/"] {
        case = case
            .get(&format!("/{directory}a.mp4?start=1&x=1"))
            .get(&format!("/{directory}last.mp4?start=1&end=2"));
    }
    case.get("/missing.mp4?start=1")
        .ask("HEAD /a.mp4?start=1 HTTP/1.1\r\nHost: a\r\n\r\n")
        .ask("POST /a.mp4?start=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        .ask("GET /a.mp4?start=1 HTTP/1.1\r\nHost: a\r\nRange: bytes=10-99\r\n\r\n")
        .ask("GET /a.mp4?start=1 HTTP/1.1\r\nHost: a\r\nRange: bytes=-99\r\n\r\n")
        .ask("GET /a.mp4?start=1 HTTP/1.1\r\nHost: a\r\nRange: bytes=1-2,5-6\r\n\r\n")
        .ask("GET /a.mp4 HTTP/1.1\r\nHost: a\r\nRange: bytes=1-2,5-6\r\n\r\n")
        .run();
}

/// Whatever is wrong with a file, the answer is the same.
#[test]
fn broken_mp4() {
    let good = movie(&[VIDEO, SOUND], Form::Short, false);
    let mut case = Case::http("server { listen %%PORT%%; location / { mp4; } }");
    let moov_end = 4 + good.windows(4).position(|name| name == b"mdat").unwrap_or(0);
    let mut files = vec![Vec::new(), b"short".to_vec(), good[..moov_end].to_vec(), good[..100].to_vec()];
    for name in
        ["ftyp", "moov", "mvhd", "trak", "tkhd", "mdia", "mdhd", "minf", "stbl", "stts", "stsc", "mdat"]
    {
        let at = good.windows(4).position(|there| there == name.as_bytes()).unwrap_or(0);
        let renamed = |at: usize| [&good[..at], b"skip", &good[at + 4..]].concat();
        let sized = |size: u32| [&good[..at - 4], &size.to_be_bytes(), &good[at..]].concat();
        files.extend([renamed(at), sized(0), sized(7), sized(9), sized(1), sized(u32::MAX)]);
    }
    for (number, content) in files.into_iter().enumerate() {
        case = case.file(&format!("html/{number}.mp4"), content).get(&format!("/{number}.mp4?start=1"));
    }
    case.run();
}

#[test]
fn parts_of_flv() {
    let config = "types { video/x-flv flv; } server { listen %%PORT%%; location / { flv; }
        location /gzip/ { flv; gzip on; gzip_types *; } location /plain/ { } }";
    let content: Vec<u8> = (0..70_000_u32).map(|at| b'a' + (at % 26) as u8).collect();
    let mut case = Case::http(config).file("html/empty.flv", "").file("html/d/x", "");
    for directory in ["", "gzip/", "plain/"] {
        case = case.file(&format!("html/{directory}a.flv"), content.clone());
        for args in
            ["", "?start=0", "?start=1", "?start=69999", "?start=70000", "?start=x", "?start=", "?start=-1"]
        {
            case = case.get(&format!("/{directory}a.flv{args}"));
        }
    }
    for target in ["/empty.flv?start=1", "/missing.flv", "/d", "/d/"] {
        case = case.get(target);
    }
    case.ask("HEAD /a.flv?start=9 HTTP/1.1\r\nHost: a\r\n\r\n")
        .ask("POST /a.flv HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        .ask("GET /a.flv?start=9 HTTP/1.1\r\nHost: a\r\nRange: bytes=0-9\r\n\r\n")
        .ask("GET /a.flv?start=9 HTTP/1.1\r\nHost: a\r\nRange: bytes=10-99\r\n\r\n")
        .ask("GET /a.flv?start=9 HTTP/1.1\r\nHost: a\r\nRange: bytes=20-99\r\n\r\n")
        .ask("GET /a.flv HTTP/1.1\r\nHost: a\r\nRange: bytes=1-2,5-6\r\n\r\n")
        .ask("GET /gzip/a.flv?start=9 HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n")
        .run();
}
