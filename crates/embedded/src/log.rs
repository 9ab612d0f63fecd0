//! One event log: its segments, its writer and its readers.
//!
//! ```text
//!   commit.rs      caller's task    validate · encode · probe closed segments · queue · wait
//!   writer.rs      writer thread    judge · append · one write · one sync · publish · answer     ◀── durable here
//!   keeper.rs      keeper thread    zero-fill the next segment · index closed ones
//!   packer.rs      packer thread    write closed segments once more, in their compact form (repack.rs)
//!   read.rs        caller's task    index → frames → events
//!   receive.rs     caller's task    the same as commit.rs, for events of other microservices
//!   lend.rs        caller's task    the same, for events that nobody keeps
//!   remake.rs      caller's task    a damaged index again, from its segment
//!   recovery.rs    at opening       scan the tail · cut what was never acknowledged · find damage
//! ```

mod batch;
mod beside_commits;
mod commit;
mod conditions;
mod copies;
mod core;
mod heads;
mod image;
mod keeper;
mod keys;
mod lend;
mod list_keys;
mod lookup;
pub(crate) mod names;
mod numbered;
mod packed_run;
mod packer;
mod prepare;
mod queue;
mod read;
mod receive;
mod recovery;
mod remake;
mod repack;
mod scan;
mod segment;
mod stats;
mod turns;
mod walk;
mod writer;

use std::ops::ControlFlow;
use std::sync::Arc;

use annals_core::{
    Aggregate, AggregateCommits, AggregateIdsQuery, AggregateNamesQuery, AggregateQuery, ByteString, CommitCopy,
    CommitError, CommitOutcome, EventLog, KnownAggregate, LogPage, LogQuery, LogStats, LogStatus, NewCommit,
    NewTransaction, OpenError, ReadError, ScanQuery, SequenceNumber, StoreError, TransactionError, Visit,
};
use async_trait::async_trait;

use crate::Options;
use crate::disk::Disk;
use crate::terms::TermKey;

use self::core::Core;

pub(crate) use self::image::{LogImage, SegmentImage};
pub(crate) use self::keeper::Checkpoint;
pub(crate) use self::packer::Packed;
pub(crate) use self::recovery::index_record;
pub(crate) use self::scan::{How, Scan, scan};
pub(crate) use self::segment::SegmentFile;
pub(crate) use self::walk::{Placed, Step, Walk};

/// One open event log.
pub(crate) struct Log {
    core: Arc<Core>,
    stats: stats::Known,
    threads: std::sync::Mutex<Vec<std::thread::JoinHandle<()>>>,
}

/// The identity of a log and where it is stored.
pub(crate) struct Place {
    pub(crate) tenant: String,
    pub(crate) scope: String,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: String,
    pub(crate) key: TermKey,
    /// Whether the log's first segment was ever created.
    pub(crate) begun: bool,
}

impl Place {
    /// Returns the owner value that the headers of this log's segments carry.
    pub(crate) fn owner(&self) -> u64 {
        self.key.owner(&self.scope)
    }
}

impl Log {
    /// Recovers the log and starts its threads.
    pub(crate) fn open(place: Place, options: &Options) -> Result<Self, OpenError> {
        let (core, writer) = recovery::open(place, options)?;
        let mut threads = Vec::new();
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(format!("annals-{name}")).spawn(run).map_err(|error| {
                OpenError::new(annals_core::Code::Internal, format!("cannot start the log's {name} thread: {error}"))
            })
        };
        if let Some((writer, keeper)) = writer {
            threads.push(spawn("writer", Box::new(move || writer.run()))?);
            threads.push(spawn("keeper", Box::new(move || keeper.run()))?);
            if core.options.packing.behind < usize::MAX {
                let packer = packer::Packer::new(core.clone());
                threads.push(spawn("packer", Box::new(move || packer.run()))?);
            }
        }
        Ok(Self { core, stats: stats::Known::default(), threads: threads.into() })
    }

    /// Opens an empty log on a disk in memory, whose segments begin at 1 MiB.
    #[cfg(test)]
    fn in_memory() -> Self {
        Self::in_memory_with(&Options { segment_bytes_first: 1 << 20, ..Options::default() })
    }

    /// Opens an empty log on a disk in memory.
    #[cfg(test)]
    fn in_memory_with(options: &Options) -> Self {
        let (tenant, scope) = (annals_core::DEFAULT_TENANT.to_owned(), annals_core::DEFAULT_SCOPE.to_owned());
        let disk: Arc<dyn Disk> = Arc::new(crate::disk::MemoryDisk::default());
        let place = Place { tenant, scope, disk, dir: "log".to_owned(), key: TermKey([7; 16]), begun: false };
        Self::open(place, &Options { min_free_disk_bytes: 0, ..options.clone() }).expect("it opens")
    }

    /// Packs every closed segment that is worth packing, immediately and without rate limit. `progress` counts bytes of segments.
    pub(crate) fn pack(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Packed, StoreError> {
        packer::pack_all(&self.core, progress)
    }

    pub(crate) fn status(&self) -> LogStatus {
        self.core.status()
    }

    /// Refuses commits from now on.
    pub(crate) fn refuse(&self, why: StoreError) {
        self.core.refuse_with(why);
    }

    /// Stops accepting commits, lets the queued ones finish and ends the threads. Blocks until they have ended.
    pub(crate) fn close(&self) {
        self.core.close();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        for thread in threads {
            // A thread that panicked has already refused everything; there is nothing left to save here.
            let _ = thread.join();
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.close();
    }
}

#[async_trait]
impl EventLog for Log {
    async fn commit(&self, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        commit::commit(&self.core, commit).await
    }

    async fn transact(&self, transaction: NewTransaction) -> Result<Vec<CommitOutcome>, TransactionError> {
        commit::transact(&self.core, transaction).await
    }

    async fn read_aggregate(&self, query: AggregateQuery) -> Result<AggregateCommits, ReadError> {
        query.validate()?;
        let found = self.core.noticed(read::aggregate(&self.core, &query).await)?;
        let about_the_end = found.commits.is_empty() || query.last;
        Ok(self.core.unless_about_the_end(found, about_the_end)?)
    }

    async fn request_exists(&self, aggregate: &Aggregate, request_id: &str) -> Result<bool, ReadError> {
        aggregate.validate()?;
        annals_core::valid_id("request_id", request_id)?;
        let request = self.core.key.request(aggregate, request_id);
        let found = lookup::request(&self.core.view(), .., aggregate, request_id, request);
        let exists = self.core.noticed(found)?.is_some();
        Ok(self.core.unless_about_the_end(exists, !exists)?)
    }

    async fn request_outcome(
        &self,
        aggregate: &Aggregate,
        request_id: &str,
    ) -> Result<Option<CommitOutcome>, ReadError> {
        aggregate.validate()?;
        annals_core::valid_id("request_id", request_id)?;
        let request = self.core.key.request(aggregate, request_id);
        let found = lookup::request(&self.core.view(), .., aggregate, request_id, request);
        let found = found.and_then(|found| found.map(|found| found.record()).transpose());
        let outcome = self.core.noticed(found)?.map(|first| first.commit.repeated_outcome());
        let none = outcome.is_none();
        Ok(self.core.unless_about_the_end(outcome, none)?)
    }

    async fn aggregate_names(&self, query: AggregateNamesQuery) -> Result<Vec<ByteString>, ReadError> {
        query.validate()?;
        let names = self.core.noticed(read::aggregate_names(&self.core, &query).await)?;
        let about_the_end = names.is_empty();
        Ok(self.core.unless_about_the_end(names, about_the_end)?)
    }

    async fn aggregate_ids(&self, query: AggregateIdsQuery) -> Result<Vec<KnownAggregate>, ReadError> {
        query.validate()?;
        let known = self.core.noticed(read::aggregate_ids(&self.core, &query).await)?;
        let about_the_end = known.is_empty();
        Ok(self.core.unless_about_the_end(known, about_the_end)?)
    }

    async fn read(&self, query: LogQuery) -> Result<LogPage, ReadError> {
        query.validate()?;
        let page = self.core.noticed(read::page(&self.core, &query).await)?;
        let about_the_end = match query.backwards {
            true => query.from.is_none_or(|from| from > page.head),
            false => page.events.is_empty(),
        };
        Ok(self.core.unless_about_the_end(page, about_the_end)?)
    }

    async fn scan(&self, query: ScanQuery, visit: &mut Visit<'_>) -> Result<SequenceNumber, ReadError> {
        query.filter.validate()?;
        let head = self.core.head();
        match self.core.noticed(lend::scan(&self.core, &query, head, visit).await)? {
            ControlFlow::Break(next) => Ok(next),
            ControlFlow::Continue(end) => Ok(self.core.unless_about_the_end(end, query.to > head)?),
        }
    }

    fn scans_ranges(&self) -> bool {
        true
    }

    async fn head(&self) -> Result<SequenceNumber, ReadError> {
        Ok(self.core.head())
    }

    async fn wait_past(&self, head: SequenceNumber) -> Result<SequenceNumber, ReadError> {
        let now = self.core.head();
        self.core.unless_about_the_end((), now <= head)?;
        let mut heads = self.core.heads();
        let found = heads.wait_for(|state| state.closed || state.head > head).await.map(|state| *state);
        match found {
            Ok(state) if state.head > head => Ok(state.head),
            _ => Err(StoreError::Closed.into()),
        }
    }

    async fn read_copies(&self, from: SequenceNumber) -> Result<Vec<CommitCopy>, ReadError> {
        let copies = self.core.noticed(copies::read(&self.core, from))?;
        let about_the_end = copies.is_empty();
        Ok(self.core.unless_about_the_end(copies, about_the_end)?)
    }

    async fn store_copies(&self, copies: Vec<CommitCopy>) -> Result<(), CommitError> {
        copies::store(&self.core, copies).await
    }

    async fn stats(&self, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Result<LogStats, ReadError> {
        let stats = self.core.noticed(stats::stats(&self.core, &self.stats, progress).await)?;
        // Statistics of the readable part must not be mistaken for those of the whole log.
        Ok(self.core.unless_about_the_end(stats, true)?)
    }
}
