//! A cache of the newest events in the process that numbers them: followers in that process get them without a query.
//!
//! INVARIANT: cached events are in the log at majority, and contiguous from the first number to the end of the cache. The cache says
//! nothing about what follows its end, which another process may have written.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use annals_core::{LogPage, LogQuery, RecordedEvent, SequenceNumber, limits};

use crate::layout::foreign::StoredCommit;

/// Maximum number of cached events, and of bytes of their data.
const EVENTS_MAX: usize = 4096;
const BYTES_MAX: usize = 8 * 1024 * 1024;
/// Batches that are cached after a reader last read the end of the log; after that there seems to be no follower, and caching is
/// pointless.
const WANTED: u32 = 500;

#[derive(Default)]
pub(crate) struct Tail(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    first: SequenceNumber,
    events: VecDeque<RecordedEvent>,
    bytes: usize,
    wanted: u32,
}

impl Tail {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a reader is at the end of the log and will want the next events.
    pub(super) fn want(&self) {
        self.kept().wanted = WANTED;
    }

    /// Adds commits that are in the log from the number `first` on.
    pub(crate) fn push<'a>(&self, first: SequenceNumber, commits: impl Iterator<Item = &'a StoredCommit>) {
        let mut kept = self.kept();
        kept.wanted = kept.wanted.saturating_sub(1);
        if kept.wanted == 0 || kept.end() != first {
            *kept = Kept { first, wanted: kept.wanted, ..Kept::default() };
        }
        if kept.wanted > 0 {
            let mut next = first;
            for commit in commits {
                let recorded = commit.clone().recorded(next);
                next += recorded.events.len() as u64;
                recorded.events.into_iter().for_each(|event| kept.add(event));
            }
        }
    }

    /// Returns the page of a forward query, if its first number is cached.
    pub(super) fn page(&self, query: &LogQuery) -> Option<LogPage> {
        let mut kept = self.kept();
        let from = query.from.unwrap_or(0);
        if from < kept.first || from >= kept.end() {
            return None;
        }
        kept.wanted = WANTED;
        let head = kept.end();
        let mut page = LogPage { events: Vec::new(), next: from, head };
        let mut bytes = 0;
        for event in kept.events.range((from - kept.first) as usize..) {
            if query.filter.admits(event) {
                bytes += event.page_bytes();
                if !page.events.is_empty() && bytes > limits::PAGE_BYTES_MAX {
                    break;
                }
                page.events.push(event.clone());
            }
            page.next = event.sequence_number + 1;
            if page.events.len() == query.limit {
                break;
            }
        }
        Some(page)
    }
}

impl Kept {
    fn end(&self) -> SequenceNumber {
        self.first + self.events.len() as u64
    }

    fn add(&mut self, event: RecordedEvent) {
        self.bytes += event.data.as_bytes().len();
        self.events.push_back(event);
        while self.events.len() > EVENTS_MAX || (self.bytes > BYTES_MAX && self.events.len() > 1) {
            let oldest = self.events.pop_front();
            self.bytes -= oldest.map_or(0, |oldest| oldest.data.as_bytes().len());
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::foreign;
    use annals_core::Filter;
    use mongodb::bson::{RawDocumentBuf, doc};

    fn commit(version: i32, bytes: usize) -> StoredCommit {
        let body = doc! { "name": "paid", "body": { "text": "x".repeat(bytes) } };
        let document = doc! {
            "_id": version.to_string(), "aggregateId": "a", "version": version, "createTime": 1_i64, "body": [body.clone(), body],
        };
        foreign::read(&RawDocumentBuf::try_from(&document).expect("encodes"), "order").expect("is whole")
    }

    fn page(tail: &Tail, from: u64, limit: usize) -> Option<LogPage> {
        tail.page(&LogQuery { from: Some(from), limit, ..LogQuery::default() })
    }

    fn numbers(page: &LogPage) -> Vec<u64> {
        page.events.iter().map(|event| event.sequence_number).collect()
    }

    #[test]
    fn nothing_is_kept_while_nobody_reads_the_end() {
        let tail = Tail::default();
        tail.push(0, [&commit(1, 1)].into_iter());
        assert!(page(&tail, 0, 10).is_none());
        tail.want();
        tail.push(2, [&commit(2, 1), &commit(3, 1)].into_iter());
        let found = page(&tail, 3, 2).expect("is kept");
        assert_eq!((numbers(&found), found.next, found.head), (vec![3, 4], 5, 6));
        assert!(page(&tail, 1, 2).is_none() && page(&tail, 6, 2).is_none(), "what is not kept is not guessed");
        for batch in 0..u64::from(WANTED) {
            tail.push(6 + 2 * batch, [&commit(4, 1)].into_iter());
        }
        assert!(page(&tail, 6, 1).is_none(), "nobody has read since");
    }

    #[test]
    fn a_filter_leaves_out_what_it_does_not_admit_and_says_how_far_it_looked() {
        let tail = Tail::default();
        tail.want();
        tail.push(0, [&commit(1, 1), &commit(2, 1)].into_iter());
        let of = |name: &str, from| {
            let filter = Filter { types: vec![name.into()], ..Filter::default() };
            tail.page(&LogQuery { from: Some(from), limit: 3, filter, ..LogQuery::default() }).expect("is kept")
        };
        let (paid, other) = (of("paid", 1), of("other", 1));
        assert_eq!((numbers(&paid), paid.next), (vec![1, 2, 3], 4));
        assert_eq!((numbers(&other), other.next), (vec![], 4));
    }

    #[test]
    fn what_another_process_wrote_in_between_leaves_no_hole() {
        let tail = Tail::default();
        tail.want();
        tail.push(0, [&commit(1, 1)].into_iter());
        tail.push(10, [&commit(2, 1)].into_iter());
        assert!(page(&tail, 0, 10).is_none());
        assert_eq!(numbers(&page(&tail, 10, 10).expect("is kept")), [10, 11]);
    }

    #[test]
    fn what_is_kept_and_what_a_page_holds_are_bounded() {
        let tail = Tail::default();
        tail.want();
        let large = commit(1, BYTES_MAX / 4);
        tail.push(0, [&large, &large, &large, &large].into_iter());
        assert!(tail.kept().bytes <= BYTES_MAX);
        let first = tail.kept().first;
        assert_eq!(page(&tail, first, 1000).expect("is kept").head, 8);
        let small = commit(1, 1);
        tail.push(8, std::iter::repeat_n(&small, EVENTS_MAX));
        assert_eq!(tail.kept().events.len(), EVENTS_MAX);
        assert_eq!(page(&tail, 8 + EVENTS_MAX as u64, 1000).expect("is kept").events.len(), 1000);
    }
}
