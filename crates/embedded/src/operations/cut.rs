//! Finds where a log can be cut.

use std::io;

use annals_core::{Code, SequenceNumber};

use super::copy::copy;
use super::survey::{self, OpenSegment};
use super::{OperationError, Outcome, unreadable};
use crate::disk::{Disk, Open};
use crate::format::{SEGMENT_HEADER, SegmentHeader};
use crate::log::{Placed, Step, Walk, names};

/// The border in a log's files that precedes a sequence number.
pub(super) struct Border {
    /// The segment that keeps a part of its commits; `None` if the border lies between two segments.
    pub(super) within: Option<OpenSegment>,
    /// The offset of the border in that segment.
    pub(super) offset: u64,
    /// Segments from this number on are removed completely.
    pub(super) beyond: u64,
}

/// Finds the border of a sequence number. Everything before it is read, so what is kept is known to be intact.
///
/// # Errors
/// `invalid_range` if there is no such border, naming the nearest one.
pub(super) fn find(disk: &dyn Disk, dir: &str, at: SequenceNumber, progress: &mut dyn FnMut(u64)) -> Outcome<Border> {
    let mut next = 0;
    let mut due = 1;
    for number in survey::segment_numbers(&survey::sorted(disk, dir)?) {
        let between = next == at;
        if between && number != due {
            return Ok(Border { within: None, offset: SEGMENT_HEADER, beyond: due });
        }
        if number != due {
            return Err(damaged_before(at, next, &format!("{} is missing", names::segment(dir, due))));
        }
        let Ok(open) = survey::segment(disk, dir, number)? else {
            if between {
                return Ok(Border { within: None, offset: SEGMENT_HEADER, beyond: due });
            }
            let name = names::segment(dir, number);
            return Err(damaged_before(at, next, &format!("the header of {name} is damaged")));
        };
        let found = border_in(&open, at, &mut next, progress)?;
        if between && found.is_some_and(|offset| offset == start_of(&open)) {
            return Ok(Border { within: None, offset: SEGMENT_HEADER, beyond: due });
        }
        due = number + 1;
        if let Some(offset) = found {
            return Ok(Border { within: Some(open), offset, beyond: due });
        }
    }
    match next == at {
        true => Ok(Border { within: None, offset: SEGMENT_HEADER, beyond: due }),
        false => Err(refused(format!("the log of {dir} ends at {next}, so it cannot be cut at {at}"))),
    }
}

/// Returns the offset of a segment's first commit.
fn start_of(open: &OpenSegment) -> u64 {
    open.at.packed.as_ref().map_or(SEGMENT_HEADER, |packed| packed.records_at)
}

/// Returns the offset after the commits below `at`, and after the changes of prepare keys that precede event `at`. Returns `None` if
/// nothing follows it in this segment.
fn border_in(
    open: &OpenSegment,
    at: SequenceNumber,
    next: &mut SequenceNumber,
    progress: &mut dyn FnMut(u64),
) -> Outcome<Option<u64>> {
    let name = &open.at.name;
    let fail = |error: std::io::Error| unreadable(name, &error);
    let mut walk = Walk::new(&open.at, open.length).map_err(fail)?;
    let mut end = start_of(open);
    // Where the last commit or transaction that was read begins.
    let (mut before, mut ends) = (*next, true);
    loop {
        let step = walk.step().map_err(fail)?;
        if let Step::End = step {
            return Ok(None);
        }
        let keys_alone = matches!(&step, Step::Commit(placed) if placed.first() == *next && !placed.record.is_commit());
        if *next == at && ends && !keys_alone {
            return Ok(Some(end));
        }
        match step {
            Step::Commit(placed) if placed.first() == *next => {
                before = if ends { *next } else { before };
                ends = placed.ends();
                if at < placed.next() || (at == placed.next() && !ends) {
                    let after = end_of(&mut walk, &placed, name)?;
                    let message = format!(
                        "{at} is inside a commit or transaction; cut at {before}, which is before it, or at {after}"
                    );
                    return Err(refused(message));
                }
                end = placed.end;
                *next = placed.next();
                progress(*next);
            }
            Step::Commit(placed) => {
                return Err(damaged_before(at, *next, &format!("{name} continues with {}", placed.first())));
            }
            Step::Fault { offset, what, .. } => {
                return Err(damaged_before(at, *next, &format!("{name} at offset {offset}: {what}")));
            }
            Step::End => {}
        }
    }
}

/// Returns the sequence number after the commit, or after the transaction it belongs to.
fn end_of(walk: &mut Walk<'_>, placed: &Placed, name: &str) -> Outcome<SequenceNumber> {
    let (mut after, mut ends) = (placed.next(), placed.ends());
    while !ends {
        match walk.step().map_err(|error| unreadable(name, &error))? {
            Step::Commit(placed) => (after, ends) = (placed.next(), placed.ends()),
            _ => break,
        }
    }
    Ok(after)
}

fn refused(message: String) -> OperationError {
    OperationError::new(Code::InvalidRange, message)
}

fn damaged_before(at: SequenceNumber, next: SequenceNumber, what: &str) -> OperationError {
    refused(format!("the log is damaged before {at} ({what}); the nearest border before the damage is {next}"))
}

/// Creates a file from a segment's bytes up to a border, and syncs it. Its name is not synced.
pub(super) fn keep_to(disk: &dyn Disk, open: &OpenSegment, border: u64, to: &str) -> io::Result<()> {
    let Some(packed) = &open.at.packed else {
        return copy(disk, &*open.at.file, to, border, open.capacity.max(open.length));
    };
    // The header of a packed segment contains its length.
    let capacity = border.next_multiple_of(8);
    copy(disk, &*open.at.file, to, border, capacity)?;
    let (number, salt) = (open.at.number, open.at.salt);
    let header = SegmentHeader { number, salt, capacity, packed_from: Some(packed.first), owner: open.owner };
    let file = disk.open(to, Open::Write)?;
    file.write_at(&header.encode(), 0)?;
    file.sync()
}

/// Returns the sequence number after the last readable commit of a log.
pub(super) fn head_of(disk: &dyn Disk, dir: &str) -> Outcome<SequenceNumber> {
    for number in survey::segment_numbers(&survey::sorted(disk, dir)?).into_iter().rev() {
        let Ok(open) = survey::segment(disk, dir, number)? else { continue };
        let fail = |error: std::io::Error| unreadable(&open.at.name, &error);
        let mut walk = Walk::new(&open.at, open.length).map_err(fail)?;
        let mut head = 0;
        loop {
            match walk.step().map_err(fail)? {
                Step::Commit(placed) => head = placed.next(),
                Step::Fault { .. } => {}
                Step::End => break,
            }
        }
        if head > 0 {
            return Ok(head);
        }
    }
    Ok(0)
}
