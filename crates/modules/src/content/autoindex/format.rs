//! A list of files as text: nginx's page, byte for byte, and its three forms of data. Pure functions on
//! bytes, so that a list can be written in parts, on any thread.

use clearway_base::date::{access_log_time, http_date, iso8601_time};
use clearway_http::put_decimal;

use super::listing::{Entry, Kind, Listing};

/// Characters of a name that the page shows; a longer one ends in two dots and an angle bracket.
const NAME_WIDTH: usize = 50;
/// How many of a longer name.
const CUT_NAME_WIDTH: usize = NAME_WIDTH - 3;
/// The least length of an entry, bytes; for the size of buffers.
const ENTRY_BYTES: usize = 160;

/// In which form a list is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Html,
    Json {
        /// The function that is called with the list.
        callback: Option<Box<[u8]>>,
    },
    Xml,
}

/// How the page shows sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sizes {
    /// In bytes.
    Exact,
    /// In bytes, kilobytes, megabytes or gigabytes.
    Rounded,
}

/// The encoding of names in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// Characters in UTF-8.
    Utf8,
    /// Bytes.
    Unknown,
}

/// A list that is being written.
pub(super) struct Page {
    listing: Listing,
    format: Format,
    sizes: Sizes,
    offset_minutes: i32,
    encoding: Encoding,
    /// Bytes that were written and not taken.
    out: Vec<u8>,
    /// Entries that are written.
    at: usize,
}

impl Page {
    /// A page of which nothing is written. Times in HTML are `offset_minutes` east of UTC.
    pub(super) fn new(listing: Listing, format: Format, sizes: Sizes, offset_minutes: i32) -> Self {
        let (encoding, out) = (Encoding::Unknown, Vec::new());
        Self { listing, format, sizes, offset_minutes, encoding, out, at: 0 }
    }

    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.listing.len()
    }

    /// Writes what comes before the entries; `path` is that of the request.
    pub(super) fn begin(&mut self, path: &[u8], encoding: Encoding) {
        self.encoding = encoding;
        let out = &mut self.out;
        match &self.format {
            Format::Html => {
                out.extend_from_slice(b"<html>\r\n<head><title>Index of ");
                put_html(path, out);
                out.extend_from_slice(b"</title></head>\r\n<body>\r\n<h1>Index of ");
                put_html(path, out);
                out.extend_from_slice(b"</h1><hr><pre><a href=\"../\">../</a>\r\n");
            }
            Format::Json { callback } => {
                if let Some(callback) = callback {
                    out.extend_from_slice(b"/* callback */\r\n");
                    out.extend_from_slice(callback);
                    out.push(b'(');
                }
                out.push(b'[');
            }
            Format::Xml => out.extend_from_slice(b"<?xml version=\"1.0\"?>\r\n<list>\r\n"),
        }
    }

    /// Writes more, up to about so many bytes, and what comes behind the last entry with that.
    pub(super) fn take_part(&mut self, bytes: usize) -> Vec<u8> {
        let mut out = std::mem::take(&mut self.out);
        out.reserve(
            (self.len() - self.at).saturating_mul(ENTRY_BYTES).min(bytes.saturating_add(ENTRY_BYTES)),
        );
        while self.at < self.len() && out.len() < bytes {
            let (entry, is_first) = (self.listing.entry(self.at), self.at == 0);
            match &self.format {
                Format::Html => self.put_line(&entry, &mut out),
                Format::Json { .. } => {
                    out.extend_from_slice(if is_first { b"\r\n" } else { b",\r\n" });
                    put_json_entry(&entry, &mut out);
                }
                Format::Xml => put_xml_entry(&entry, &mut out),
            }
            self.at += 1;
        }
        if self.at == self.len() {
            match &self.format {
                Format::Html => out.extend_from_slice(b"</pre><hr></body>\r\n</html>\r\n"),
                Format::Json { callback: None } => out.extend_from_slice(b"\r\n]"),
                Format::Json { callback: Some(_) } => out.extend_from_slice(b"\r\n]);"),
                Format::Xml => out.extend_from_slice(b"</list>\r\n"),
            }
        }
        out
    }

    /// The page, if there is more to write.
    pub(super) fn unless_done(self) -> Option<Self> {
        (self.at < self.len()).then_some(self)
    }

    /// An entry as a line of the page.
    fn put_line(&self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        let is_directory = entry.kind == Kind::Directory;
        out.extend_from_slice(b"<a href=\"");
        put_percent_encoded(entry.name, out);
        if is_directory {
            out.push(b'/');
        }
        out.extend_from_slice(b"\">");
        let mut width = match self.encoding {
            Encoding::Utf8 => utf8_width(entry.name),
            Encoding::Unknown => entry.name.len(),
        };
        if width > NAME_WIDTH {
            let is_text = width != entry.name.len();
            let end = if is_text { utf8_end(entry.name, CUT_NAME_WIDTH) } else { CUT_NAME_WIDTH };
            put_html(&entry.name[..end], out);
            out.extend_from_slice(b"..&gt;</a>");
        } else {
            put_html(entry.name, out);
            if is_directory && width < NAME_WIDTH {
                out.push(b'/');
                width += 1;
            }
            out.extend_from_slice(b"</a>");
            out.resize(out.len() + NAME_WIDTH - width, b' ');
        }
        out.push(b' ');
        put_page_time(entry.modified, self.offset_minutes, out);
        match (is_directory, self.sizes) {
            (true, Sizes::Exact) => out.extend_from_slice(b"                  -"),
            (true, Sizes::Rounded) => out.extend_from_slice(b"      -"),
            (false, Sizes::Exact) => put_padded(entry.size, 19, out),
            (false, Sizes::Rounded) => put_rounded(entry.size, out),
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// `28-Sep-1970 12:00 `
fn put_page_time(unix_seconds: i64, offset_minutes: i32, out: &mut Vec<u8>) {
    let time = access_log_time(unix_seconds, offset_minutes);
    for part in [&time[0..2], b"-", &time[3..6], b"-", &time[7..11], b" ", &time[12..17], b" "] {
        out.extend_from_slice(part);
    }
}

fn put_padded(number: u64, width: usize, out: &mut Vec<u8>) {
    let start = out.len();
    put_decimal(out, number);
    let missing = width.saturating_sub(out.len() - start);
    out.splice(start..start, std::iter::repeat_n(b' ', missing));
}

/// A size of seven characters, rounded to the nearest unit.
fn put_rounded(size: u64, out: &mut Vec<u8>) {
    const GIGA: u64 = 1 << 30;
    const MEGA: u64 = 1 << 20;
    const KILO: u64 = 1 << 10;
    let (unit, letter) = match size {
        GIGA.. => (GIGA, b'G'),
        MEGA.. => (MEGA, b'M'),
        10_000.. => (KILO, b'K'),
        _ => return put_padded(size, 7, out),
    };
    put_padded(size / unit + u64::from(size % unit >= unit / 2), 6, out);
    out.push(letter);
}

fn put_json_entry(entry: &Entry<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{ \"name\":\"");
    put_json(entry.name, out);
    out.extend_from_slice(b"\", \"type\":\"");
    out.extend_from_slice(type_name(entry.kind));
    out.extend_from_slice(b"\", \"mtime\":\"");
    out.extend_from_slice(&http_date(entry.modified));
    out.push(b'"');
    if entry.kind == Kind::File {
        out.extend_from_slice(b", \"size\":");
        put_decimal(out, entry.size);
    }
    out.extend_from_slice(b" }");
}

fn put_xml_entry(entry: &Entry<'_>, out: &mut Vec<u8>) {
    let name = type_name(entry.kind);
    for part in [b"<", name, b" mtime=\"", &iso8601_time(entry.modified, 0)[..19], b"Z\""] {
        out.extend_from_slice(part);
    }
    if entry.kind == Kind::File {
        out.extend_from_slice(b" size=\"");
        put_decimal(out, entry.size);
        out.push(b'"');
    }
    out.push(b'>');
    put_html(entry.name, out);
    for part in [b"</", name, b">\r\n"] {
        out.extend_from_slice(part);
    }
}

fn type_name(kind: Kind) -> &'static [u8] {
    match kind {
        Kind::Directory => b"directory",
        Kind::File => b"file",
        Kind::Other => b"other",
    }
}

/// Text for HTML and XML.
fn put_html(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'"' => out.extend_from_slice(b"&quot;"),
            byte => out.push(byte),
        }
    }
}

/// A segment of a path in a link: everything but letters, digits and `-._~` is encoded.
fn put_percent_encoded(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', hex_digit(byte >> 4), hex_digit(byte & 15)]);
        }
    }
}

/// Text in a JSON string. What is no UTF-8 is left as it is.
fn put_json(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            0..=0x1f => {
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', hex_digit(byte >> 4), hex_digit(byte & 15)]);
            }
            byte => out.push(byte),
        }
    }
}

fn hex_digit(value: u8) -> u8 {
    b"0123456789ABCDEF"[usize::from(value)]
}

/// The characters of a name in UTF-8; its bytes if it is something else.
fn utf8_width(name: &[u8]) -> usize {
    let (mut at, mut width) = (0, 0);
    while at < name.len() {
        match utf8_length(&name[at..]) {
            Some(length) => at += length,
            None => return name.len(),
        }
        width += 1;
    }
    width
}

/// The index at which so many characters of a name in UTF-8 end.
fn utf8_end(name: &[u8], characters: usize) -> usize {
    let mut at = 0;
    for _ in 0..characters {
        at += utf8_length(&name[at..]).unwrap_or(1);
    }
    at
}

/// How many bytes the first character of a text has; `None` if it is none. This is nginx's notion, which
/// takes halves of surrogate pairs and any byte from 0x80 on as a further one.
fn utf8_length(text: &[u8]) -> Option<usize> {
    let (&first, rest) = text.split_first()?;
    let (more, bits, above) = match first {
        0..0x80 => return Some(1),
        0xc2..0xe0 => (1, first & 0x1f, 0x7f),
        0xe0..0xf0 => (2, first & 0x0f, 0x7ff),
        0xf0..0xf8 => (3, first & 0x07, 0xffff),
        _ => return None,
    };
    let mut code = u32::from(bits);
    for &byte in rest.get(..more)? {
        if byte < 0x80 {
            return None;
        }
        code = code << 6 | u32::from(byte & 0x3f);
    }
    (code > above && code <= 0x10_ffff).then_some(1 + more)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: i64 = 1_704_164_645;

    fn whole(mut page: Page, path: &[u8], encoding: Encoding) -> String {
        page.begin(path, encoding);
        String::from_utf8(page.take_part(usize::MAX)).unwrap()
    }

    fn line(name: &str, kind: Kind, size: u64, sizes: Sizes) -> String {
        let listing = Listing::of(&[(name.as_bytes(), kind, TIME, size)]);
        let page = whole(Page::new(listing, Format::Html, sizes, 0), b"/", Encoding::Utf8);
        page.lines().nth(4).unwrap().to_owned()
    }

    /// The bytes that nginx 1.31.5 has sent.
    #[test]
    fn lines_of_the_page() {
        let time = "02-Jan-2024 03:04";
        let pad = |count| " ".repeat(count);
        for (name, kind, size, expected) in [
            ("d", Kind::Directory, 7, format!("<a href=\"d/\">d/</a>{} {time} {}-", pad(48), pad(18))),
            ("f", Kind::File, 7, format!("<a href=\"f\">f</a>{} {time} {}7", pad(49), pad(18))),
            ("o", Kind::Other, 0, format!("<a href=\"o\">o</a>{} {time} {}0", pad(49), pad(18))),
            (
                "<&\">é",
                Kind::File,
                12,
                format!(
                    "<a href=\"%3C%26%22%3E%C3%A9\">&lt;&amp;&quot;&gt;é</a>{} {time} {}12",
                    pad(45),
                    pad(17)
                ),
            ),
        ] {
            assert_eq!(line(name, kind, size, Sizes::Exact), expected);
        }
        let long = "n".repeat(50);
        assert!(line(&long, Kind::Directory, 0, Sizes::Exact).contains(&format!(">{long}</a> {time}")));
        let longer = "n".repeat(51);
        let cut = format!(">{}..&gt;</a> {time}", "n".repeat(47));
        assert!(line(&longer, Kind::File, 0, Sizes::Exact).contains(&cut));
        let cut = format!(">{}..&gt;</a> {time}", "é".repeat(47));
        assert!(line(&"é".repeat(51), Kind::File, 0, Sizes::Exact).contains(&cut));
        let fits = format!(">{}/</a> {time}", "é".repeat(49));
        assert!(line(&"é".repeat(49), Kind::Directory, 0, Sizes::Exact).contains(&fits));
    }

    #[test]
    fn sizes_are_rounded_to_the_nearest_unit() {
        for (size, expected) in [
            (0, "      0"),
            (9_999, "   9999"),
            (10_000, "    10K"),
            (10_751, "    10K"),
            (10_752, "    11K"),
            (1_048_575, "  1024K"),
            (1_048_576, "     1M"),
            (1_572_864, "     2M"),
            (1_610_612_735, "     1G"),
            (1_610_612_736, "     2G"),
            (1 << 62, "4294967296G"),
        ] {
            assert!(
                line("f", Kind::File, size, Sizes::Rounded).ends_with(&format!(":04 {expected}")),
                "{size}"
            );
        }
        assert!(line("d", Kind::Directory, 0, Sizes::Rounded).ends_with(":04       -"));
    }

    #[test]
    fn data() {
        let entries: &[(&[u8], Kind, i64, u64)] = &[
            (b"d", Kind::Directory, TIME, 9),
            (b"a\"\\\n\x01\x1f", Kind::File, TIME, 9),
            (b"<&>", Kind::Other, TIME, 9),
        ];
        let page = |format| {
            whole(Page::new(Listing::of(entries), format, Sizes::Exact, 60), b"/", Encoding::Unknown)
        };
        let date = "Tue, 02 Jan 2024 03:04:05 GMT";
        let list = format!(
            "[\r\n{{ \"name\":\"d\", \"type\":\"directory\", \"mtime\":\"{date}\" }},\r\n\
             {{ \"name\":\"a\\\"\\\\\\n\\u0001\\u001F\", \"type\":\"file\", \"mtime\":\"{date}\", \
             \"size\":9 }},\
             \r\n{{ \"name\":\"<&>\", \"type\":\"other\", \"mtime\":\"{date}\" }}\r\n]"
        );
        assert_eq!(page(Format::Json { callback: None }), list);
        let called = page(Format::Json { callback: Some(b"f.g".as_slice().into()) });
        assert_eq!(called, format!("/* callback */\r\nf.g({list});"));
        assert_eq!(
            page(Format::Xml),
            "<?xml version=\"1.0\"?>\r\n<list>\r\n\
             <directory mtime=\"2024-01-02T03:04:05Z\">d</directory>\r\n\
             <file mtime=\"2024-01-02T03:04:05Z\" size=\"9\">a&quot;\\\n\u{1}\u{1f}</file>\r\n\
             <other mtime=\"2024-01-02T03:04:05Z\">&lt;&amp;&gt;</other>\r\n</list>\r\n"
        );
    }

    #[test]
    fn parts_make_the_whole() {
        let names: Vec<String> = (0..500).map(|number| format!("file {number}")).collect();
        let entries: Vec<_> =
            names.iter().map(|name| (name.as_bytes(), Kind::File, TIME, name.len() as u64)).collect();
        for format in [Format::Html, Format::Json { callback: None }, Format::Xml] {
            let page = || Page::new(Listing::of(&entries), format.clone(), Sizes::Exact, 0);
            let expected = whole(page(), b"/p/", Encoding::Unknown);
            let mut page = page();
            page.begin(b"/p/", Encoding::Unknown);
            let (mut parts, mut count) = (Vec::new(), 0);
            let mut rest = Some(page);
            while let Some(mut page) = rest {
                let part = page.take_part(1000);
                assert!(part.len() < 1300);
                parts.extend_from_slice(&part);
                count += 1;
                rest = page.unless_done();
            }
            assert!(String::from_utf8(parts).unwrap() == expected && count > 20, "{count} parts");
        }
    }

    #[test]
    fn an_empty_directory() {
        let page =
            |format| whole(Page::new(Listing::default(), format, Sizes::Exact, 0), b"/<", Encoding::Unknown);
        assert_eq!(page(Format::Json { callback: None }), "[\r\n]");
        assert_eq!(page(Format::Xml), "<?xml version=\"1.0\"?>\r\n<list>\r\n</list>\r\n");
        assert_eq!(
            page(Format::Html),
            "<html>\r\n<head><title>Index of /&lt;</title></head>\r\n<body>\r\n<h1>Index of /&lt;</h1><hr>\
             <pre><a href=\"../\">../</a>\r\n</pre><hr></body>\r\n</html>\r\n"
        );
    }
}
