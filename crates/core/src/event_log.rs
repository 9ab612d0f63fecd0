//! The port of the event log: the contract every backend keeps.

use std::ops::ControlFlow;
use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    Aggregate, AggregateCommits, AggregateIdsQuery, AggregateNamesQuery, AggregateQuery, ByteString, CommitCopy,
    CommitError, CommitOutcome, EventRef, Filter, KnownAggregate, LogPage, LogQuery, LogStats, NewCommit,
    NewTransaction, ReadError, RecordedEvent, ScanQuery, SequenceNumber, StoreError, TransactionError, Version, limits,
};

/// The event log of one tenant and scope: everything ever committed there, in one gap-free order.
///
/// ```text
///  sequence number   0        1        2        3        4        5
///                  ┌────────┬────────┬────────┬────────┬────────┬ ─ ─
///  event           │ placed │ paid   │ opened │ closed │ shipped│       next event
///                  └────────┴────────┴────────┴────────┴────────┴ ─ ─
///  commit           order/1 v1        door/7 v1         order/1 v2    head = 5
/// ```
///
/// An implementation MUST keep these promises; the conformance suite tests each.
///
/// - **Atomic.** The events of a commit become visible together, with neighbouring sequence numbers. A page may end inside a
///   commit because of its limit, never because the commit is half visible.
/// - **One winner.** For one aggregate and version exactly one commit succeeds. Versions are 1, 2, 3 … without a gap.
/// - **Once per request.** The same (aggregate, request id) with the same content again adds nothing and returns the first
///   outcome with `duplicate`, whatever version it expects and however long ago the first was; with other content it is refused
///   with `request_id_reused`. Request ids of different aggregates have nothing to do with each other. So a retry after a lost
///   answer is always safe.
/// - **One order.** Sequence numbers are 0, 1, 2 … An event committed after another was acknowledged comes later.
/// - **Durable.** Whatever a caller was told (success, duplicate, conflict, an event, a head) survives kill -9 and power loss.
///   No answer may depend on bytes that are not durable yet.
/// - **Immutable.** Nothing here changes or removes an event.
///
/// Judgement of a commit, in this order: its own rules ([`NewCommit::validate`]), the aggregate's tenantId, request id, append
/// condition, prepare keys, version. An append condition is judged against everything that is before the commit in the log, whoever
/// committed it and however short ago, and answered from an index.
///
/// A transaction ([`NewTransaction`]) keeps all of this for all its commits at once: they become visible together, with neighbouring
/// sequence numbers in the order given. It is judged part by part in this order: the rules of all, the tenantIds of all, the request
/// id with its first aggregate, all append conditions, all prepare keys, all expectations, all versions; the first part that is
/// refused is named.
///
/// Prepare keys ([`KeyChanges`](crate::KeyChanges)) change with the events of their commit and in no other way: a key that is reserved
/// is held exactly when that commit is in the log and no later one released it. A reservation that has expired
/// (`ttl_at` is before the time of the commit that asks) may be taken over.
///
/// A log that is damaged can be read up to the damage. Whatever would be an answer about its end (an empty page, "no such
/// aggregate", the newest event) is [`StoreError::Damaged`](crate::StoreError::Damaged) instead, so that a part is never taken for
/// the whole; [`head`](Self::head) is then the number of events that can be read.
///
/// Dropping the future of [`commit`](Self::commit) does not undo it: the commit may or may not be stored, whole. Reads never wait
/// for writes. Nothing here blocks an async runtime for longer than a read from the disk takes.
#[async_trait]
pub trait EventLog: Send + Sync + 'static {
    /// Commits events of one aggregate, all or none, and answers once they are durable and what the commit waits for is reached
    /// ([`NewCommit::wait`]). A store may give sequence numbers later than it stores; then an outcome that did not wait for them
    /// has none, a commit that comes after an acknowledgement is still behind it in the log, and the aggregate can be read
    /// with the commit at once.
    ///
    /// # Errors
    /// See [`CommitError`]. After [`StoreError::Failed`](crate::StoreError::Failed) the outcome is unknown until the store is
    /// opened again; retrying with the same request id then tells.
    async fn commit(&self, commit: NewCommit) -> Result<CommitOutcome, CommitError>;

    /// Commits to several aggregates, all or none, and answers once everything is durable: an outcome for each commit, in order. A
    /// repeat of the request adds nothing and returns all first outcomes.
    ///
    /// # Errors
    /// See [`TransactionError`]; what is said at [`commit`](Self::commit) holds.
    async fn transact(&self, transaction: NewTransaction) -> Result<Vec<CommitOutcome>, TransactionError>;

    /// Reads commits of one aggregate in ascending order of version. An aggregate without commits has version 0 and no commits;
    /// versions past its end are not an error.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn read_aggregate(&self, query: AggregateQuery) -> Result<AggregateCommits, ReadError>;

    /// Returns the aggregate's version now, which is the number of its commits; 0 for an aggregate without commits. The work does not
    /// depend on how many commits it has.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn aggregate_version(&self, aggregate: &Aggregate) -> Result<Version, ReadError> {
        Ok(self.read_aggregate(AggregateQuery::last(aggregate.clone())).await?.version)
    }

    /// Whether this aggregate has a commit of this request id.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn request_exists(&self, aggregate: &Aggregate, request_id: &str) -> Result<bool, ReadError>;

    /// Returns the outcome of the commit of this request id, marked as a duplicate; none when the aggregate has no such commit. A store
    /// answers it from an index, whatever the number of the aggregate's commits. This default pages back through them.
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

    /// Lists the names of which there is at least one aggregate, each once, in ascending order of their bytes.
    ///
    /// # Errors
    /// See [`ReadError`]; [`StoreError::NotSupported`](crate::StoreError::NotSupported) where a backend does not list them.
    async fn aggregate_names(&self, query: AggregateNamesQuery) -> Result<Vec<ByteString>, ReadError> {
        query.validate()?;
        Err(StoreError::NotSupported("listing the names of aggregates".to_owned()).into())
    }

    /// Lists aggregates of one name by id, each once, in ascending order of the ids' bytes.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn aggregate_ids(&self, query: AggregateIdsQuery) -> Result<Vec<KnownAggregate>, ReadError>;

    /// Reads a page of the log. A filter is answered from an index: the work is in proportion to what is found. A `from` past the
    /// head is taken as the head, where forwards finds nothing; an empty page is the end.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn read(&self, query: LogQuery) -> Result<LogPage, ReadError>;

    /// Visits events in the order of the log, without anybody owning them: each is lent for the call, until `visit` breaks off. It
    /// finds what [`read`](Self::read) finds, and is the fastest way to go through many events.
    ///
    /// Returns the number to go on from: one past the event at which `visit` broke off, else the end of what was asked for, which is
    /// `query.to` or the head as it was at the beginning. What is committed meanwhile is for the next scan. Dropping the future ends
    /// the scan. Other tasks have their turn about once in half a mebibyte, so `visit` should not wait for anything.
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

    /// The number of events in the log, which is the sequence number that the next event gets.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn head(&self) -> Result<SequenceNumber, ReadError>;

    /// Waits until the head is greater than `head`, and returns it. Cancelling is always safe.
    ///
    /// # Errors
    /// See [`ReadError`]; [`StoreError::Closed`](crate::StoreError::Closed) when the store closes while waiting.
    async fn wait_past(&self, head: SequenceNumber) -> Result<SequenceNumber, ReadError>;

    /// Reads commits whole, in the order of the log, beginning with the one that begins at `from` or behind it; at least one unless
    /// that is the end, and at most about 16 MiB.
    ///
    /// # Errors
    /// See [`ReadError`]; [`StoreError::NotSupported`](crate::StoreError::NotSupported) where a log cannot be copied.
    async fn read_copies(&self, from: SequenceNumber) -> Result<Vec<CommitCopy>, ReadError> {
        let _ = from;
        Err(StoreError::NotSupported("copying a log's commits from here".to_owned()).into())
    }

    /// Stores copies of commits with the ids, times, versions and numbers that they have, in this order, and answers once all are
    /// durable. The first begins at the head, and transactions are whole. Prepare keys become what the commits make of them, without
    /// being judged again.
    ///
    /// # Errors
    /// [`CommitError::OtherEvents`] where the log has reached another number: what came before may be stored, and is whole.
    /// [`StoreError::NotSupported`](crate::StoreError::NotSupported) where a log takes no copies, of none either.
    async fn store_copies(&self, copies: Vec<CommitCopy>) -> Result<(), CommitError> {
        let _ = copies;
        Err(StoreError::NotSupported("taking copies of commits, as an import of a whole store does,".to_owned()).into())
    }

    /// Counts what the log holds. It may read all of it; `progress` is told how many events were counted, of how many.
    ///
    /// # Errors
    /// See [`ReadError`]; [`StoreError::NotSupported`](crate::StoreError::NotSupported) where a backend does not count.
    async fn stats(&self, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Result<LogStats, ReadError> {
        let _ = progress;
        Err(StoreError::NotSupported("counting what a log holds".to_owned()).into())
    }
}

/// What a scan calls with each event.
pub type Visit<'a> = dyn FnMut(EventRef<'_>) -> ControlFlow<()> + Send + 'a;

/// Looks for a request where a log has no index of them.
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

/// A scan where a log has nothing better than its pages.
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
        // A damaged log has a head too, and only a read there says that events are missing behind it.
        log.read(LogQuery { from: Some(head), limit: 1, ..LogQuery::default() }).await?;
    }
    Ok(end)
}

/// Follows a log: first what is there, then what comes, without gap or repeat.
///
/// It pulls, so it holds at most one page, and a slow follower costs nobody else anything.
pub struct Follower {
    log: Arc<dyn EventLog>,
    filter: Filter,
    next: SequenceNumber,
}

impl Follower {
    /// Follows `log` from sequence number `from`.
    pub fn new(log: Arc<dyn EventLog>, from: SequenceNumber, filter: Filter) -> Self {
        Self { log, filter, next: from }
    }

    /// The number from which it goes on: everything below has been returned or did not pass the filter.
    pub fn position(&self) -> SequenceNumber {
        self.next
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

    /// Waits until the position moves, and returns the events that match on the way: none when there were others only. So whoever
    /// stores the position keeps up with a log in which little matches. Cancelling loses nothing.
    ///
    /// # Errors
    /// As [`next_page`](Self::next_page).
    pub async fn step(&mut self) -> Result<Vec<RecordedEvent>, ReadError> {
        loop {
            let query = LogQuery {
                from: Some(self.next),
                limit: limits::PAGE_MAX,
                backwards: false,
                filter: self.filter.clone(),
            };
            let page = self.log.read(query).await?;
            // A position past the head (the log was restored, or the caller looks ahead) waits for that number.
            let next = page.next.max(self.next);
            if !page.events.is_empty() || next > self.next {
                self.next = next;
                return Ok(page.events);
            }
            self.log.wait_past(next).await?;
        }
    }
}
