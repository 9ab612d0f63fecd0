//! The meaning of streams in memory: the simplest program that keeps the contract of [`Streams`](annals_core::Streams).

use std::collections::BTreeMap;

use annals_core::{
    Appended, ByteString, Included, SequenceNumber, StreamEntry, StreamError, StreamInfo, StreamPage, StreamPosition,
    StreamQuery, StreamsQuery, Verdicts,
};

/// The streams of one scope.
#[derive(Debug, Clone, Default)]
pub struct StreamsModel(BTreeMap<ByteString, Stream>);

#[derive(Debug, Clone, Default)]
struct Stream {
    progress: SequenceNumber,
    entries: Vec<Included>,
}

impl StreamsModel {
    /// Checks an append on a log with `log_head` events, and performs it.
    ///
    /// # Errors
    /// Those of the port, without those of a store.
    pub fn append(&mut self, verdicts: &Verdicts, log_head: SequenceNumber) -> Result<Appended, StreamError> {
        verdicts.validate()?;
        if verdicts.to > log_head {
            return Err(StreamError::BeyondLog { to: verdicts.to, head: log_head });
        }
        let known = self.0.get(&verdicts.stream).cloned().unwrap_or_default();
        if verdicts.from == known.progress {
            let stream = self.0.entry(verdicts.stream.clone()).or_default();
            let first = stream.entries.len() as u64;
            stream.entries.extend(verdicts.included.iter().cloned());
            stream.progress = verdicts.to;
            return Ok(Appended { positions: first..stream.entries.len() as u64, duplicate: false });
        }
        if verdicts.to > known.progress {
            return Err(StreamError::Moved { from: verdicts.from, progress: known.progress });
        }
        let judged = known.judged(verdicts.from, verdicts.to);
        let mut differing = (verdicts.from..verdicts.to).filter(|number| {
            let of = |list: &[Included]| list.iter().find(|included| included.sequence_number == *number).cloned();
            of(judged) != of(&verdicts.included)
        });
        if let Some(sequence_number) = differing.next() {
            return Err(StreamError::VerdictsDiffer { sequence_number });
        }
        let first = known.position_of(verdicts.from);
        Ok(Appended { positions: first..first + judged.len() as u64, duplicate: true })
    }

    /// Returns the page that a read finds.
    pub fn read(&self, query: &StreamQuery) -> StreamPage {
        let entries = self.0.get(&query.stream).map_or(&[][..], |stream| &stream.entries);
        let head = entries.len() as u64;
        let range = query.range(head);
        let all = range.clone().map(|position| {
            let Included { sequence_number, partition } = entries[position as usize].clone();
            StreamEntry { position, sequence_number, partition }
        });
        let wanted = all.filter(|entry| query.partitions.admits(entry.partition.as_deref()));
        let entries: Vec<_> = wanted.take(query.limit).collect();
        let next = match entries.last() {
            Some(last) if entries.len() == query.limit => last.position + 1,
            _ => range.end,
        };
        StreamPage { entries, next, head }
    }

    /// Returns the first position whose event has this sequence number or a greater one.
    pub fn position_of(&self, stream: &str, sequence_number: SequenceNumber) -> StreamPosition {
        self.0.get(stream).map_or(0, |stream| stream.position_of(sequence_number))
    }

    /// Returns the current state of a stream.
    pub fn stream(&self, name: &str) -> StreamInfo {
        let unknown = StreamInfo::unknown(name);
        match self.0.get(name) {
            Some(stream) => StreamInfo { head: stream.entries.len() as u64, progress: stream.progress, ..unknown },
            None => unknown,
        }
    }

    /// Returns the streams that verdicts were appended to.
    pub fn list(&self, query: &StreamsQuery) -> Vec<StreamInfo> {
        let names = self.0.keys().filter(|name| query.after.as_ref().is_none_or(|after| *name > after));
        names.take(query.limit).map(|name| self.stream(name)).collect()
    }
}

impl Stream {
    fn position_of(&self, sequence_number: SequenceNumber) -> StreamPosition {
        self.entries.partition_point(|entry| entry.sequence_number < sequence_number) as u64
    }

    fn judged(&self, from: SequenceNumber, to: SequenceNumber) -> &[Included] {
        &self.entries[self.position_of(from) as usize..self.position_of(to) as usize]
    }
}
