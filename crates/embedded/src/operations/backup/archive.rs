//! The tar archive of a backup: POSIX ustar, with pax records before each file whose name or length does not fit its field. `tar xf`
//! unpacks it.

use super::invalid;
use crate::operations::Outcome;

const BLOCK: usize = 512;
const NAME_BYTES: usize = 100;
/// The largest number in a field of eleven octal digits.
const OCTAL_MAX: u64 = 0o77_777_777_777;
const FILE: u8 = b'0';
const PAX: u8 = b'x';
/// More than any file system stores in a file, and little enough to be rounded up.
const FILE_BYTES_MAX: u64 = 1 << 62;
/// The largest pax record that is accepted; names have at most a few hundred bytes.
const PAX_BYTES_MAX: u64 = 64 * 1024;

/// Returns the bytes that precede a file.
pub(super) fn header(name: &str, bytes: u64, modified_seconds: u64) -> Vec<u8> {
    let mut records = String::new();
    if name.len() > NAME_BYTES {
        records.push_str(&pax_record("path", name));
    }
    if bytes > OCTAL_MAX {
        records.push_str(&pax_record("size", &bytes.to_string()));
    }
    let mut out = Vec::new();
    if !records.is_empty() {
        out.extend_from_slice(&block(b"pax", PAX, records.len() as u64, modified_seconds));
        out.extend_from_slice(records.as_bytes());
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    let start = &name.as_bytes()[..name.len().min(NAME_BYTES)];
    out.extend_from_slice(&block(start, FILE, bytes, modified_seconds));
    out
}

/// Returns the bytes that follow a file.
pub(super) fn padding(bytes: u64) -> &'static [u8] {
    const ZEROS: [u8; BLOCK] = [0; BLOCK];
    &ZEROS[..(bytes.next_multiple_of(BLOCK as u64) - bytes) as usize]
}

/// The end of an archive.
pub(super) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// Returns `"LENGTH KEY=VALUE\n"`, where LENGTH includes itself.
fn pax_record(key: &str, value: &str) -> String {
    let rest = format!(" {key}={value}\n");
    let mut length = rest.len();
    while length != length.to_string().len() + rest.len() {
        length = length.to_string().len() + rest.len();
    }
    format!("{length}{rest}")
}

fn block(name: &[u8], kind: u8, bytes: u64, modified_seconds: u64) -> [u8; BLOCK] {
    let mut out = [0; BLOCK];
    out[..name.len()].copy_from_slice(name);
    out[100..108].copy_from_slice(b"0000600\0");
    out[108..116].copy_from_slice(b"0000000\0");
    out[116..124].copy_from_slice(b"0000000\0");
    out[124..136].copy_from_slice(format!("{:011o}\0", bytes.min(OCTAL_MAX)).as_bytes());
    let modified = modified_seconds.min(OCTAL_MAX);
    out[136..148].copy_from_slice(format!("{modified:011o}\0").as_bytes());
    out[156] = kind;
    out[257..265].copy_from_slice(b"ustar\x0000");
    let sum = checksum(&out);
    out[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out
}

/// Returns the sum of a header's bytes, with the field of the sum counted as spaces.
fn checksum(block: &[u8; BLOCK]) -> u32 {
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    let field: u32 = block[148..156].iter().map(|byte| u32::from(*byte)).sum();
    sum - field + 8 * u32::from(b' ')
}

/// Receives the files of a backup one after another.
pub(super) trait Sink {
    /// Begins a file.
    fn begin(&mut self, name: &str, bytes: u64) -> Outcome<()>;
    /// Receives the next bytes of the file.
    fn data(&mut self, bytes: &[u8]) -> Outcome<()>;
    /// Ends the file, which is complete.
    fn end(&mut self) -> Outcome<()>;
}

/// Unpacks an archive as it arrives.
#[derive(Default)]
pub(super) struct Unpack {
    /// A header that has not completely arrived, or a pax record.
    held: Vec<u8>,
    state: State,
    /// What pax records state about the next file.
    stated: Stated,
    ended: bool,
}

#[derive(Default)]
struct Stated {
    name: Option<String>,
    bytes: Option<u64>,
}

#[derive(Default, Clone, Copy)]
enum State {
    #[default]
    Header,
    Pax {
        bytes: usize,
    },
    File {
        left: u64,
        padding: u64,
    },
}

impl Unpack {
    /// Unpacks the next bytes.
    pub(super) fn push(&mut self, mut bytes: &[u8], sink: &mut dyn Sink) -> Outcome<()> {
        while !bytes.is_empty() {
            match self.state {
                State::Header => self.fill(&mut bytes, BLOCK, sink)?,
                State::Pax { bytes: length } => self.fill(&mut bytes, length.next_multiple_of(BLOCK), sink)?,
                State::File { left: 0, padding } => {
                    let skip = padding.min(bytes.len() as u64);
                    bytes = &bytes[skip as usize..];
                    self.state = State::File { left: 0, padding: padding - skip };
                    if padding == skip {
                        self.state = State::Header;
                    }
                }
                State::File { left, padding } => {
                    let part = left.min(bytes.len() as u64);
                    sink.data(&bytes[..part as usize])?;
                    bytes = &bytes[part as usize..];
                    self.go_on(left - part, padding, sink)?;
                }
            }
        }
        Ok(())
    }

    fn go_on(&mut self, left: u64, padding: u64, sink: &mut dyn Sink) -> Outcome<()> {
        self.state = State::File { left, padding };
        if left == 0 {
            sink.end()?;
            if padding == 0 {
                self.state = State::Header;
            }
        }
        Ok(())
    }

    fn fill(&mut self, bytes: &mut &[u8], wanted: usize, sink: &mut dyn Sink) -> Outcome<()> {
        let part = (wanted - self.held.len()).min(bytes.len());
        self.held.extend_from_slice(&bytes[..part]);
        *bytes = &bytes[part..];
        if self.held.len() < wanted {
            return Ok(());
        }
        let held = std::mem::take(&mut self.held);
        match self.state {
            State::Pax { bytes } => {
                self.stated = Stated::read(&held[..bytes])?;
                self.state = State::Header;
                Ok(())
            }
            _ => self.header(&held, sink),
        }
    }

    fn header(&mut self, held: &[u8], sink: &mut dyn Sink) -> Outcome<()> {
        if held.iter().all(|byte| *byte == 0) {
            self.ended = true;
            return Ok(());
        }
        let block: &[u8; BLOCK] = held.first_chunk().ok_or_else(not_an_archive)?;
        let sum = octal(&block[148..156]).ok_or_else(not_an_archive)?;
        if &block[257..262] != b"ustar" || sum != u64::from(checksum(block)) {
            return Err(not_an_archive());
        }
        let bytes = octal(&block[124..136]).ok_or_else(not_an_archive)?;
        match block[156] {
            PAX if bytes <= PAX_BYTES_MAX => {
                self.state = State::Pax { bytes: bytes as usize };
                Ok(())
            }
            FILE => {
                let stated = std::mem::take(&mut self.stated);
                let short = || text(&block[..NAME_BYTES]);
                let name = stated.name.or_else(short).ok_or_else(not_an_archive)?;
                let bytes = stated.bytes.unwrap_or(bytes);
                sink.begin(&name, bytes)?;
                self.go_on(bytes, padding(bytes).len() as u64, sink)
            }
            _ => Err(not_an_archive()),
        }
    }

    /// Checks that the archive is complete.
    ///
    /// # Errors
    /// `invalid_backup` if its end has not arrived.
    pub(super) fn finish(&self) -> Outcome<()> {
        if self.ended { Ok(()) } else { Err(invalid("the backup is truncated; part of it was lost in transfer")) }
    }
}

fn not_an_archive() -> crate::operations::OperationError {
    invalid("the file is not a backup of Annals, or is damaged")
}

fn octal(field: &[u8]) -> Option<u64> {
    let text = text(field)?;
    u64::from_str_radix(text.trim(), 8).ok()
}

/// Returns the text up to the first NUL.
fn text(field: &[u8]) -> Option<String> {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8(field[..end].to_vec()).ok()
}

impl Stated {
    fn read(mut records: &[u8]) -> Outcome<Self> {
        let mut stated = Self::default();
        while !records.is_empty() {
            let (key, value, rest) = pax_parts(records).ok_or_else(not_an_archive)?;
            match key {
                "path" => stated.name = Some(value.to_owned()),
                "size" => stated.bytes = Some(file_bytes(value).ok_or_else(not_an_archive)?),
                _ => {}
            }
            records = rest;
        }
        Ok(stated)
    }
}

fn file_bytes(text: &str) -> Option<u64> {
    text.parse().ok().filter(|bytes| *bytes <= FILE_BYTES_MAX)
}

/// Splits the first record of pax off: returns its key, its value, and what follows it.
fn pax_parts(records: &[u8]) -> Option<(&str, &str, &[u8])> {
    let digits = records.iter().position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&records[..digits]).ok()?.parse().ok()?;
    let record = std::str::from_utf8(records.get(digits + 1..length)?).ok()?;
    let (key, value) = record.strip_suffix('\n')?.split_once('=')?;
    Some((key, value, &records[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Files(Vec<(String, Vec<u8>, bool)>);

    impl Sink for Files {
        fn begin(&mut self, name: &str, _bytes: u64) -> Outcome<()> {
            self.0.push((name.to_owned(), Vec::new(), false));
            Ok(())
        }

        fn data(&mut self, bytes: &[u8]) -> Outcome<()> {
            self.0.last_mut().expect("it has begun").1.extend_from_slice(bytes);
            Ok(())
        }

        fn end(&mut self) -> Outcome<()> {
            self.0.last_mut().expect("it has begun").2 = true;
            Ok(())
        }
    }

    fn archive(files: &[(String, Vec<u8>)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, content) in files {
            out.extend(header(name, content.len() as u64, 1_700_000_000));
            out.extend_from_slice(content);
            out.extend_from_slice(padding(content.len() as u64));
        }
        out.extend_from_slice(&END);
        out
    }

    fn samples() -> Vec<(String, Vec<u8>)> {
        let lengths = [0, 1, 511, 512, 513, 5_000];
        lengths.map(|length| (format!("tenants/{}", "n".repeat(length % 300 + 1)), vec![7; length])).to_vec()
    }

    #[test]
    fn files_come_out_as_they_went_in_whatever_the_pieces() {
        let bytes = archive(&samples());
        for piece in [1, 7, 512, 513, 100_000] {
            let (mut unpack, mut files) = (Unpack::default(), Files::default());
            bytes.chunks(piece).for_each(|part| unpack.push(part, &mut files).expect("it is an archive"));
            unpack.finish().expect("it is whole");
            let due: Vec<_> = samples().into_iter().map(|(name, content)| (name, content, true)).collect();
            assert_eq!(files.0, due);
        }
    }

    #[test]
    fn an_archive_that_ends_early_is_refused_and_so_is_anything_else() {
        let bytes = archive(&samples());
        for length in [0, 511, 512, 600, bytes.len() - END.len()] {
            let (mut unpack, mut files) = (Unpack::default(), Files::default());
            unpack.push(&bytes[..length], &mut files).expect("what is there is an archive");
            assert!(unpack.finish().is_err(), "{length}");
        }
        let refused = Unpack::default().push(&[b'x'; 1_024], &mut Files::default());
        assert!(refused.is_err());
    }

    #[test]
    fn a_file_of_any_length_has_a_header_that_states_it() {
        struct Begun(Vec<(String, u64)>);

        impl Sink for Begun {
            fn begin(&mut self, name: &str, bytes: u64) -> Outcome<()> {
                self.0.push((name.to_owned(), bytes));
                Ok(())
            }

            fn data(&mut self, _bytes: &[u8]) -> Outcome<()> {
                Ok(())
            }

            fn end(&mut self) -> Outcome<()> {
                Ok(())
            }
        }

        for name in ["short".to_owned(), "n".repeat(250)] {
            for bytes in [0, OCTAL_MAX, OCTAL_MAX + 1, 1 << 40] {
                let mut begun = Begun(Vec::new());
                Unpack::default().push(&header(&name, bytes, 0), &mut begun).expect("it is a header");
                assert_eq!(begun.0, [(name.clone(), bytes)]);
            }
        }
    }

    #[test]
    fn a_damaged_pax_record_is_refused() {
        for record in [
            "",
            "9",
            "99 path=a\n",
            "3 path=a\n",
            "10 path=abc",
            "11 size=-1\n",
            "29 size=18446744073709551615\n",
            "0 path=a\n",
        ] {
            let mut bytes = block(b"pax", PAX, record.len() as u64, 0).to_vec();
            bytes.extend_from_slice(record.as_bytes());
            bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
            bytes.extend_from_slice(&block(b"a", FILE, 0, 0));
            let mut files = Files::default();
            let refused = Unpack::default().push(&bytes, &mut files);
            assert!(refused.is_err() || (record.is_empty() && files.0.len() == 1), "{record:?}");
        }
    }

    /// What `tar` of the system makes of it.
    #[test]
    fn tar_unpacks_it() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("a.tar"), archive(&samples())).expect("written");
        let tar = std::process::Command::new("tar").current_dir(folder.path()).args(["xf", "a.tar"]).status();
        let Ok(status) = tar else { return };
        assert!(status.success());
        for (name, content) in samples() {
            // A name of 300 bytes is longer than file systems take; it is cut nowhere else.
            if name.len() < 255 {
                assert_eq!(std::fs::read(folder.path().join(&name)).expect(&name), content);
            }
        }
    }
}
