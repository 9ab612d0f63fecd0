//! The document form of a commit, as on MongoDB: Wow's fields in their order, and those of Annals' own fields that results contain.

use bson::raw::{CString, RawArrayBuf, RawDocumentBuf, cstr};
use uuid::Uuid;

use crate::{EventRef, Timestamp, Version};

/// Builds the document of a commit whose events are added in order.
pub(super) struct CommitDocument {
    /// The fields that precede the events.
    out: RawDocumentBuf,
    body: RawArrayBuf,
    ours: RawDocumentBuf,
    times: Vec<i64>,
    /// The id of the commit.
    pub(super) id: Uuid,
}

impl CommitDocument {
    /// Starts the document of an event's commit. The event itself is added separately.
    pub(super) fn of(first: &EventRef<'_>, context: &str) -> Self {
        let commit = first.commit;
        let request = commit.request_id.unwrap_or_default();
        let mut out = RawDocumentBuf::new();
        out.append(cstr!("_id"), text_of(commit.commit_id));
        out.append(cstr!("contextName"), context);
        out.append(cstr!("aggregateName"), commit.aggregate_name);
        let mut header = RawDocumentBuf::new();
        for (key, value) in commit.header {
            // Keys have no control characters, so the conversion never fails.
            if let Ok(key) = CString::try_from((*key).to_owned()) {
                header.append(&*key, *value);
            }
        }
        out.append(cstr!("header"), header);
        out.append(cstr!("aggregateId"), commit.aggregate_id);
        out.append(cstr!("tenantId"), commit.tenant_id);
        out.append(cstr!("ownerId"), commit.owner_id);
        out.append(cstr!("spaceId"), commit.space_id);
        out.append(cstr!("commandId"), commit.command_id.unwrap_or(request));
        out.append(cstr!("requestId"), request);
        append_version(&mut out, commit.version);
        let mut ours = RawDocumentBuf::new();
        // A command id that equals the request id is stored here too, because the field above alone would mean that there was no command.
        let ids = [
            (cstr!("commandId"), commit.command_id.filter(|command| *command == request)),
            (cstr!("correlationId"), commit.correlation_id),
            (cstr!("causationId"), commit.causation_id),
        ];
        for (name, id) in ids {
            id.into_iter().for_each(|id| ours.append(name, id));
        }
        Self { out, body: RawArrayBuf::new(), ours, times: Vec::new(), id: commit.commit_id }
    }

    /// Adds the next event.
    pub(super) fn add(&mut self, event: &EventRef<'_>) {
        let mut one = RawDocumentBuf::new();
        one.append(cstr!("id"), text_of(event.id));
        one.append(cstr!("name"), event.event_type);
        one.append(cstr!("revision"), format!("{}.0.0", event.generation));
        one.append(cstr!("bodyType"), event.event_type);
        one.append(cstr!("body"), event.data);
        if !event.tags.is_empty() {
            one.append(cstr!("tags"), event.tags.iter().copied().collect::<RawArrayBuf>());
        }
        if event.public {
            one.append(cstr!("public"), true);
        }
        if let Some(metadata) = event.metadata {
            one.append(cstr!("metadata"), metadata);
        }
        self.body.push(one);
        self.times.push(Timestamp::as_millis(event.time));
    }

    /// Returns the document, once all events were added.
    pub(super) fn done(mut self) -> RawDocumentBuf {
        let first = self.times.first().copied().unwrap_or_default();
        if self.times.iter().any(|time| *time != first) {
            self.ours.append(cstr!("times"), self.times.iter().copied().collect::<RawArrayBuf>());
        }
        self.out.append(cstr!("body"), self.body);
        self.out.append(cstr!("createTime"), first);
        if !self.ours.is_empty() {
            self.out.append(cstr!("annals"), self.ours);
        }
        self.out.append(cstr!("size"), i32::try_from(self.times.len()).unwrap_or(i32::MAX));
        self.out
    }
}

fn text_of(id: Uuid) -> String {
    id.hyphenated().to_string()
}

fn append_version(out: &mut RawDocumentBuf, version: Version) {
    match i32::try_from(version) {
        Ok(version) => out.append(cstr!("version"), version),
        Err(_) => out.append(cstr!("version"), version.cast_signed()),
    }
}
