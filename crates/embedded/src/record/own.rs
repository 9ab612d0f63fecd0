//! Turns lent events into owned ones, which share their commit and the buffer into which they were read.

use std::ops::ControlFlow;
use std::sync::Arc;

use annals_core::{
    Aggregate, ByteString, CommitInfo, CommitRef, DEFAULT_TENANT_ID, Data, EventRef, Metadata, RecordedCommit,
    RecordedEvent,
};
use bytes::Bytes;

use super::Record;
use super::decode::{Origin, Room, decode_head, visit_events};
use crate::varint::Cursor;

/// Owns a buffer, and hands out shares of it.
pub(crate) struct Owner {
    buffer: Bytes,
    /// The commit of the events being lent, once one of them was wanted.
    commit: Option<Arc<CommitInfo>>,
    /// The type that was shared last.
    event_type: ByteString,
}

impl Owner {
    pub(crate) fn new(buffer: Bytes) -> Self {
        Self { buffer, commit: None, event_type: ByteString::new() }
    }

    /// Announces that the events of another commit follow.
    pub(crate) fn begin_commit(&mut self) {
        self.commit = None;
    }

    /// Returns an owned event. Parts that lie in the buffer are shared, others are copied.
    #[inline(always)]
    pub(crate) fn own(&mut self, event: &EventRef<'_>) -> RecordedEvent {
        let commit = match &self.commit {
            Some(commit) => commit.clone(),
            None => self.commit.insert(Arc::new(self.info(event.commit))).clone(),
        };
        if self.event_type != *event.event_type {
            self.event_type = self.text(event.event_type);
        }
        RecordedEvent {
            sequence_number: event.sequence_number,
            ordinal: event.ordinal,
            id: event.id,
            event_type: self.event_type.clone(),
            generation: event.generation,
            data: Data::from_lent(event.data, |bytes| self.share(bytes)),
            // Most events have no tags, so the allocation is skipped.
            tags: if event.tags.is_empty() { Vec::new() } else { self.texts(event.tags) },
            public: event.public,
            metadata: event
                .metadata
                .map(|metadata| Metadata::from_stored(Data::from_lent(metadata, |bytes| self.share(bytes)))),
            time: event.time,
            commit,
        }
    }

    fn info(&self, lent: &CommitRef<'_>) -> CommitInfo {
        let text = |text: &str| self.text(text);
        CommitInfo {
            commit_id: lent.commit_id,
            request_id: lent.request_id.map(text),
            aggregate: Aggregate { name: text(lent.aggregate_name), id: text(lent.aggregate_id) },
            version: lent.version,
            time: lent.time,
            tenant_id: match lent.tenant_id {
                DEFAULT_TENANT_ID => ByteString::from_static(DEFAULT_TENANT_ID),
                other => text(other),
            },
            owner_id: text(lent.owner_id),
            space_id: text(lent.space_id),
            command_id: lent.command_id.map(text),
            correlation_id: lent.correlation_id.map(text),
            causation_id: lent.causation_id.map(text),
            header: lent.header.iter().map(|(key, value)| (text(key), text(value))).collect(),
            transaction: lent.transaction,
            received: lent.received.cloned(),
        }
    }

    fn texts(&self, lent: &[&str]) -> Vec<ByteString> {
        lent.iter().map(|text| self.text(text)).collect()
    }

    fn text(&self, lent: &str) -> ByteString {
        if lent.is_empty() {
            return ByteString::new();
        }
        ByteString::try_from(self.share(lent.as_bytes())).unwrap_or_else(|_| lent.into())
    }

    #[inline(always)]
    fn share(&self, lent: &[u8]) -> Bytes {
        if self.buffer.as_ptr_range().contains(&lent.as_ptr()) {
            self.buffer.slice_ref(lent)
        } else {
            Bytes::copy_from_slice(lent)
        }
    }
}

/// Decodes a payload whose checksum is valid, or returns `None` if it is not a commit.
pub(crate) fn decode(payload: Bytes, sequence_number: u64, version: u64, origin: &Origin<'_>) -> Option<Record> {
    let bytes = payload.clone();
    let mut owner = Owner::new(payload);
    let mut cursor = Cursor(&bytes);
    let mut room = Room::new();
    let head = decode_head(&mut cursor, version, origin, &mut room)?;
    let mut events = Vec::with_capacity(head.events.min(10_000) as usize);
    let take = |event: EventRef<'_>| {
        events.push(owner.own(&event));
        ControlFlow::Continue(())
    };
    let ControlFlow::Continue(()) = visit_events(cursor, &head, sequence_number, take)? else { return None };
    let info = owner.commit.take().unwrap_or_else(|| Arc::new(owner.info(&head.commit)));
    let commit = RecordedCommit { info, events };
    Some(Record { first: sequence_number, version, commit, digest: head.digest, keys: head.keys })
}
