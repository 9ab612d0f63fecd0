//! Captures what a program writes. The beginning is kept; the rest is read and counted, so that the program never waits for a reader.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::sys;

/// One output stream of a program.
pub(super) struct Capture {
    pipe: Option<std::fs::File>,
    kept: Vec<u8>,
    most: usize,
    dropped: u64,
}

impl Capture {
    /// Keeps the first `most` bytes that `pipe` delivers.
    pub(super) fn new(pipe: Option<impl Into<OwnedFd>>, most: usize) -> io::Result<Self> {
        let pipe = pipe.map(|pipe| std::fs::File::from(pipe.into()));
        if let Some(pipe) = &pipe {
            sys::never_block(pipe.as_fd())?;
        }
        Ok(Self { pipe, kept: Vec::new(), most, dropped: 0 })
    }

    /// Returns the descriptor to wait on; `None` once it is closed.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(|pipe| pipe.as_fd())
    }

    /// Reads the available bytes, up to 64 KiB. Returns whether there were any.
    pub(super) fn take(&mut self) -> bool {
        let Some(pipe) = &mut self.pipe else { return false };
        let mut buffer = [0; 64 * 1024];
        match pipe.read(&mut buffer) {
            Ok(read) if read > 0 => {
                let room = self.most - self.kept.len();
                let (kept, dropped) = buffer[..read].split_at(read.min(room));
                self.kept.extend_from_slice(kept);
                self.dropped += dropped.len() as u64;
                true
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            // The end, or a pipe that can no longer be read.
            Ok(_) | Err(_) => {
                self.pipe = None;
                false
            }
        }
    }

    /// Reads what a program that has ended left in the pipe. It does not wait for the pipe to close, because a process that escaped may
    /// keep it open. It also stops if that process continues to write.
    pub(super) fn take_rest(&mut self) {
        const PIPE_BYTES_MAX: usize = 1024 * 1024;
        for _ in 0..PIPE_BYTES_MAX / 4096 {
            if !self.take() {
                break;
            }
        }
        self.pipe = None;
    }

    /// Returns the kept bytes as text, with U+FFFD for what is not UTF-8. If output is missing, a last line says how much.
    pub(super) fn text(mut self) -> String {
        if self.dropped > 0 {
            let whole = match std::str::from_utf8(&self.kept) {
                // The limit may have split a character.
                Err(error) if error.error_len().is_none() => error.valid_up_to(),
                _ => self.kept.len(),
            };
            self.dropped += (self.kept.len() - whole) as u64;
            self.kept.truncate(whole);
        }
        let mut text = String::from_utf8_lossy(&self.kept).into_owned();
        if self.dropped > 0 {
            text.push_str(&format!("\n[truncated: {} more bytes were written]", self.dropped));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn captured(bytes: &[u8], most: usize) -> String {
        let (out, mut into) = io::pipe().expect("a pipe");
        let mut capture = Capture::new(Some(out), most).expect("a pipe can be read without blocking");
        into.write_all(bytes).expect("fits into a pipe");
        capture.take_rest();
        capture.text()
    }

    #[test]
    fn what_fits_is_kept_whole() {
        assert_eq!(captured("größer\n".as_bytes(), 9), "größer\n");
    }

    #[test]
    fn what_does_not_fit_is_cut_between_two_characters_and_the_cut_is_shown() {
        assert_eq!(captured("größer".as_bytes(), 3), "gr\n[truncated: 6 more bytes were written]");
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_replaced() {
        assert_eq!(captured(b"a\xffb\xc3", 64), "a\u{fffd}b\u{fffd}");
    }
}
