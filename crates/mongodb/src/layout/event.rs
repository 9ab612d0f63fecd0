//! An event as a document of `event-log`, exactly in the Dolittle Runtime's layout: its reader rejects unknown fields.

use annals_core::SequenceNumber;
use mongodb::bson::RawDocumentBuf;
use uuid::Uuid;

use super::foreign::{StoredCommit, StoredEvent};
use super::mapping::{Kind, Mapping};
use super::names::uuid_of;
use super::writer::Writer;

/// 0001-01-01, which the Runtime writes for "never".
const NEVER_MILLIS: i64 = -62_135_596_800_000;

/// The fields that the events of one commit share, as UUIDs.
pub(crate) struct Common<'a> {
    mapping: &'a Mapping,
    tenant: Uuid,
    correlation: Uuid,
    aggregate: Uuid,
    /// The number of events that the aggregate had applied before the commit.
    before: u64,
}

impl<'a> Common<'a> {
    pub(crate) fn of(commit: &StoredCommit, tenant: &str, before: u64, mapping: &'a Mapping) -> Self {
        let correlation = commit.info.correlation_id.as_deref();
        Self {
            mapping,
            tenant: uuid_of("tenant", tenant),
            correlation: correlation.map_or(commit.info.commit_id, |id| uuid_of("correlation", id)),
            aggregate: mapping.uuid(Kind::Aggregate, &commit.info.aggregate.name),
            before,
        }
    }
}

/// Writes the document of an event; `place` is its ordinal.
pub(crate) fn write(
    commit: &StoredCommit,
    place: usize,
    event: &StoredEvent,
    number: SequenceNumber,
    common: &Common<'_>,
) -> Result<RawDocumentBuf, mongodb::bson::error::Error> {
    let mut out = Writer::with_capacity(event.data.as_bytes().len() + 640);
    out.decimal("_id", number);
    out.whole("Content", event.data.as_bytes());
    // In the Runtime's terms, no aggregate applied an event that was committed at any version.
    let before = commit.applied.then(|| (common.aggregate, common.before + place as u64));
    write_applied(&mut out, before);
    out.document("EventHorizon", |horizon| {
        horizon.boolean("FromEventHorizon", false);
        horizon.decimal("ExternalEventLogSequenceNumber", 0);
        horizon.date("Received", NEVER_MILLIS);
        horizon.uuid("Consent", Uuid::nil());
    });
    let context = Context { correlation: common.correlation, microservice: Uuid::nil(), tenant: common.tenant };
    out.document("ExecutionContext", |out| context.write(out));
    out.document("Metadata", |metadata| {
        metadata.date("Occurred", event.time.as_millis());
        metadata.text("EventSource", &commit.info.aggregate.id);
        metadata.uuid("TypeId", common.mapping.uuid(Kind::Event, &event.event_type));
        metadata.int64("TypeGeneration", event.generation.into());
        metadata.boolean("Public", event.public);
    });
    out.raw()
}

/// Writes the sub-document `Aggregate`, with the number of events that the aggregate had applied before. For an event that no aggregate
/// applied it has default values, which the Runtime's readers of all versions accept.
pub(super) fn write_applied(out: &mut Writer, applied: Option<(Uuid, u64)>) {
    let (aggregate, before) = applied.unwrap_or_default();
    out.document("Aggregate", |out| {
        out.boolean("WasAppliedByAggregate", applied.is_some());
        out.uuid("TypeId", aggregate);
        out.int64("TypeGeneration", i64::from(applied.is_some()));
        out.decimal("Version", before);
    });
}

/// The execution context in which an event was committed.
pub(super) struct Context {
    pub(super) correlation: Uuid,
    pub(super) microservice: Uuid,
    pub(super) tenant: Uuid,
}

impl Context {
    pub(super) fn write(&self, out: &mut Writer) {
        out.uuid("Correlation", self.correlation);
        out.binary("SpanId", 0x00, &[0; 8]);
        out.uuid("Microservice", self.microservice);
        out.uuid("Tenant", self.tenant);
        out.document("Version", |version| {
            for part in ["Major", "Minor", "Patch", "Build"] {
                version.int32(part, 0);
            }
            version.text("PreRelease", "");
        });
        out.text("Environment", "");
        out.array("Claims", |_| {});
    }
}
