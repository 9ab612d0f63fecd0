//! The required answers to reads.

use std::fmt::Debug;
use std::sync::Arc;

use annals_core::{
    AggregateCommits, AggregateIdsQuery, AggregateNamesQuery, AggregateQuery, ByteString, KnownAggregate, LogPage,
    LogQuery, ReadError, RecordedCommit, RecordedEvent, Timestamp,
};

use super::{Answer, Model, Operation};

impl Model {
    /// Compares an answer with the required one, and also stores a commit that was stored. `now` is the time of the store's clock.
    ///
    /// # Errors
    /// The required answer.
    pub fn check(&mut self, operation: &Operation, answer: &Answer, now: Timestamp) -> Result<(), String> {
        match (operation, answer) {
            (Operation::Commit(commit), Answer::Commit(answer)) => self.commit(commit, now, answer),
            (Operation::Transact(transaction), Answer::Transact(answer)) => self.transact(transaction, now, answer),
            (Operation::ReadAggregate(query), Answer::Commits(answer)) => self.check_commits(query, answer),
            (Operation::RequestExists(aggregate, request), Answer::Exists(answer)) => {
                let stored = self.stored(aggregate);
                let due = stored.iter().any(|stored| stored.commit.info.request_id.as_ref() == Some(request));
                // The store generated ids for requests without one, which cannot be guessed.
                must_be(operation, &Ok(due), answer)
            }
            (Operation::AggregateIds(query), Answer::Ids(answer)) => {
                must_be(operation, &query.validate().map_err(ReadError::from).map(|()| self.ids(query)), answer)
            }
            (Operation::Read(query), Answer::Page(answer)) => self.check_page(query, answer),
            (Operation::Head, Answer::Head(answer)) => must_be(operation, &Ok(self.head()), answer),
            _ => Err(format!("{operation:?} cannot be answered {answer:?}")),
        }
    }

    /// Returns the names of aggregates.
    pub fn names(&self, query: &AggregateNamesQuery) -> Vec<ByteString> {
        let mut names: Vec<_> = self.aggregates.keys().map(|aggregate| aggregate.name.clone()).collect();
        names.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        names.dedup();
        names.retain(|name| query.after.as_ref().is_none_or(|after| name.as_bytes() > after.as_bytes()));
        names.truncate(query.limit);
        names
    }

    pub(crate) fn ids(&self, query: &AggregateIdsQuery) -> Vec<KnownAggregate> {
        let of_name = self.aggregates.iter().filter(|(aggregate, _)| aggregate.name == query.name);
        let mut known: Vec<_> = of_name
            .filter(|(aggregate, _)| {
                query.after.as_ref().is_none_or(|after| aggregate.id.as_bytes() > after.as_bytes())
            })
            .map(|(aggregate, stored)| KnownAggregate {
                id: aggregate.id.clone(),
                tenant_id: stored[0].commit.info.tenant_id.clone(),
            })
            .collect();
        known.sort_unstable_by(|a, b| a.id.as_bytes().cmp(b.id.as_bytes()));
        known.truncate(query.limit);
        known
    }

    fn check_commits(
        &self,
        query: &AggregateQuery,
        answer: &Result<AggregateCommits, ReadError>,
    ) -> Result<(), String> {
        let due = query.validate().map_err(ReadError::from).map(|()| self.commits(query));
        let (Ok(due), Ok(read)) = (&due, answer) else { return must_be(query, &due, answer) };
        let in_part =
            |part: &[RecordedCommit]| part.iter().zip(&read.commits).all(|(due, read)| same_commit(due, read));
        let (count, limit) = (read.commits.len(), query.limit.min(due.commits.len()));
        let whole = read.version == due.version && count <= limit && (count > 0) == (limit > 0);
        let start = if query.last { due.commits.len() - count.min(due.commits.len()) } else { 0 };
        if whole && in_part(&due.commits[start..start + count]) {
            return Ok(());
        }
        Err(format!("{query:?}\nmust be answered from {due:?}\nnot {read:?}"))
    }

    /// Returns all commits that the query selects, ignoring its limit.
    pub(crate) fn commits(&self, query: &AggregateQuery) -> AggregateCommits {
        let stored = self.stored(&query.aggregate);
        let tenant = stored.first().map(|first| &first.commit.info.tenant_id);
        if query.tenant_id.is_some() && query.tenant_id.as_ref() != tenant {
            return AggregateCommits { commits: Vec::new(), version: 0 };
        }
        let commits = stored.iter().map(|stored| &stored.commit).filter(|commit| {
            (query.from_version..=query.to_version).contains(&commit.info.version)
                && query.from_time.is_none_or(|from| commit.info.time >= from)
                && query.to_time.is_none_or(|to| commit.info.time <= to)
        });
        AggregateCommits { commits: commits.cloned().collect(), version: stored.len() as u64 }
    }

    fn check_page(&self, query: &LogQuery, answer: &Result<LogPage, ReadError>) -> Result<(), String> {
        let due = query.validate().map_err(ReadError::from);
        let (Ok(()), Ok(page)) = (&due, answer) else {
            return must_be(query, &due, &answer.as_ref().map(|_| ()).map_err(Clone::clone));
        };
        let head = self.head();
        let from = query.from.unwrap_or(if query.backwards { head } else { 0 }).min(head);
        let admitted = self.events.iter().filter(|event| query.filter.admits(event));
        let (matching, end): (Vec<_>, _) = if query.backwards {
            (admitted.rev().filter(|event| event.sequence_number < from).collect(), 0)
        } else {
            (admitted.filter(|event| event.sequence_number >= from).collect(), head)
        };
        let count = page.events.len();
        let right = count <= matching.len().min(query.limit)
            && (count == 0) == matching.is_empty()
            && page.head == head
            && matching.iter().zip(&page.events).all(|(due, read)| same_event(due, read));
        // `next` follows the last event of the page, and is not the first remaining event.
        let left = matching.get(count).map(|event| event.sequence_number);
        let next_is_right = match (page.events.last(), query.backwards) {
            (None, _) => page.next == end,
            (Some(last), false) => page.next > last.sequence_number && page.next <= left.unwrap_or(head),
            (Some(last), true) => page.next <= last.sequence_number && left.is_none_or(|left| page.next > left),
        };
        if right && next_is_right {
            return Ok(());
        }
        Err(format!("{query:?} with head {head}\nmust be answered from {matching:?}\nnot {page:?}"))
    }
}

/// Returns whether the event that was read is the stored one. A request id generated by the store may have any value.
pub(super) fn same_event(stored: &RecordedEvent, read: &RecordedEvent) -> bool {
    if stored.commit.request_id.is_some() || read.commit.request_id.is_none() {
        return stored == read;
    }
    let mut read = read.clone();
    Arc::make_mut(&mut read.commit).request_id = None;
    *stored == read
}

fn same_commit(stored: &RecordedCommit, read: &RecordedCommit) -> bool {
    let same_events = stored.events.iter().zip(&read.events).all(|(stored, read)| same_event(stored, read));
    let same_info = read.events.iter().all(|event| event.commit == read.info);
    stored.events.len() == read.events.len() && same_events && same_info
}

fn must_be<T: PartialEq + Debug>(asked: &impl Debug, due: &T, answer: &T) -> Result<(), String> {
    if due == answer { Ok(()) } else { Err(format!("{asked:?}\nmust be answered {due:?}\nnot {answer:?}")) }
}

impl Model {
    /// Compares the whole log with the model.
    ///
    /// # Errors
    /// The first difference.
    pub fn check_log(&self, events: &[RecordedEvent]) -> Result<(), String> {
        if events.len() != self.events.len() {
            return Err(format!("the log has {} events instead of {}", events.len(), self.events.len()));
        }
        let differs = self.events.iter().zip(events).find(|(stored, read)| !same_event(stored, read));
        differs.map_or(Ok(()), |(stored, read)| Err(format!("{stored:?}\nis read as {read:?}")))
    }
}
