//! The port of streams: the contract that every backend keeps.

mod error;
mod follower;
mod query;
mod verdicts;

pub use error::StreamError;
pub use follower::StreamFollower;
pub use query::{
    Partitions, StreamEntry, StreamEvent, StreamEvents, StreamInfo, StreamPage, StreamQuery, StreamsQuery,
};
pub use verdicts::{Appended, Included, Verdicts};

use async_trait::async_trait;

use crate::{ReadError, SequenceNumber};

/// A position in a stream: 0-based, without gaps.
pub type StreamPosition = u64;

/// The streams of one tenant and scope: filtered sequences of the events of its log, each with positions of its own.
///
/// A filter evaluates the log's events in order and decides for each whether it belongs to the stream, and to which partition.
///
/// ```text
///  sequence number    0     1     2     3     4     5     6     7
///  the log          ┌─────┬─────┬─────┬─────┬─────┬─────┬─────┬─────┐
///                   └──┬──┴─────┴──┬──┴─────┴─────┴──┬──┴─────┴─────┘
///  verdict             in    out   in    out   out   in    not judged yet: progress = 6
///                      │           │                 │
///  position            0           1                 2     head = 3
///  partition           a           none              a
/// ```
///
/// The head is the number of entries of a stream and the next position. The progress is the next sequence number that the filter will
/// evaluate. A stream is created when verdicts are first appended to it. Before that it is like an aggregate without commits: it has head
/// 0 and progress 0, reads of it find nothing, and callers can wait for it.
///
/// An implementation MUST keep these guarantees; the conformance suite tests each of them.
///
/// - **Own positions.** An entry is (position, sequence number, partition). The store assigns the positions: 0, 1, 2 … without gaps, in
///   ascending order of the sequence numbers.
/// - **Once per event.** An event is in a stream at most once. Verdicts are appended at the filter's progress (`from`) by
///   compare-and-set: the entries and the new progress `to` become visible atomically, also if no event was included. Two filters that
/// - **Once per event.** An event is in a stream at most once. Verdicts are appended at the filter's progress (`from`) by compare-and-set:
///   the entries and the new progress `to` become visible atomically, even if no event was included. Two filters that write to the same
///   stream therefore cannot interleave.
/// - **Repeats add nothing.** Verdicts that are all stored already return the original outcome with `duplicate`, however old they are and
///   however the runs were split. If a stored verdict differs, it is [`StreamError::VerdictsDiffer`]; if only some of the events have
///   verdicts, or events before them have none, it is [`StreamError::Moved`]. A retry after a lost response or a crash is therefore
///   always safe.
/// - **Within the log.** Verdicts on events past the head of the log are refused.
/// - **Durable.** Everything returned to a caller (an outcome, a repeat, a refusal, an entry, a head, a progress) survives kill -9 and
///   power loss. Verdicts are primary data: a remote filter may decide differently the next time, so a backend must not recompute a
///   stream.
/// - **Immutable.** Nothing here changes or removes an entry. Only positions are stored. Events are read from the log, so a redaction
///   there applies here.
///
/// An append is checked in this order: its own rules ([`Verdicts::validate`]), the head of the log, the progress, the repeat.
///
/// **Past the end.** A `from` beyond the head is treated as the head and finds nothing. An empty page is the end, also of a range or a
/// partition.
///
/// **After a restore.** A restored store begins a new incarnation at a sequence number, and the log's events from there on differ. Before
/// a stream of an earlier incarnation is read, its entries from that number on are truncated and its progress is reset to it; the
/// remaining entries keep their positions. A position from an earlier incarnation is therefore valid only up to
/// [`StreamInfo::incarnation_start`]. A reader that holds one compares [`Identity`](crate::Identity), resumes from the lesser of both,
/// and reports that.
///
/// **Damage.** If the log is damaged, entries and the events before the damage can still be read. [`read_events`](Self::read_events) of an
/// event after it is [`StoreError::Damaged`](crate::StoreError::Damaged), and nothing is appended.
///
/// Dropping the future of [`append`](Self::append) does not cancel it: the verdicts are either stored completely or not at all. Reads
/// never wait for writes. No call blocks an async runtime for longer than a read from the disk.
#[async_trait]
pub trait Streams: Send + Sync + 'static {
    /// Appends a filter's verdicts and advances its progress, atomically. Returns once both are durable.
    ///
    /// # Errors
    /// See [`StreamError`]. After [`StoreError::Failed`](crate::StoreError::Failed) the outcome is unknown until the store is reopened;
    /// appending the same verdicts again then returns it.
    async fn append(&self, verdicts: Verdicts) -> Result<Appended, StreamError>;

    /// Reads a page of entries, of all partitions or of one, in ascending order of position. The cost is proportional to the result.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn read(&self, query: StreamQuery) -> Result<StreamPage, ReadError>;

    /// Reads a page of entries with their events from the log. A page ends early once it holds
    /// [`limits::PAGE_BYTES_MAX`](crate::limits::PAGE_BYTES_MAX) bytes of event data, and holds at least one event if there is one.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn read_events(&self, query: StreamQuery) -> Result<StreamEvents, ReadError>;

    /// Returns the position of the first entry whose event has this sequence number or a greater one, or the head if there is none. A
    /// reader that knows its place in the log uses it to find its place in the stream.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn position_of(&self, stream: &str, sequence_number: SequenceNumber) -> Result<StreamPosition, ReadError>;

    /// Returns the current state of a stream.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn stream(&self, name: &str) -> Result<StreamInfo, ReadError>;

    /// Lists the streams that have verdicts, in ascending byte order of their names.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn list(&self, query: StreamsQuery) -> Result<Vec<StreamInfo>, ReadError>;

    /// Waits until the head of a stream is greater than `head`, and returns it. Cancelling is always safe.
    ///
    /// # Errors
    /// See [`ReadError`]; [`StoreError::Closed`](crate::StoreError::Closed) when the store closes while waiting.
    async fn wait_past(&self, stream: &str, head: StreamPosition) -> Result<StreamPosition, ReadError>;
}
