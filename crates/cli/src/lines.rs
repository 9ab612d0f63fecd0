//! Reads JSON lines from a file or standard input, ahead of their use, on a thread of their own. The memory for each line is bounded.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use annals::{Code, limits};
use tokio::sync::mpsc;

use crate::failure::Failure;

/// The number of lines that are read ahead.
const AHEAD: usize = 16;

/// A line that is not blank.
pub struct Line {
    /// Its number, from 1. Blank lines count.
    pub number: u64,
    /// The offset of its end in the input, in bytes.
    pub end: u64,
    /// Its text without the line ending, or why it cannot be read.
    pub text: Result<Vec<u8>, Failure>,
}

/// Opens a file; `-` is standard input.
pub fn open(path: &Path) -> Result<Box<dyn BufRead + Send>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    match File::open(path) {
        Ok(file) => Ok(Box::new(BufReader::with_capacity(1 << 18, file))),
        Err(error) => Err(unreadable(path, &error)),
    }
}

/// Reads a whole file as text; `-` is standard input.
pub fn text(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text).map_err(|error| unreadable(path, &error))?;
    Ok(text)
}

/// Returns the refusal of an input file.
pub fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Code::UnreadableInput, format!("{}: {error}", path.display()))
}

/// Detects documents that are spread over several lines, and reports only the first piece.
#[derive(Default)]
pub struct Spread {
    inside: bool,
}

impl Spread {
    /// Notes that a line is a complete document.
    pub fn whole(&mut self) {
        self.inside = false;
    }

    /// Returns what to report about a line that is not a document. Returns nothing for a further piece of a document that began earlier.
    pub fn refused(&mut self, text: &[u8], failure: Failure) -> Option<Failure> {
        let open = |last: &u8| matches!(last, b'{' | b'[' | b',' | b':');
        let (begun, end) = (text.trim_ascii_start().first(), text.trim_ascii_end().last());
        let piece = failure.code == Code::NotJson || (failure.code == Code::InvalidBody && begun != Some(&b'{'));
        if self.inside && piece {
            return None;
        }
        self.inside = failure.code == Code::NotJson && end.is_some_and(open);
        if !self.inside {
            return Some(failure);
        }
        let message =
            "the document continues on the next line; write one document per line, for example with `jq -c .`";
        let failure = Failure::new(Code::NotJson, message);
        Some(failure.advise("Put each document on its own line."))
    }
}

/// Starts reading. The thread ends at the end of the input, after an error, or when the receiver is dropped.
pub fn read(mut input: Box<dyn BufRead + Send>) -> mpsc::Receiver<Line> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    std::thread::spawn(move || {
        let (mut number, mut end) = (0, 0);
        loop {
            number += 1;
            let text = match read_line(&mut *input, &mut end).map(|line| without_mark(number, line)) {
                Ok(None) => return,
                Ok(Some(Ok(text))) if text.iter().all(u8::is_ascii_whitespace) => continue,
                Ok(Some(text)) => text,
                Err(error) => {
                    let failure = Failure::new(Code::UnreadableInput, error.to_string());
                    let _ = sender.blocking_send(Line { number, end, text: Err(failure) });
                    return;
                }
            };
            if sender.blocking_send(Line { number, end, text }).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Removes a byte order mark. Some programs begin a file of UTF-8 with one, which JSON does not allow.
fn without_mark(number: u64, mut line: Option<Result<Vec<u8>, Failure>>) -> Option<Result<Vec<u8>, Failure>> {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    if number == 1
        && let Some(Ok(text)) = &mut line
        && text.starts_with(MARK)
    {
        text.drain(..MARK.len());
    }
    line
}

/// Reads to the end of the line, and keeps at most as many bytes as a body may have.
fn read_line(input: &mut dyn BufRead, end: &mut u64) -> io::Result<Option<Result<Vec<u8>, Failure>>> {
    let mut line = Vec::new();
    let (mut length, mut done) = (0, false);
    while !done {
        let chunk = match input.fill_buf() {
            Ok(chunk) => chunk,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if chunk.is_empty() {
            if length == 0 {
                return Ok(None);
            }
            break;
        }
        let newline = chunk.iter().position(|byte| *byte == b'\n');
        let used = newline.map_or(chunk.len(), |at| at + 1);
        if length + used <= limits::BODY_BYTES_MAX + 1 {
            line.extend_from_slice(&chunk[..newline.unwrap_or(used)]);
        } else {
            line = Vec::new();
        }
        length += used;
        done = newline.is_some();
        input.consume(used);
    }
    *end += length as u64;
    if length > limits::BODY_BYTES_MAX + 1 {
        let message = format!("the line has {length} bytes; at most {} are allowed", limits::BODY_BYTES_MAX);
        let failure = Failure::new(Code::BodyTooLarge, message);
        return Ok(Some(Err(failure.advise("Write one document per line, and split a document that is larger."))));
    }
    Ok(Some(Ok(line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &'static [u8]) -> Vec<Line> {
        let mut lines = read(Box::new(BufReader::with_capacity(7, text)));
        std::iter::from_fn(|| lines.blocking_recv()).collect()
    }

    #[test]
    fn lines_keep_their_numbers_across_blank_ones() {
        let lines = all(b"{\"a\":1}\n\n  \r\n{\"b\":22222222}\r\nlast");
        let read: Vec<_> = lines.iter().map(|l| (l.number, l.end, l.text.as_deref().expect("text"))).collect();
        assert_eq!(
            read,
            [(1, 8, b"{\"a\":1}".as_slice()), (4, 29, b"{\"b\":22222222}\r".as_slice()), (5, 33, b"last".as_slice())]
        );
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
        let lines = all(b"\xef\xbb\xbf{}\n\xef\xbb\xbf{}");
        assert_eq!(lines[0].text.as_deref(), Ok(b"{}".as_slice()));
        assert_eq!(lines[1].text.as_deref(), Ok(b"\xef\xbb\xbf{}".as_slice()));
    }

    #[test]
    fn a_line_over_the_limit_is_refused_and_the_next_one_is_read() {
        let mut text = vec![b'x'; limits::BODY_BYTES_MAX + 1];
        text.extend_from_slice(b"\n{}\n");
        let mut lines = read(Box::new(io::Cursor::new(text)));
        let long = lines.blocking_recv().expect("a line");
        assert_eq!(long.text.expect_err("too long").code, Code::BodyTooLarge);
        assert_eq!(lines.blocking_recv().expect("a line").text.expect("text"), b"{}");
        assert!(lines.blocking_recv().is_none());
    }
}
