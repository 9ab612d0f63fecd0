//! Measures Tephra in this process: one type, one tag for the aggregate, and a condition on both after the last position that the writer
//! saw. It keeps no ids, times, versions or request ids.

use std::path::Path;
use std::sync::Arc;

use tephra::{
    AppendCondition, Event, EventType, Position, Query, QueryItem, SegmentConfig, SegmentSet, Tag, Tags,
    WriteCoordinator, WriteHandle, WriterConfig,
};

use crate::cell::{Cell, Commits, Measured, run, run_threads};
use crate::workload::{Row, Turn, Writer, payloads};

/// The size of a segment in bytes, as in its server.
const SEGMENT_BYTES: usize = 256 * 1024 * 1024;

/// Opens the store in `folder` with the settings that it ships with.
pub fn open(folder: &Path) -> Result<(WriteCoordinator, WriteHandle), String> {
    let set = SegmentSet::open(folder.join("tephra"), SegmentConfig::new(SEGMENT_BYTES));
    let set = set.map_err(|error| error.to_string())?;
    WriteCoordinator::start(set, WriterConfig::default()).map_err(|error| error.to_string())
}

/// Returns the type of every event.
pub fn event_type() -> Result<EventType, String> {
    EventType::new("order_placed").map_err(|error| error.to_string())
}

/// Returns the tags with these names.
pub fn tags<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Tags, String> {
    let tags: Result<Vec<Tag>, _> = names.into_iter().map(Tag::new).collect();
    Tags::new(tags.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
}

/// Returns the condition that no event of this type and tag follows the position that the turn expects.
pub fn condition(event_type: &EventType, tags: &Tags, turn: &Turn) -> AppendCondition {
    let query = Query::item(QueryItem::new(vec![event_type.clone()], tags.clone()));
    AppendCondition::new(query).after(Position::new(turn.expected_version))
}

struct Library {
    handle: WriteHandle,
    event_type: EventType,
    payloads: Arc<Vec<String>>,
    writer: Writer,
    events: usize,
}

impl Library {
    fn next(&mut self) -> Result<(Turn, Vec<Event>, AppendCondition), String> {
        let turn = self.writer.turn();
        let tags = tags([turn.aggregate_id.as_str()])?;
        let condition = condition(&self.event_type, &tags, &turn);
        let payload = |offset: usize| self.payloads[(turn.payload + offset) % self.payloads.len()].as_bytes();
        let events: Result<_, _> =
            (0..self.events).map(|offset| Event::new(&self.event_type, &tags, payload(offset))).collect();
        Ok((turn, events.map_err(|error| error.to_string())?, condition))
    }
}

impl Commits for Library {
    async fn commit(&mut self) -> Result<(), String> {
        let (turn, events, condition) = self.next()?;
        let range = self.handle.append_async(events, Some(condition)).await.map_err(|error| error.to_string())?;
        self.writer.appended(&turn, range.last.get(), self.events)
    }
}

/// The same with the call that blocks its thread.
struct Blocking(Library);

impl Commits for Blocking {
    async fn commit(&mut self) -> Result<(), String> {
        let (turn, events, condition) = self.0.next()?;
        let range = self.0.handle.append(events, Some(condition)).map_err(|error| error.to_string())?;
        self.0.writer.appended(&turn, range.last.get(), self.0.events)
    }
}

fn writers(handle: &WriteHandle, row: &Row) -> Result<Vec<Library>, String> {
    let payloads = Arc::new(payloads());
    let event_type = event_type()?;
    let writer = |number| Library {
        handle: handle.clone(),
        event_type: event_type.clone(),
        payloads: Arc::clone(&payloads),
        writer: Writer::new(number, row),
        events: row.events,
    };
    Ok((0..row.writers).map(writer).collect())
}

/// Measures a new store in `folder`, with a task per writer.
pub async fn measure(row: &Row, cell: &Cell, folder: &Path) -> Result<Measured, String> {
    let (coordinator, handle) = open(folder)?;
    let measured = run(cell, writers(&handle, row)?).await;
    coordinator.shutdown();
    measured
}

/// Measures a new store in `folder`, with a thread per writer.
pub async fn measure_threads(row: &Row, cell: &Cell, folder: &Path) -> Result<Measured, String> {
    let (coordinator, handle) = open(folder)?;
    let writers = writers(&handle, row)?.into_iter().map(Blocking).collect();
    let measured = run_threads(cell, writers).await;
    coordinator.shutdown();
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_behind_a_stale_position_is_refused() -> Result<(), String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let (coordinator, handle) = open(folder.path())?;
        let mut library = writers(&handle, &Row { writers: 1, events: 1 })?.remove(0);
        let (_, events, condition) = library.next()?;
        handle.append(events.clone(), Some(condition.clone())).map_err(|error| error.to_string())?;
        let again = handle.append(events, Some(condition));
        assert!(matches!(again, Err(tephra::AppendError::Conflict { .. })), "{again:?}");
        coordinator.shutdown();
        Ok(())
    }
}
