//! The result of a read: a document for each commit with those of its events that were found, then one that says where the result ends.
//!
//! ```text
//! {commit_id, request_id, aggregate: {name, id}, version, time, …, events: [{sequence_number, ordinal, id, type, data, …}, …]} …
//! {next, head}   or   {version}
//! ```
//!
//! Events of a stream also have their place in it: `{…, position, partition?}`.

use std::sync::Arc;

use bson::raw::{RawBsonRef, RawDocument};
use bson::spec::BinarySubtype;
use bytes::Bytes;
use bytestring::ByteString;
use uuid::Uuid;

use super::split_document;
use super::write::{ARRAY, DATE, DOCUMENT, begin, boolean, document, integer, maybe, nested, string, uuid};
use crate::{
    Aggregate, CommitInfo, CommitRef, DEFAULT_TENANT_ID, Data, EventRef, Metadata, ReceivedFrom, RecordedCommit,
    RecordedEvent, StreamEvent, StreamPosition, Subscription, Timestamp, TransactionPlace, Version,
};

/// Writes events in the order in which they were found. Consecutive events of one commit share a document.
#[derive(Default)]
pub struct FoundWriter {
    out: Vec<u8>,
    open: Option<Open>,
}

/// The commit whose events are being written.
struct Open {
    commit_id: Uuid,
    /// The offsets of its document and of the list of its events.
    document: usize,
    list: usize,
    events: u32,
}

/// The end of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FoundEnd {
    /// For a page of the log or of a stream: where the next page begins.
    pub next: u64,
    /// For a page of the log: the number of its events; for a page of a stream: the number of its entries.
    pub head: u64,
    /// For an aggregate: its version.
    pub version: Version,
}

impl FoundWriter {
    /// Adds an event.
    pub fn event(&mut self, event: &EventRef<'_>) {
        self.write(event, |_| ());
    }

    /// Adds an event of a stream, with its place in the stream.
    pub fn event_of_stream(&mut self, event: &StreamEvent) {
        event.event.lend(|lent| {
            self.write(&lent, |out| {
                integer(out, "position", event.position as i64);
                maybe(out, "partition", event.partition.as_deref());
            });
        });
    }

    fn write(&mut self, event: &EventRef<'_>, place_in_stream: impl FnOnce(&mut Vec<u8>)) {
        let place = match &mut self.open {
            Some(open) if open.commit_id == event.commit.commit_id => {
                open.events += 1;
                open.events - 1
            }
            _ => {
                self.begin_commit(event.commit);
                0
            }
        };
        let out = &mut self.out;
        out.push(DOCUMENT);
        put_decimal(out, place);
        out.push(0);
        document(out, |out| {
            write_event(event, out);
            place_in_stream(out);
        });
    }

    /// Ends a page of the log or of a stream.
    pub fn end_of_log(self, next: u64, head: u64) -> Vec<u8> {
        self.end(|out| {
            integer(out, "next", next as i64);
            integer(out, "head", head as i64);
        })
    }

    /// Ends without a document that says where: what was written is one document for each commit.
    pub fn into_documents(mut self) -> Vec<u8> {
        self.end_commit();
        self.out
    }

    /// Ends a read of an aggregate.
    pub fn end_of_aggregate(self, version: Version) -> Vec<u8> {
        self.end(|out| integer(out, "version", version as i64))
    }

    fn end(mut self, fields: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        self.end_commit();
        document(&mut self.out, fields);
        self.out
    }

    fn begin_commit(&mut self, commit: &CommitRef<'_>) {
        self.end_commit();
        let out = &mut self.out;
        let document = out.len();
        out.extend_from_slice(&[0; 4]);
        write_commit(commit, out);
        begin(out, ARRAY, "events");
        let list = out.len();
        out.extend_from_slice(&[0; 4]);
        self.open = Some(Open { commit_id: commit.commit_id, document, list, events: 1 });
    }

    fn end_commit(&mut self) {
        let Some(open) = self.open.take() else { return };
        for start in [open.list, open.document] {
            self.out.push(0);
            let length = (self.out.len() - start) as i32;
            self.out[start..start + 4].copy_from_slice(&length.to_le_bytes());
        }
    }
}

fn write_commit(commit: &CommitRef<'_>, out: &mut Vec<u8>) {
    uuid(out, "commit_id", commit.commit_id);
    maybe(out, "request_id", commit.request_id);
    nested(out, DOCUMENT, "aggregate", |out| {
        string(out, "name", commit.aggregate_name);
        string(out, "id", commit.aggregate_id);
    });
    integer(out, "version", commit.version as i64);
    date(out, "time", commit.time);
    if commit.tenant_id != DEFAULT_TENANT_ID {
        string(out, "tenant_id", commit.tenant_id);
    }
    for (key, text) in [("owner_id", commit.owner_id), ("space_id", commit.space_id)] {
        maybe(out, key, Some(text).filter(|text| !text.is_empty()));
    }
    maybe(out, "command_id", commit.command_id);
    maybe(out, "correlation_id", commit.correlation_id);
    maybe(out, "causation_id", commit.causation_id);
    if !commit.header.is_empty() {
        nested(out, DOCUMENT, "header", |out| commit.header.iter().for_each(|(key, value)| string(out, key, value)));
    }
    if let Some(TransactionPlace { id, place, count }) = commit.transaction {
        nested(out, DOCUMENT, "transaction", |out| {
            uuid(out, "id", id);
            integer(out, "place", place.into());
            integer(out, "count", count.into());
        });
    }
    if let Some(from) = commit.received {
        nested(out, DOCUMENT, "received", |out| write_received(from, out));
    }
}

fn write_received(from: &ReceivedFrom, out: &mut Vec<u8>) {
    let Subscription { producer, tenant, stream, partition } = &from.subscription;
    for (key, part) in [("producer", producer), ("tenant", tenant), ("stream", stream), ("partition", partition)] {
        string(out, key, part);
    }
    integer(out, "sequence_number", from.sequence_number as i64);
    integer(out, "position", from.position as i64);
    uuid(out, "consent", from.consent);
    date(out, "at", from.at);
}

fn write_event(event: &EventRef<'_>, out: &mut Vec<u8>) {
    integer(out, "sequence_number", event.sequence_number as i64);
    integer(out, "ordinal", event.ordinal.into());
    uuid(out, "id", event.id);
    string(out, "type", event.event_type);
    begin(out, DOCUMENT, "data");
    out.extend_from_slice(event.data.as_bytes());
    if event.generation != 1 {
        integer(out, "generation", event.generation.into());
    }
    if !event.tags.is_empty() {
        nested(out, ARRAY, "tags", |out| {
            event.tags.iter().enumerate().for_each(|(place, tag)| string(out, &place.to_string(), tag));
        });
    }
    if event.public {
        boolean(out, "public", true);
    }
    if let Some(metadata) = event.metadata {
        begin(out, DOCUMENT, "metadata");
        out.extend_from_slice(metadata.as_bytes());
    }
    if event.time != event.commit.time {
        date(out, "time", event.time);
    }
}

fn date(out: &mut Vec<u8>, key: &str, time: Timestamp) {
    begin(out, DATE, key);
    out.extend_from_slice(&time.as_millis().to_le_bytes());
}

fn put_decimal(out: &mut Vec<u8>, number: u32) {
    if number >= 10 {
        put_decimal(out, number / 10);
    }
    out.push(b'0' + (number % 10) as u8);
}

/// Parses a result. Calls `take` with each commit and those of its events that were found, in their order. Texts and data share the memory
/// of `found`; event data is taken unchanged. Fields that a newer server adds are ignored.
///
/// # Errors
/// A sentence, if the bytes have another form or lack the end.
pub fn read_found(found: &Bytes, mut take: impl FnMut(RecordedCommit)) -> Result<FoundEnd, String> {
    read_places(found, |commit, _| {
        take(commit);
        Ok(())
    })
}

/// Parses events of a stream, as [`read_found`] parses those of a log.
///
/// # Errors
/// As [`read_found`].
pub fn read_found_of_stream(found: &Bytes, mut take: impl FnMut(StreamEvent)) -> Result<FoundEnd, String> {
    read_places(found, |commit, places| {
        if places.len() != commit.events.len() {
            return Err("an event without its position in the stream".to_owned());
        }
        let placed = commit.events.into_iter().zip(places);
        placed.for_each(|(event, Place { position, partition })| take(StreamEvent { position, partition, event }));
        Ok(())
    })
}

/// The place of an event in a stream.
struct Place {
    position: StreamPosition,
    partition: Option<ByteString>,
}

fn read_places(
    found: &Bytes,
    mut take: impl FnMut(RecordedCommit, Vec<Place>) -> Result<(), String>,
) -> Result<FoundEnd, String> {
    let mut rest = &found[..];
    loop {
        let (document, behind) = split_document(rest)?.ok_or("a truncated response")?;
        let document = RawDocument::from_bytes(document).map_err(|error| error.to_string())?;
        match read_commit(found, document)? {
            Read::Commit(commit, places) => take(commit, places)?,
            Read::End(end) if behind.is_empty() => return Ok(end),
            Read::End(_) => return Err("a response with bytes after its end".to_owned()),
        }
        rest = behind;
    }
}

enum Read {
    /// With the places of its events, if it is a stream that is read.
    Commit(RecordedCommit, Vec<Place>),
    End(FoundEnd),
}

fn read_commit(found: &Bytes, document: &RawDocument) -> Result<Read, String> {
    let mut info = CommitInfo {
        commit_id: Uuid::nil(),
        request_id: None,
        aggregate: Aggregate::new("", ""),
        version: 0,
        time: Timestamp::from_millis(0),
        tenant_id: ByteString::from_static(DEFAULT_TENANT_ID),
        owner_id: ByteString::new(),
        space_id: ByteString::new(),
        command_id: None,
        correlation_id: None,
        causation_id: None,
        header: Vec::new(),
        transaction: None,
        received: None,
    };
    let mut end = FoundEnd::default();
    let mut events = None;
    for element in document {
        let (key, value) = element.map_err(|error| error.to_string())?;
        let wrong = || format!("{key} is {value:?}");
        let text = || value.as_str().and_then(|text| share_text(found, text)).ok_or_else(wrong);
        match key.as_str() {
            "commit_id" => info.commit_id = id(value).ok_or_else(wrong)?,
            "request_id" => info.request_id = Some(text()?),
            "aggregate" => info.aggregate = aggregate(found, value).ok_or_else(wrong)?,
            "version" => info.version = value.as_i64().ok_or_else(wrong)? as u64,
            "time" => info.time = time(value).ok_or_else(wrong)?,
            "tenant_id" => info.tenant_id = text()?,
            "owner_id" => info.owner_id = text()?,
            "space_id" => info.space_id = text()?,
            "command_id" => info.command_id = Some(text()?),
            "correlation_id" => info.correlation_id = Some(text()?),
            "causation_id" => info.causation_id = Some(text()?),
            "header" => info.header = header(found, value).ok_or_else(wrong)?,
            "transaction" => info.transaction = Some(transaction(value).ok_or_else(wrong)?),
            "received" => info.received = Some(Arc::new(received(found, value).ok_or_else(wrong)?)),
            "events" => events = Some(value.as_array().ok_or_else(wrong)?),
            "next" => end.next = value.as_i64().ok_or_else(wrong)? as u64,
            "head" => end.head = value.as_i64().ok_or_else(wrong)? as u64,
            _ => {}
        }
    }
    let Some(list) = events else { return Ok(Read::End(FoundEnd { version: info.version, ..end })) };
    let info = Arc::new(info);
    let (mut events, mut places): (Vec<RecordedEvent>, Vec<Place>) = (Vec::new(), Vec::new());
    for event in list {
        let event = event.map_err(|error| error.to_string())?.as_document().ok_or("an event that is not a document")?;
        let last = events.last().map(|event| event.event_type.clone());
        events.push(read_event(found, event, &info, last.unwrap_or_default(), &mut places)?);
    }
    if events.is_empty() {
        return Err("a commit without events".to_owned());
    }
    Ok(Read::Commit(RecordedCommit { info, events }, places))
}

/// Parses an event. Consecutive events often have the same type, so its memory is shared with `last`.
fn read_event(
    found: &Bytes,
    document: &RawDocument,
    commit: &Arc<CommitInfo>,
    last: ByteString,
    places: &mut Vec<Place>,
) -> Result<RecordedEvent, String> {
    let (mut position, mut partition) = (None, None);
    let mut event = RecordedEvent {
        sequence_number: 0,
        ordinal: 0,
        id: Uuid::nil(),
        event_type: ByteString::new(),
        generation: 1,
        data: Data::empty(),
        tags: Vec::new(),
        public: false,
        metadata: None,
        time: commit.time,
        commit: Arc::clone(commit),
    };
    for element in document {
        let (key, value) = element.map_err(|error| error.to_string())?;
        let wrong = || format!("{key} is {value:?}");
        match key.as_str() {
            "sequence_number" => event.sequence_number = value.as_i64().ok_or_else(wrong)? as u64,
            "ordinal" => event.ordinal = small(value).ok_or_else(wrong)?,
            "id" => event.id = id(value).ok_or_else(wrong)?,
            "type" => {
                let text = value.as_str().ok_or_else(wrong)?;
                event.event_type =
                    if *last == *text { last.clone() } else { share_text(found, text).ok_or_else(wrong)? };
            }
            "generation" => event.generation = small(value).ok_or_else(wrong)?,
            "data" => {
                let document = value.as_document().ok_or_else(wrong)?;
                event.data = Data::from_lent(document, |bytes| found.slice_ref(bytes));
            }
            "tags" => {
                for tag in value.as_array().ok_or_else(wrong)? {
                    let tag = tag.map_err(|error| error.to_string())?.as_str();
                    event.tags.push(tag.and_then(|tag| share_text(found, tag)).ok_or_else(wrong)?);
                }
            }
            "public" => event.public = value.as_bool().ok_or_else(wrong)?,
            "position" => position = Some(value.as_i64().ok_or_else(wrong)? as u64),
            "partition" => {
                let text = value.as_str().and_then(|text| share_text(found, text));
                partition = Some(text.ok_or_else(wrong)?);
            }
            "metadata" => {
                let document = value.as_document().ok_or_else(wrong)?;
                event.metadata = Some(Metadata::from_stored(Data::from_lent(document, |bytes| found.slice_ref(bytes))));
            }
            "time" => event.time = time(value).ok_or_else(wrong)?,
            _ => {}
        }
    }
    if event.event_type.is_empty() {
        return Err("an event without type".to_owned());
    }
    places.extend(position.map(|position| Place { position, partition }));
    Ok(event)
}

fn share_text(found: &Bytes, text: &str) -> Option<ByteString> {
    if text.is_empty() {
        return Some(ByteString::new());
    }
    found.slice_ref(text.as_bytes()).try_into().ok()
}

fn aggregate(found: &Bytes, value: RawBsonRef<'_>) -> Option<Aggregate> {
    let document = value.as_document()?;
    let text = |key| share_text(found, document.get_str(key).ok()?);
    Some(Aggregate { name: text("name")?, id: text("id")? })
}

fn transaction(value: RawBsonRef<'_>) -> Option<TransactionPlace> {
    let document = value.as_document()?;
    let field = |key| document.get(key).ok().flatten();
    Some(TransactionPlace { id: id(field("id")?)?, place: small(field("place")?)?, count: small(field("count")?)? })
}

fn received(found: &Bytes, value: RawBsonRef<'_>) -> Option<ReceivedFrom> {
    let document = value.as_document()?;
    let field = |key| document.get(key).ok().flatten();
    let part = |key| share_text(found, field(key)?.as_str()?);
    let number = |key| Some(field(key)?.as_i64()? as u64);
    let subscription = Subscription {
        producer: part("producer")?,
        tenant: part("tenant")?,
        stream: part("stream")?,
        partition: part("partition")?,
    };
    Some(ReceivedFrom {
        subscription,
        sequence_number: number("sequence_number")?,
        position: number("position")?,
        consent: id(field("consent")?)?,
        at: time(field("at")?)?,
    })
}

fn header(found: &Bytes, value: RawBsonRef<'_>) -> Option<Vec<(ByteString, ByteString)>> {
    let mut pairs = Vec::new();
    for element in value.as_document()? {
        let (key, value) = element.ok()?;
        pairs.push((key.as_str().into(), share_text(found, value.as_str()?)?));
    }
    Some(pairs)
}

fn id(value: RawBsonRef<'_>) -> Option<Uuid> {
    let binary = value.as_binary().filter(|binary| binary.subtype == BinarySubtype::Uuid)?;
    Uuid::from_slice(binary.bytes).ok()
}

fn time(value: RawBsonRef<'_>) -> Option<Timestamp> {
    value.as_datetime().map(|time| Timestamp::from_millis(time.timestamp_millis()))
}

fn small(value: RawBsonRef<'_>) -> Option<u32> {
    value.as_i64().and_then(|number| u32::try_from(number).ok())
}

#[cfg(test)]
mod tests;
