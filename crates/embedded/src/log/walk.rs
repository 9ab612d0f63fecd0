//! Walks a segment frame by frame, even past damage: for checks, backups and repairs, which need to know what is left.

use std::collections::VecDeque;
use std::io;

use annals_core::SequenceNumber;

use super::scan::{BLOCK, WINDOW, Window};
use super::segment::SegmentFile;
use crate::format::{FRAME_HEADER, SEGMENT_HEADER};
use crate::packed::{Framed, Packed};
use crate::record::{self, Record};

const UNDECODABLE: &str = "a commit cannot be decoded";
/// The most bytes before the body of a packed frame.
const RECORD_HEAD_MAX: usize = 16;

/// The part of a segment between its header and a bound. A transaction is returned as a whole or not at all.
pub(crate) struct Walk<'a> {
    window: Window<'a>,
    offset: u64,
    to: u64,
    /// Commits of a transaction that is not complete yet.
    begun: Vec<Placed>,
    /// Steps to return before reading further.
    ready: VecDeque<Step>,
}

/// A commit and the location of its frame.
pub(crate) struct Placed {
    pub(crate) offset: u64,
    /// The length of its frame without padding.
    pub(crate) length: u32,
    /// The offset after it, where the next frame begins.
    pub(crate) end: u64,
    /// The offset up to which its header says everything was synced when it was written. A packed segment was synced as a whole.
    pub(crate) durable_to: u64,
    pub(crate) record: Record,
}

/// What is found at the next position.
pub(crate) enum Step {
    Commit(Box<Placed>),
    /// Bytes from `offset` up to the next frame that are not a valid frame.
    Fault {
        offset: u64,
        what: &'static str,
        /// Known if the header is valid and the payload is not, or if a transaction is incomplete.
        sequence_number: Option<SequenceNumber>,
    },
    /// Nothing but zeros up to the bound.
    End,
}

impl Placed {
    /// Returns whether nothing that belongs to it follows: it is not part of a transaction, or is the last commit of one.
    pub(crate) fn ends(&self) -> bool {
        self.record.transaction().is_none_or(|it| it.ends())
    }

    /// Returns the sequence number of its first event, or the next one if it has no events.
    pub(crate) fn first(&self) -> SequenceNumber {
        self.record.first
    }

    /// Returns the sequence number after its last event.
    pub(crate) fn next(&self) -> SequenceNumber {
        self.record.next()
    }
}

impl<'a> Walk<'a> {
    /// Walks the frames that begin below `to`.
    pub(crate) fn new(file: &'a SegmentFile, to: u64) -> io::Result<Self> {
        let offset = file.packed.as_ref().map_or(SEGMENT_HEADER, |packed| packed.records_at);
        Ok(Self { window: Window::new(file)?, offset, to, begun: Vec::new(), ready: VecDeque::new() })
    }

    /// Returns the next step. After the end it keeps returning the end.
    pub(crate) fn step(&mut self) -> io::Result<Step> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Ok(ready);
            }
            let step = self.read()?;
            match step {
                Step::Commit(placed) if self.continues(&placed.record) => {
                    let whole = placed.ends();
                    self.begun.push(*placed);
                    if whole {
                        self.ready.extend(self.begun.drain(..).map(|placed| Step::Commit(Box::new(placed))));
                    }
                }
                step => {
                    let broken = std::mem::take(&mut self.begun);
                    let first = broken.first().map(|first| first.first());
                    if let (Step::Fault { offset, what, .. }, Some(_)) = (&step, first) {
                        // The damage is reported where it is, although it costs the whole transaction.
                        return Ok(Step::Fault { offset: *offset, what, sequence_number: first });
                    }
                    self.ready.extend(broken.first().map(not_whole));
                    self.ready.push_back(match step {
                        Step::Commit(placed) if placed.record.transaction().is_some_and(|it| it.place > 0) => {
                            not_whole(&placed)
                        }
                        Step::Commit(placed) if !placed.ends() => {
                            self.begun.push(*placed);
                            continue;
                        }
                        step => step,
                    });
                }
            }
        }
    }

    /// Returns whether a commit continues the transaction that has begun, or stands alone if none has.
    fn continues(&self, record: &Record) -> bool {
        record::goes_on(self.begun.first().map(|first| &first.record), self.begun.len(), record)
    }

    /// Reads the next frame, whichever transaction it belongs to.
    fn read(&mut self) -> io::Result<Step> {
        let offset = self.offset;
        if offset >= self.to {
            return Ok(Step::End);
        }
        if let Some(packed) = self.window.packed() {
            return self.read_packed(&packed);
        }
        let Some((header, payload)) = self.window.frame(offset, false)? else { return self.skip() };
        let length = (FRAME_HEADER + payload.len()) as u32;
        self.offset = (offset + u64::from(length)).next_multiple_of(8);
        let fault = |what| Step::Fault { offset, what, sequence_number: Some(header.sequence_number) };
        if crc32c::crc32c(&payload) != header.payload_crc {
            return Ok(fault("the payload of a commit is damaged"));
        }
        Ok(match record::decode(payload, header.sequence_number, header.version, &record::unknown_origin) {
            Some(record) => {
                let (end, durable_to) = (self.offset, header.durable_to);
                Step::Commit(Box::new(Placed { offset, length, end, durable_to, record }))
            }
            None => fault(UNDECODABLE),
        })
    }

    /// Reads the next frame of a packed segment. Anything but valid frames, followed by less than 8 zero bytes, is a fault.
    fn read_packed(&mut self, packed: &Packed) -> io::Result<Step> {
        const PADDING: usize = 8;
        let offset = self.offset;
        if let Some((length, sequence_number, version, payload)) = self.window.record(packed, offset)? {
            self.offset += u64::from(length);
            return Ok(match record::decode(payload, sequence_number, version, &record::unknown_origin) {
                Some(record) => {
                    let (end, durable_to) = (self.offset, offset);
                    Step::Commit(Box::new(Placed { offset, length, end, durable_to, record }))
                }
                None => Step::Fault { offset, what: UNDECODABLE, sequence_number: Some(sequence_number) },
            });
        }
        let rest = self.window.at(offset, PADDING)?;
        if rest.len() < PADDING && rest.iter().all(|byte| *byte == 0) {
            self.offset = self.to;
            return Ok(Step::End);
        }
        // The length cannot be trusted, so the next frame may begin at any byte.
        self.offset += 1;
        while self.offset < self.to {
            let head = self.window.at(self.offset, RECORD_HEAD_MAX)?;
            if head.is_empty() {
                break;
            }
            if Framed::at(&head, self.window.salt(), self.offset).is_some()
                && self.window.record(packed, self.offset)?.is_some()
            {
                break;
            }
            self.offset += 1;
        }
        Ok(Step::Fault { offset, what: "a commit is damaged", sequence_number: None })
    }

    /// Skips bytes that are not a frame and continues at the next frame.
    fn skip(&mut self) -> io::Result<Step> {
        let start = self.offset;
        let (mut offset, mut dirty) = (start, false);
        while offset < self.to {
            let bytes = self.window.at(offset, WINDOW.min((self.to - offset) as usize))?;
            if bytes.is_empty() {
                break;
            }
            for (begin, block) in (offset..).step_by(BLOCK).zip(bytes.chunks(BLOCK)) {
                if block == &[0; BLOCK][..block.len()] {
                    continue;
                }
                dirty = true;
                for (at, word) in (begin..).step_by(8).zip(block.chunks(8)) {
                    let blank = word.iter().all(|byte| *byte == 0);
                    if !blank && at > start && self.window.frame(at, false)?.is_some() {
                        self.offset = at;
                        return Ok(not_a_frame(start));
                    }
                }
            }
            offset += bytes.len() as u64;
        }
        self.offset = self.to;
        Ok(if dirty { not_a_frame(start) } else { Step::End })
    }
}

fn not_whole(first: &Placed) -> Step {
    let what = "a transaction is incomplete";
    Step::Fault { offset: first.offset, what, sequence_number: Some(first.first()) }
}

fn not_a_frame(offset: u64) -> Step {
    Step::Fault { offset, what: "the header of a commit is damaged", sequence_number: None }
}
