//! An event as a document, so that a [`Condition`](crate::Condition) can be evaluated on it.

use bson::raw::{CString, RawArrayBuf, RawDocumentBuf, cstr};
use bson::{DateTime, RawBson};

use crate::RecordedEvent;

/// Returns the event as a document whose fields have the names of the API: `type`, `data`, `tags`, `metadata`, `aggregate.name`,
/// `aggregate.id`, `time`, `owner_id` and so on. Times are dates and numbers are 64 bits wide. Fields that an event lacks are missing;
/// `public` and `tenant_id` never are.
pub fn event_document(event: &RecordedEvent) -> RawDocumentBuf {
    let commit = &*event.commit;
    let mut out = RawDocumentBuf::new();
    out.append(cstr!("sequence_number"), event.sequence_number.cast_signed());
    out.append(cstr!("id"), text_of(event.id));
    out.append(cstr!("type"), &*event.event_type);
    out.append(cstr!("generation"), i64::from(event.generation));
    out.append(cstr!("data"), event.data.as_raw());
    out.append(cstr!("tags"), event.tags.iter().map(|tag| &**tag).collect::<RawArrayBuf>());
    match commit.aggregate.event_source() {
        Some(source) => out.append(cstr!("event_source"), source),
        None => {
            let mut aggregate = RawDocumentBuf::new();
            aggregate.append(cstr!("name"), &*commit.aggregate.name);
            aggregate.append(cstr!("id"), &*commit.aggregate.id);
            out.append(cstr!("aggregate"), aggregate);
        }
    }
    out.append(cstr!("version"), commit.version.cast_signed());
    out.append(cstr!("ordinal"), i64::from(event.ordinal));
    out.append(cstr!("commit_id"), text_of(commit.commit_id));
    out.append(cstr!("time"), RawBson::DateTime(DateTime::from_millis(event.time.as_millis())));
    out.append(cstr!("public"), event.public);
    if let Some(metadata) = &event.metadata {
        out.append(cstr!("metadata"), metadata.data().as_raw());
    }
    let mut header = RawDocumentBuf::new();
    for (key, value) in &commit.header {
        // A key has no control characters.
        if let Ok(key) = CString::try_from(key.to_string()) {
            header.append(&*key, &**value);
        }
    }
    out.append(cstr!("header"), header);
    out.append(cstr!("tenant_id"), &*commit.tenant_id);
    for (name, value) in [(cstr!("owner_id"), &commit.owner_id), (cstr!("space_id"), &commit.space_id)] {
        if !value.is_empty() {
            out.append(name, &**value);
        }
    }
    for (name, value) in [
        (cstr!("request_id"), &commit.request_id),
        (cstr!("command_id"), &commit.command_id),
        (cstr!("correlation_id"), &commit.correlation_id),
        (cstr!("causation_id"), &commit.causation_id),
    ] {
        value.iter().for_each(|value| out.append(name, &**value));
    }
    out
}

fn text_of(id: uuid::Uuid) -> String {
    id.hyphenated().to_string()
}
