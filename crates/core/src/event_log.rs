//! The port of the event log: the contract every backend keeps.

use std::ops::ControlFlow;
use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    Aggregate, AggregateCommits, AggregateIdsQuery, AggregateNamesQuery, AggregateQuery, ByteString, CommitCopy,
    CommitError, CommitOutcome, EventRef, Filter, KnownAggregate, LogPage, LogQuery, LogStats, NewCommit,
    NewTransaction, ReadError, RecordedEvent, ScanQuery, SequenceNumber, StoreError, TransactionError, Version, limits,
};

/// The event log of one tenant and scope: every event ever committed there, in one total order without gaps.
///
/// ```text
///  sequence number   0        1        2        3        4        5
///                  ┌────────┬────────┬────────┬────────┬────────┬ ─ ─
///  event           │ placed │ paid   │ opened │ closed │ shipped│       next event
///                  └────────┴────────┴────────┴────────┴────────┴ ─ ─
///  commit           order/1 v1        door/7 v1         order/1 v2    head = 5
/// ```
///
/// An implementation MUST keep these guarantees; the conformance suite tests each of them.
///
/// - **Atomic.** The events of a commit become visible together, with consecutive sequence numbers. A page may end inside a commit
///   because of its limit, never because the commit is partly visible.
/// - **One winner.** For one aggregate and version exactly one commit succeeds. Versions are 1, 2, 3 … without gaps.
/// - **Once per request.** A repeated (aggregate, request id) with the same content adds nothing. It returns the original outcome with
///   `duplicate`, whatever version it expects and however old the original is. With other content it is refused with `request_id_reused`.
///   Request ids of different aggregates are independent. A retry after a lost response is therefore always safe.
/// - **One order.** Sequence numbers are 0, 1, 2 … An event committed after another was acknowledged comes later.
/// - **Durable.** Everything returned to a caller (success, duplicate, conflict, an event, a head) survives kill -9 and power loss.
///   INVARIANT: no response depends on bytes that are not durable yet.
/// - **Immutable.** No method changes or removes an event.
///
/// A commit is checked in this order: its own rules ([`NewCommit::validate`]), the aggregate's tenantId, request id, append condition,
/// prepare keys, version. An append condition is checked, by an index, against everything before the commit in the log, including the
/// most recent commits of other callers.
///
/// A transaction ([`NewTransaction`]) has the same guarantees for all its commits at once: they become visible together, with consecutive
/// sequence numbers in the order given. It is checked in this order: the rules of all commits, all tenantIds, the request id with the
/// first aggregate, all append conditions, all prepare keys, all expectations, all versions. The error names the first part that is
/// refused.
///
/// Prepare keys ([`KeyChanges`](crate::KeyChanges)) change atomically with the events of their commit: a key is held exactly if the
/// commit that reserved it is in the log and no later one released it. A reservation that has expired (its `ttl_at` is before the time of
/// the new commit) can be taken over.
///
/// A log that is damaged can be read up to the damage. Every result that depends on its end (an empty page, "no such aggregate", the
/// newest event) is [`StoreError::Damaged`](crate::StoreError::Damaged) instead, so that a part is never mistaken for the whole.
/// [`head`](Self::head) is then the number of readable events.
///
/// Dropping the future of [`commit`](Self::commit) does not cancel it: the commit is either stored completely or not at all. Reads never
/// wait for writes. No call blocks an async runtime for longer than a read from the disk.
#[async_trait]
pub trait EventLog: Send + Sync + 'static {
    /// Commits events of one aggregate atomically, and returns once they are durable and the commit has reached the stage it waits for
    /// ([`NewCommit::wait`]). A store may assign sequence numbers after storing a commit. The outcome of a commit that did not wait for
    /// them then has none. A commit that is made after an acknowledgement still follows it in the log, and reads of the aggregate see a
    /// commit as soon as it is stored.
    ///
    /// # Errors
    /// See [`CommitError`]. After [`StoreError::Failed`](crate::StoreError::Failed) the outcome is unknown until the store is reopened; a
    /// retry with the same request id then returns it.
    async fn commit(&self, commit: NewCommit) -> Result<CommitOutcome, CommitError>;

    /// Commits to several aggregates atomically, and returns one outcome per commit, in order, once everything is durable. A repeated
    /// request adds nothing and returns all original outcomes.
    ///
    /// # Errors
    /// See [`TransactionError`] and [`commit`](Self::commit).
    async fn transact(&self, transaction: NewTransaction) -> Result<Vec<CommitOutcome>, TransactionError>;

    /// Reads commits of one aggregate in ascending order of version. An aggregate without commits has version 0 and no commits;
    /// versions past its end are not an error.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn read_aggregate(&self, query: AggregateQuery) -> Result<AggregateCommits, ReadError>;

    /// Returns the current version of the aggregate, which is the number of its commits; 0 if it has none. The cost does not depend on that
    /// number.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn aggregate_version(&self, aggregate: &Aggregate) -> Result<Version, ReadError> {
        Ok(self.read_aggregate(AggregateQuery::last(aggregate.clone())).await?.version)
    }

    /// Returns whether this aggregate has a commit with this request id.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn request_exists(&self, aggregate: &Aggregate, request_id: &str) -> Result<bool, ReadError>;

    /// Returns the outcome of the commit with this request id, marked as a duplicate, or none if the aggregate has no such commit. A store
    /// looks it up in an index, however many commits the aggregate has; this default pages backwards through them.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn request_outcome(
        &self,
        aggregate: &Aggregate,
        request_id: &str,
    ) -> Result<Option<CommitOutcome>, ReadError> {
        find_request(self, aggregate, request_id).await
    }

    /// Lists the names that at least one aggregate has, each once, in ascending order of their bytes.
    ///
    /// # Errors
    /// See [`ReadError`]; [`StoreError::NotSupported`](crate::StoreError::NotSupported) if the backend cannot list them.
    async fn aggregate_names(&self, query: AggregateNamesQuery) -> Result<Vec<ByteString>, ReadError> {
        query.validate()?;
        Err(StoreError::NotSupported("listing the names of aggregates".to_owned()).into())
    }

    /// Lists the aggregates of one name, each once, in ascending order of the bytes of their ids.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn aggregate_ids(&self, query: AggregateIdsQuery) -> Result<Vec<KnownAggregate>, ReadError>;

    /// Reads a page of the log. Filters use an index, so the cost is proportional to the result; with several terms it is proportional to
    /// the number of commits that have all of them, perhaps on different events. A `from` beyond the head is treated as the head; an empty
    /// page is the end.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn read(&self, query: LogQuery) -> Result<LogPage, ReadError>;

    /// Calls `visit` with borrowed events in log order until it breaks. A scan finds the same events as [`read`](Self::read), and is the
    /// fastest way to process many of them.
    ///
    /// Returns the number to resume from: one past the event at which `visit` broke, or the end of the range, which is `query.to` or the
    /// head at the start of the scan. Later commits are left to the next scan. Dropping the future ends the scan. A scan yields to other
    /// tasks about once every 0.5 MiB, so `visit` should not block.
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # use annals_core::{EventLog, EventRef, ReadError, ScanQuery};
    /// # async fn example(log: &dyn EventLog) -> Result<u64, ReadError> {
    /// let mut bytes = 0;
    /// let mut visit = |event: EventRef<'_>| {
    ///     bytes += event.data.as_bytes().len();
    ///     ControlFlow::Continue(())
    /// };
    /// let next = log.scan(ScanQuery::default(), &mut visit).await?;
    /// println!("{bytes} bytes of data in front of event {next}");
    /// # Ok(next)
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`ReadError`]; events may have been visited by then. In a log that is damaged the readable part is visited first.
    async fn scan(&self, query: ScanQuery, visit: &mut Visit<'_>) -> Result<SequenceNumber, ReadError> {
        scan_pages(self, query, visit).await
    }

    /// Returns whether a scan examines no more than its range holds. Followers then read range by range where few events may match, so
    /// that their position advances.
    fn scans_ranges(&self) -> bool {
        false
    }

    /// Returns the number of events in the log, which is the next sequence number.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn head(&self) -> Result<SequenceNumber, ReadError>;

    /// Waits until the head is greater than `head`, and returns it. Cancelling is always safe.
    ///
    /// # Errors
    /// See [`ReadError`]; [`StoreError::Closed`](crate::StoreError::Closed) when the store closes while waiting.
    async fn wait_past(&self, head: SequenceNumber) -> Result<SequenceNumber, ReadError>;

    /// Reads complete commits in log order, starting with the first one that begins at or after `from`. Returns at least one unless there
    /// are no more, and at most about 16 MiB.
    ///
    /// # Errors
    /// See [`ReadError`]; [`StoreError::NotSupported`](crate::StoreError::NotSupported) if the log cannot be copied.
    async fn read_copies(&self, from: SequenceNumber) -> Result<Vec<CommitCopy>, ReadError> {
        let _ = from;
        Err(StoreError::NotSupported("copying the commits of this log".to_owned()).into())
    }

    /// Stores copies of commits with their ids, times, versions and sequence numbers, in this order, and returns once all are durable.
    /// The first must begin at the head, and transactions must be complete. Prepare keys change as the commits say, without being checked
    /// again.
    ///
    /// # Errors
    /// [`CommitError::OtherEvents`] if the log is at another number: earlier copies may have been stored, each completely.
    /// [`StoreError::NotSupported`](crate::StoreError::NotSupported) if a log does not accept copies, even for an empty list.
    async fn store_copies(&self, copies: Vec<CommitCopy>) -> Result<(), CommitError> {
        let _ = copies;
        Err(StoreError::NotSupported("importing copies of commits".to_owned()).into())
    }

    /// Counts what the log holds. This may read the whole log; `progress` is called with the number of events counted so far and the total.
    ///
    /// # Errors
    /// See [`ReadError`]; [`StoreError::NotSupported`](crate::StoreError::NotSupported) if the backend cannot count.
    async fn stats(&self, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Result<LogStats, ReadError> {
        let _ = progress;
        Err(StoreError::NotSupported("counting the commits and events of a log".to_owned()).into())
    }
}

/// The callback of a scan, called with each event.
pub type Visit<'a> = dyn FnMut(EventRef<'_>) -> ControlFlow<()> + Send + 'a;

/// Finds the commit of a request page by page, for backends without an index of request ids.
async fn find_request(
    log: &(impl EventLog + ?Sized),
    aggregate: &Aggregate,
    request_id: &str,
) -> Result<Option<CommitOutcome>, ReadError> {
    if !log.request_exists(aggregate, request_id).await? {
        return Ok(None);
    }
    let mut to_version = Version::MAX;
    loop {
        let last = AggregateQuery::last(aggregate.clone());
        let found = log.read_aggregate(AggregateQuery { to_version, limit: limits::PAGE_MAX, ..last }).await?.commits;
        if let Some(first) = found.iter().find(|commit| commit.info.request_id.as_deref() == Some(request_id)) {
            return Ok(Some(first.repeated_outcome()));
        }
        match found.first() {
            Some(oldest) if oldest.info.version > 1 => to_version = oldest.info.version - 1,
            _ => return Ok(None),
        }
    }
}

/// Scans a log page by page, for backends without a faster way.
async fn scan_pages(
    log: &(impl EventLog + ?Sized),
    query: ScanQuery,
    visit: &mut Visit<'_>,
) -> Result<SequenceNumber, ReadError> {
    let ScanQuery { mut from, to, filter } = query;
    let mut page = LogQuery { from: Some(from), limit: limits::PAGE_MAX, backwards: false, filter };
    let mut found = log.read(page.clone()).await?;
    let head = found.head;
    let end = to.min(head);
    while !found.events.is_empty() {
        for event in found.events.iter().take_while(|event| event.sequence_number < end) {
            if event.lend(&mut *visit).is_break() {
                return Ok(event.sequence_number + 1);
            }
        }
        from = found.next;
        if from >= end {
            break;
        }
        page.from = Some(from);
        found = log.read(page.clone()).await?;
    }
    if to > head && !found.events.is_empty() {
        // A damaged log has a head too, and only a read at the head reports that events are missing after it.
        log.read(LogQuery { from: Some(head), limit: 1, ..LogQuery::default() }).await?;
    }
    Ok(end)
}

/// The events of the first range of a follower that reads range by range: so far behind the head, a page may take long if no event
/// matches.
const RANGE: SequenceNumber = 65_536;
/// Ranges in which nothing matches double up to this, because each costs a look-up of every term.
const RANGE_MAX: SequenceNumber = 16 * RANGE;
/// Ranges that are cancelled are halved down to this.
const RANGE_MIN: SequenceNumber = 1_024;

/// Follows a log: first the existing events, then each new one, without gaps or duplicates.
///
/// A follower pulls, so it holds at most one page, and a slow follower does not slow down anyone else.
pub struct Follower {
    log: Arc<dyn EventLog>,
    filter: Filter,
    next: SequenceNumber,
    /// The length of the next range, if it reads range by range.
    range: SequenceNumber,
    /// The most events of a page.
    limit: usize,
}

impl Follower {
    /// Follows `log` from sequence number `from`.
    pub fn new(log: Arc<dyn EventLog>, from: SequenceNumber, filter: Filter) -> Self {
        Self { log, filter, next: from, range: RANGE, limit: limits::PAGE_MAX }
    }

    /// Limits its pages to this many events, for a follower that keeps a page until somebody slow has taken it.
    #[must_use]
    pub fn in_pages_of(mut self, most: usize) -> Self {
        self.limit = most.clamp(1, limits::PAGE_MAX);
        self
    }

    /// Returns the number from which it resumes: every event below it has been returned or did not match the filter.
    pub fn position(&self) -> SequenceNumber {
        self.next
    }

    /// Waits until the log is longer than the position, without reading it.
    ///
    /// # Errors
    /// See [`EventLog::wait_past`].
    pub async fn log_is_longer(&self) -> Result<(), ReadError> {
        self.log.wait_past(self.next).await.map(drop)
    }

    /// Moves the position forward to `to`, past events that the caller has from elsewhere. It never moves back.
    pub fn skip_to(&mut self, to: SequenceNumber) {
        self.next = self.next.max(to);
    }

    /// Moves the position back to `to`, so that the events from there on are returned again. It never moves forward.
    pub fn go_back_to(&mut self, to: SequenceNumber) {
        self.next = self.next.min(to);
    }

    /// Waits for the next events, at least one. Cancelling loses nothing.
    ///
    /// # Errors
    /// See [`ReadError`]; the position is unchanged, so calling again retries.
    pub async fn next_page(&mut self) -> Result<Vec<RecordedEvent>, ReadError> {
        loop {
            let events = self.step().await?;
            if !events.is_empty() {
                return Ok(events);
            }
        }
    }

    /// Waits until the position advances, and returns the matching events that it passed, possibly none. A caller that stores the position
    /// therefore keeps up with a log in which few events match. Cancelling loses nothing.
    ///
    /// # Errors
    /// As [`next_page`](Self::next_page).
    pub async fn step(&mut self) -> Result<Vec<RecordedEvent>, ReadError> {
        let range = self.range;
        if self.filter.may_span_events() && self.log.scans_ranges() {
            let head = self.log.head().await?;
            // A caller who cancels what takes long gets half of it the next time.
            self.range = (range / 2).max(RANGE_MIN);
            if head.saturating_sub(self.next) > range {
                let events = self.step_to(self.next + range).await?;
                self.range = if events.is_empty() { (2 * range).min(RANGE_MAX) } else { range };
                return Ok(events);
            }
        }
        loop {
            let query =
                LogQuery { from: Some(self.next), limit: self.limit, backwards: false, filter: self.filter.clone() };
            let page = self.log.read(query).await?;
            self.range = range;
            // A position past the head (the log was restored, or the caller looks ahead) waits for that number.
            let next = page.next.max(self.next);
            if !page.events.is_empty() || next > self.next {
                self.next = next;
                return Ok(page.events);
            }
            // The page may have capacity for a thousand events; a waiting follower does not keep it.
            drop(page);
            self.log.wait_past(next).await?;
        }
    }

    /// Advances the position to `to`, or past the last event of a full page, and returns the matching events that it passed.
    async fn step_to(&mut self, to: SequenceNumber) -> Result<Vec<RecordedEvent>, ReadError> {
        let query = ScanQuery { from: self.next, to, filter: self.filter.clone() };
        let (mut events, mut bytes, limit) = (Vec::new(), 0, self.limit);
        let mut take = |event: EventRef<'_>| {
            let event = event.to_recorded();
            bytes += event.page_bytes();
            events.push(event);
            let full = events.len() >= limit || bytes >= limits::PAGE_BYTES_MAX;
            if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        self.next = self.log.scan(query, &mut take).await?;
        if events.is_empty() {
            // A short scan does not yield, and many in a row would hold the thread.
            let_others_run().await;
        }
        Ok(events)
    }
}

/// Lets other tasks of the thread run.
pub(crate) async fn let_others_run() {
    let mut waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
