//! Walking a segment frame by frame, also past what is damaged: for a check, a backup and a repair, which want to know what is left.

use std::collections::VecDeque;
use std::io;

use annals_core::SequenceNumber;

use super::scan::{BLOCK, WINDOW, Window};
use super::segment::SegmentFile;
use crate::format::{FRAME_HEADER, SEGMENT_HEADER};
use crate::packed::{Framed, Packed};
use crate::record::{self, Record};

const UNDECODABLE: &str = "a commit cannot be decoded";
/// The bytes before the body of a packed frame, at most.
const RECORD_HEAD_MAX: usize = 16;

/// A segment between its header and a bound. Of a transaction all commits are handed over, or none.
pub(crate) struct Walk<'a> {
    window: Window<'a>,
    offset: u64,
    to: u64,
    /// Commits of a transaction that is not whole yet.
    begun: Vec<Placed>,
    /// What comes next before the file is read on.
    ready: VecDeque<Step>,
}

/// A commit and where its frame stands.
pub(crate) struct Placed {
    pub(crate) offset: u64,
    /// The length of its frame without padding.
    pub(crate) length: u32,
    /// The offset behind it: where the next one stands.
    pub(crate) end: u64,
    /// What its header says was synced when it was written. Of a packed segment everything was.
    pub(crate) durable_to: u64,
    pub(crate) record: Record,
}

/// What stands at the next place.
pub(crate) enum Step {
    Commit(Box<Placed>),
    /// Bytes from `offset` up to the next frame that are none.
    Fault {
        offset: u64,
        what: &'static str,
        /// Where the header is whole and the payload is not.
        sequence_number: Option<SequenceNumber>,
    },
    /// Nothing but zeros up to the bound.
    End,
}

impl Placed {
    /// Whether nothing that belongs to it comes behind it: it stands for itself, or is the last one of its transaction.
    pub(crate) fn ends(&self) -> bool {
        self.record.transaction().is_none_or(|it| it.ends())
    }

    /// The sequence number of its first event, or the one that the next event gets.
    pub(crate) fn first(&self) -> SequenceNumber {
        self.record.first
    }

    /// The sequence number behind its last event.
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

    /// What stands at the next place. Behind the end there is only the end.
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
                        // The damage is where it is, and costs the whole transaction.
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

    /// Whether a commit goes on with the transaction that has begun, or stands for itself where none has.
    fn continues(&self, record: &Record) -> bool {
        record::goes_on(self.begun.first().map(|first| &first.record), self.begun.len(), record)
    }

    /// Reads the next frame, whatever it belongs to.
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
            return Ok(fault("the payload of a commit is not what was written"));
        }
        Ok(match record::decode(payload, header.sequence_number, header.version, &record::unknown_origin) {
            Some(record) => {
                let (end, durable_to) = (self.offset, header.durable_to);
                Step::Commit(Box::new(Placed { offset, length, end, durable_to, record }))
            }
            None => fault(UNDECODABLE),
        })
    }

    /// Reads the next frame of a packed segment. Anything but whole frames, and less than 8 zeros behind the last, is a fault.
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
        // The length is not to be trusted, so what comes next may begin at any byte.
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
        Ok(Step::Fault { offset, what: "a commit is not what was written", sequence_number: None })
    }

    /// Goes on to the next frame behind bytes that are none.
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
    let what = "a transaction is not whole";
    Step::Fault { offset: first.offset, what, sequence_number: Some(first.first()) }
}

fn not_a_frame(offset: u64) -> Step {
    Step::Fault { offset, what: "the header of a commit is not what was written", sequence_number: None }
}
