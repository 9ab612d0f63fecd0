//! The port of streams: the contract every backend keeps.

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

/// A position in a stream: 0-based, without holes.
pub type StreamPosition = u64;

/// The streams of one tenant and scope: filtered sequences of the events of its log, each with positions of its own.
///
/// A filter judges the log's events one after another and says of each whether it is in the stream, and in which partition.
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
/// The head is the number of entries of a stream and the position that the next one gets; the progress is the sequence number that
/// the filter judges next. A stream comes into being when verdicts are first appended to it. One that nobody has appended to is like
/// an aggregate without commits: it has head 0 and progress 0, reads of it find nothing, and it can be waited for.
///
/// An implementation MUST keep these promises; the conformance suite tests each.
///
/// - **Own positions.** An entry is (position, sequence number, partition). The store gives the positions: 0, 1, 2 … without a hole,
///   in ascending order of the sequence numbers.
/// - **Once per event.** An event is in a stream once or not at all. Verdicts are appended where the filter stands
///   (`from` is the progress), as compare and set: the entries and the new progress `to` become visible together or not at all, also
///   when nothing was included. So two filters that write to one stream cannot interleave.
/// - **Repeats add nothing.** Verdicts on events that were all judged before, and alike, return the first outcome with `duplicate`,
///   however long ago that was and however the runs were cut. Judged otherwise, it is
///   [`StreamError::VerdictsDiffer`]; judged in part, or with events between that nobody judged, [`StreamError::Moved`]. So a retry
///   after a lost answer or a crash is always safe.
/// - **Only what is there.** Verdicts on events past the head of the log are refused.
/// - **Durable.** Whatever a caller was told (an outcome, a repeat, a refusal, an entry, a head, a progress) survives kill -9 and
///   power loss. Verdicts are primary data: a remote filter may judge otherwise when it is asked again, so no backend may make a
///   stream again by itself.
/// - **Immutable.** Nothing here changes or removes an entry. What is stored is positions: the events are read from the log, so what
///   is redacted there is redacted here.
///
/// Judgement of an append, in this order: its own rules ([`Verdicts::validate`]), the head of the log, the progress, the repeat.
///
/// **Past the end.** A `from` past the head is taken as the head and finds nothing; an empty page is the end, also of a range and also
/// of a partition.
///
/// **After a restore.** A restored store begins a new incarnation at a sequence number, and the log's events from there on are others.
/// When a stream is found to be of an earlier incarnation, its entries from that number on are cut off and its progress is set back to
/// it, before anything of it is answered; what is left keeps its positions. A position that was read in an earlier
/// incarnation is therefore good only up to [`StreamInfo::incarnation_start`]; who holds one compares
/// [`Identity`](crate::Identity), goes on from the lesser of both, and says so.
///
/// **Damage.** Where the log is damaged, entries are read and events up to the damage; [`read_events`](Self::read_events) of one
/// behind it is [`StoreError::Damaged`](crate::StoreError::Damaged), and nothing is appended.
///
/// Dropping the future of [`append`](Self::append) does not undo it: the verdicts may or may not be stored, whole. Reads never wait
/// for writes. Nothing here blocks an async runtime for longer than a read from the disk takes.
#[async_trait]
pub trait Streams: Send + Sync + 'static {
    /// Appends what a filter judged, and moves its progress, all or none; answers once that is durable.
    ///
    /// # Errors
    /// See [`StreamError`]. After [`StoreError::Failed`](crate::StoreError::Failed) the outcome is unknown until the store is
    /// opened again; appending the same again then tells.
    async fn append(&self, verdicts: Verdicts) -> Result<Appended, StreamError>;

    /// Reads a page of entries, of all partitions or of one, in ascending order of position. The work is in proportion to what is
    /// found.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn read(&self, query: StreamQuery) -> Result<StreamPage, ReadError>;

    /// The same, with the events from the log. A page ends early once it holds
    /// [`limits::PAGE_BYTES_MAX`](crate::limits::PAGE_BYTES_MAX) bytes of event data, and holds at least one event if there is one.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn read_events(&self, query: StreamQuery) -> Result<StreamEvents, ReadError>;

    /// The position of the first entry whose event has this sequence number or a greater one; the head if there is none. It tells
    /// where to go on in a stream for who knows how far they have come in the log.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn position_of(&self, stream: &str, sequence_number: SequenceNumber) -> Result<StreamPosition, ReadError>;

    /// How a stream is.
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn stream(&self, name: &str) -> Result<StreamInfo, ReadError>;

    /// Lists the streams that verdicts were appended to, in ascending order of their names' bytes.
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
