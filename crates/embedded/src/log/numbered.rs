//! Reads events by sequence number, for streams, whose entries are positions in the log.

use std::ops::ControlFlow;

use annals_core::{RecordedEvent, SequenceNumber, StoreError, limits};

use super::Log;
use super::core::Core;
use super::segment::{Segment, runs};

/// Commits are looked up in groups of at most this size.
const GROUP: usize = 64;

impl Log {
    /// Returns the events with these ascending numbers, from the first on. If they are large, it returns only some, but at least one.
    pub(crate) fn events(&self, numbers: &[SequenceNumber]) -> Result<Vec<RecordedEvent>, StoreError> {
        self.core.noticed(events(&self.core, numbers))
    }

    /// Returns the number of durable events.
    pub(crate) fn durable_head(&self) -> SequenceNumber {
        self.core.head()
    }

    /// Fails if the log was opened damaged, so that its readable end is not its real end.
    ///
    /// # Errors
    /// The damage.
    pub(crate) fn unless_cut_short(&self) -> Result<(), StoreError> {
        self.core.unless_about_the_end((), true)
    }
}

/// Reads the events with these ascending numbers. An event keeps the bytes of adjacent events in memory, so the limit counts all commits
/// that were read.
fn events(core: &Core, numbers: &[SequenceNumber]) -> Result<Vec<RecordedEvent>, StoreError> {
    // The head is read before the view, so the view holds at least as much.
    let head = core.head();
    let there = &numbers[..numbers.partition_point(|number| *number < head)];
    if there.is_empty()
        && let Some(number) = numbers.first()
    {
        core.unless_about_the_end((), true)?;
        return Err(StoreError::Damaged(format!("event {number} of a stream is not in the log, which ends at {head}")));
    }
    let view = core.view();
    let mut page = Page { events: Vec::with_capacity(there.len()), bytes: 0, unpacked: 0 };
    let mut rest = there;
    while let Some(first) = rest.first()
        && !page.is_full()
        && let Some(at) = view.position_of(*first)
    {
        let end = view.segments.get(at + 1).map_or(SequenceNumber::MAX, |next| next.first);
        let (here, later) = rest.split_at(rest.partition_point(|number| *number < end));
        page.read(&view.segments[at], here)?;
        rest = later;
    }
    Ok(page.events)
}

struct Page {
    events: Vec<RecordedEvent>,
    /// The size of the commits that were read, as they are stored.
    bytes: usize,
    /// The size of the events as they are written, and of the data of others that were read for them. It may be many times what is stored.
    unpacked: usize,
}

impl Page {
    fn is_full(&self) -> bool {
        self.bytes.max(self.unpacked) >= limits::PAGE_BYTES_MAX
    }

    /// Reads events of one segment until the page is full.
    fn read(&mut self, segment: &Segment, numbers: &[SequenceNumber]) -> Result<(), StoreError> {
        let mut rest = numbers;
        while !rest.is_empty() {
            let (mut ordinals, mut taken) = (Vec::new(), 0);
            for number in rest {
                let ordinal = segment.index.ordinal_of(*number)?;
                let ordinal = ordinal.ok_or_else(|| segment.at.damage(0, "its index lacks the first commit"))?;
                if ordinals.last() != Some(&ordinal) {
                    if ordinals.len() == GROUP {
                        break;
                    }
                    ordinals.push(ordinal);
                }
                taken += 1;
            }
            let (group, later) = rest.split_at(taken);
            self.read_group(segment, &ordinals, group)?;
            if self.is_full() {
                return Ok(());
            }
            rest = later;
        }
        Ok(())
    }

    fn read_group(
        &mut self,
        segment: &Segment,
        ordinals: &[u32],
        numbers: &[SequenceNumber],
    ) -> Result<(), StoreError> {
        let mut wanted = numbers.iter().copied().peekable();
        let entries = segment.index.entries(ordinals)?;
        for run in runs(&entries) {
            let _ = segment.visit(run, |event, owner| {
                if wanted.next_if_eq(&event.sequence_number).is_some() {
                    self.unpacked += event.page_bytes();
                    self.events.push(owner.own(&event));
                } else {
                    // It was read, and is not written.
                    self.unpacked += event.data.as_bytes().len();
                }
                let is_full = self.unpacked >= limits::PAGE_BYTES_MAX && !self.events.is_empty();
                if is_full || wanted.peek().is_none() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            self.bytes += run.iter().map(|entry| entry.length as usize).sum::<usize>();
            if self.is_full() {
                return Ok(());
            }
        }
        match wanted.next() {
            Some(number) => Err(segment.at.damage(0, &format!("event {number} is not where its index says"))),
            None => Ok(()),
        }
    }
}
