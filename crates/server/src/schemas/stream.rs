//! Streams and verdicts.

use utoipa::ToSchema;

use super::event::Event;

/// The current state of a stream.
#[derive(ToSchema)]
pub(crate) struct StreamInfo {
    name: String,
    /// The number of entries.
    head: u64,
    /// The next sequence number that the stream's filter evaluates.
    progress: u64,
    /// The first position of this incarnation of the store.
    incarnation_start: u64,
}

/// A page of streams.
#[derive(ToSchema)]
pub(crate) struct StreamList {
    streams: Vec<StreamInfo>,
    /// The `after` of the next page; null on an empty page.
    #[schema(required = true)]
    next: Option<String>,
}

#[derive(ToSchema)]
struct StreamEvent {
    position: u64,
    #[schema(required = true)]
    partition: Option<String>,
    event: Event,
}

/// A page of a stream, with its events.
#[derive(ToSchema)]
pub(crate) struct StreamPage {
    events: Vec<StreamEvent>,
    /// The `from` of the next page.
    next: u64,
    head: u64,
}

#[derive(ToSchema)]
struct StreamEntry {
    position: u64,
    sequence_number: u64,
    #[schema(required = true)]
    partition: Option<String>,
}

/// A page of a stream.
#[derive(ToSchema)]
pub(crate) struct EntryPage {
    entries: Vec<StreamEntry>,
    next: u64,
    head: u64,
}

/// The first position whose event has this sequence number or a greater one; the head if there is none.
#[derive(ToSchema)]
pub(crate) struct Position {
    position: u64,
}

/// The verdicts of a filter on every event from `from` to before `to`.
#[derive(ToSchema)]
pub(crate) struct Verdicts {
    from: u64,
    to: u64,
    #[schema(max_items = 10_000)]
    included: Vec<Included>,
}

#[derive(ToSchema)]
struct Included {
    sequence_number: u64,
    #[schema(nullable = false)]
    partition: Option<String>,
}

/// The positions of the included events.
#[derive(ToSchema)]
pub(crate) struct Appended {
    positions: PositionRange,
    /// Whether these verdicts were appended before.
    duplicate: bool,
}

/// Positions from `from` to before `to`.
#[derive(ToSchema)]
struct PositionRange {
    from: u64,
    to: u64,
}
