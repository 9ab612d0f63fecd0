//! Queries of commits over a log: commits are looked up by the terms of the log's index (aggregates, types, tags, names), converted to
//! documents, and evaluated.

use std::ops::ControlFlow;
use std::sync::Arc;

use bson::raw::RawDocumentBuf;
use bytestring::ByteString;

use super::StoredQuery;
use super::candidates::Candidates;
use super::commit_document::CommitDocument;
use super::lowest::Lowest;
use crate::event_log::let_others_run;
use crate::{
    Aggregate, AggregateFilter, AggregateQuery, Condition, DocumentKind, EventLog, EventRef, Explained, Filter,
    Invalid, Matcher, ReadError, RecordedCommit, ScanQuery, Version, limits, no_text_index,
};

/// The number of commits that are collected by name before they are read.
const NAMED_AT_ONCE: usize = 1_000;
/// The number of aggregates and commits that are read before other tasks may run.
const READ_AT_ONCE: usize = 64;

/// The commits of a log.
pub(super) struct LogCommits {
    log: Arc<dyn EventLog>,
    context: ByteString,
}

/// Receives each document that matches.
type Take<'t> = dyn FnMut(&RawDocumentBuf) -> Result<(), Invalid> + Send + 't;

impl LogCommits {
    pub(super) fn new(log: Arc<dyn EventLog>, context: ByteString) -> Self {
        Self { log, context }
    }

    pub(super) async fn find(&self, name: &ByteString, query: &StoredQuery) -> Result<Vec<RawDocumentBuf>, ReadError> {
        let mut lowest = Lowest::new(query, DocumentKind::Commit);
        self.look(name, &query.condition, &mut |document| lowest.offer(document)).await?;
        Ok(lowest.answer())
    }

    pub(super) async fn count(&self, name: &ByteString, condition: &Condition) -> Result<u64, ReadError> {
        let mut count = 0;
        let mut take = |_: &RawDocumentBuf| {
            count += 1;
            Ok(())
        };
        self.look(name, condition, &mut take).await?;
        Ok(count)
    }

    pub(super) async fn explain(&self, name: &ByteString, query: &StoredQuery) -> Result<Explained, ReadError> {
        let mut lowest = Lowest::new(query, DocumentKind::Commit);
        let examined = self.look(name, &query.condition, &mut |document| lowest.offer(document)).await?;
        let index = match Candidates::of(name, &query.condition) {
            Candidates::Aggregates { .. } => "aggregate",
            Candidates::Events(filter) if filter.tags.is_empty() => "type",
            Candidates::Events(_) => "tag",
            Candidates::Name => "name",
        };
        Ok(Explained {
            index: Some(index.to_owned()),
            entries_examined: examined,
            documents_examined: examined,
            found: lowest.answer().len() as u64,
            sorted: true,
        })
    }

    /// Returns whether the query must read every commit of the name.
    pub(super) fn reads_every_commit(name: &ByteString, condition: &Condition) -> bool {
        Candidates::of(name, condition) == Candidates::Name
    }

    /// Passes every document that matches to `take`, and returns the number of evaluated documents.
    async fn look(&self, name: &ByteString, condition: &Condition, take: &mut Take<'_>) -> Result<u64, ReadError> {
        if condition.text_search().is_some() {
            return Err(no_text_index().into());
        }
        condition.judgeable()?;
        let mut judge = Judge { matcher: Matcher::new(condition), context: &self.context, examined: 0, take };
        let candidates = Candidates::of(name, condition);
        if !candidates.is_nowhere() {
            match candidates {
                Candidates::Aggregates { ids, from, to } => {
                    for (place, id) in ids.into_iter().enumerate() {
                        if place % READ_AT_ONCE == READ_AT_ONCE - 1 {
                            let_others_run().await;
                        }
                        self.aggregate(Aggregate { name: name.clone(), id }, from, to, &mut judge).await?;
                    }
                }
                Candidates::Events(filter) => self.with_events(name, filter, &mut judge).await?,
                Candidates::Name => self.all(name, &mut judge).await?,
            }
        }
        Ok(judge.examined)
    }

    /// Evaluates the commits of an aggregate, within a range of versions.
    async fn aggregate(
        &self,
        aggregate: Aggregate,
        from: Version,
        to: Version,
        judge: &mut Judge<'_, '_>,
    ) -> Result<(), ReadError> {
        let mut query = AggregateQuery { from_version: from, to_version: to, ..AggregateQuery::new(aggregate) };
        query.limit = limits::PAGE_MAX;
        loop {
            let found = self.log.read_aggregate(query.clone()).await?;
            found.commits.iter().try_for_each(|commit| judge.commit(commit))?;
            let Some(last) = found.commits.last().map(|commit| commit.info.version) else { return Ok(()) };
            if last >= found.version.min(to) {
                return Ok(());
            }
            query.from_version = last + 1;
        }
    }

    /// Evaluates the commits with events that pass the filter. They are first collected by aggregate and version, then read completely.
    async fn with_events(&self, name: &ByteString, filter: Filter, judge: &mut Judge<'_, '_>) -> Result<(), ReadError> {
        let mut scan = ScanQuery { filter, ..ScanQuery::default() };
        let mut named: Vec<(ByteString, Version)> = Vec::new();
        // The events of a commit are adjacent, so comparing with the last collected commit suffices.
        let mut last: Option<(ByteString, Version)> = None;
        loop {
            let mut full = false;
            let mut visit = |event: EventRef<'_>| {
                let commit = event.commit;
                let known =
                    |(id, version): &(ByteString, Version)| **id == *commit.aggregate_id && *version == commit.version;
                if !last.as_ref().is_some_and(known) {
                    let key = (ByteString::from(commit.aggregate_id), commit.version);
                    last = Some(key.clone());
                    named.push(key);
                }
                full = named.len() == NAMED_AT_ONCE;
                if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            scan.from = self.log.scan(scan.clone(), &mut visit).await?;
            for (place, (id, version)) in named.drain(..).enumerate() {
                if place % READ_AT_ONCE == READ_AT_ONCE - 1 {
                    let_others_run().await;
                }
                let aggregate = Aggregate { name: name.clone(), id };
                let found = self.log.read_aggregate(AggregateQuery::single(aggregate, version)).await?;
                found.commits.iter().try_for_each(|commit| judge.commit(commit))?;
            }
            if !full {
                return Ok(());
            }
        }
    }

    /// Evaluates all commits of the name.
    async fn all(&self, name: &ByteString, judge: &mut Judge<'_, '_>) -> Result<(), ReadError> {
        let aggregate = Some(AggregateFilter { name: name.clone(), id: None });
        let scan = ScanQuery { filter: Filter { aggregate, ..Filter::default() }, ..ScanQuery::default() };
        let (mut begun, mut refused): (Option<CommitDocument>, Option<Invalid>) = (None, None);
        let mut visit = |event: EventRef<'_>| {
            if begun.as_ref().is_some_and(|begun| begun.id != event.commit.commit_id)
                && let Some(whole) = begun.take()
                && let Err(error) = judge.document(whole.done())
            {
                refused = Some(error);
                return ControlFlow::Break(());
            }
            begun.get_or_insert_with(|| CommitDocument::of(&event, judge.context)).add(&event);
            ControlFlow::Continue(())
        };
        self.log.scan(scan, &mut visit).await?;
        match (refused, begun) {
            (Some(error), _) => Err(error.into()),
            (None, Some(last)) => Ok(judge.document(last.done())?),
            (None, None) => Ok(()),
        }
    }
}

/// Evaluates commits against a condition.
struct Judge<'j, 't> {
    matcher: Matcher,
    context: &'j str,
    examined: u64,
    take: &'j mut Take<'t>,
}

impl Judge<'_, '_> {
    fn commit(&mut self, commit: &RecordedCommit) -> Result<(), Invalid> {
        let mut document: Option<CommitDocument> = None;
        for event in &commit.events {
            event.lend(|event| {
                document.get_or_insert_with(|| CommitDocument::of(&event, self.context)).add(&event);
            });
        }
        document.map_or(Ok(()), |document| self.document(document.done()))
    }

    fn document(&mut self, document: RawDocumentBuf) -> Result<(), Invalid> {
        self.examined += 1;
        if self.matcher.matches(&document) { (self.take)(&document) } else { Ok(()) }
    }
}
