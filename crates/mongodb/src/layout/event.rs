//! An event as a document of `event-log`, exactly as the Dolittle Runtime has it: its reader refuses fields that it does not know.

use annals_core::SequenceNumber;
use mongodb::bson::RawDocumentBuf;
use uuid::Uuid;

use super::foreign::{StoredCommit, StoredEvent};
use super::mapping::{Kind, Mapping};
use super::names::uuid_of;
use super::writer::Writer;

/// 0001-01-01, which the Runtime writes for "never".
const NEVER_MILLIS: i64 = -62_135_596_800_000;

/// What the events of one commit have in common, as UUIDs.
pub(crate) struct Common<'a> {
    mapping: &'a Mapping,
    tenant: Uuid,
    correlation: Uuid,
    aggregate: Uuid,
    /// How many events the aggregate had applied before it.
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

/// The document of the event at this place of its commit.
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
    out.document("Aggregate", |aggregate| {
        // An event that was committed at any version is applied by no aggregate, as the Runtime means it.
        aggregate.boolean("WasAppliedByAggregate", commit.applied);
        aggregate.uuid("TypeId", if commit.applied { common.aggregate } else { Uuid::nil() });
        aggregate.int64("TypeGeneration", i64::from(commit.applied));
        aggregate.decimal("Version", if commit.applied { common.before + place as u64 } else { 0 });
    });
    out.document("EventHorizon", |horizon| {
        horizon.boolean("FromEventHorizon", false);
        horizon.decimal("ExternalEventLogSequenceNumber", 0);
        horizon.date("Received", NEVER_MILLIS);
        horizon.uuid("Consent", Uuid::nil());
    });
    out.document("ExecutionContext", |context| write_context(context, common));
    out.document("Metadata", |metadata| {
        metadata.date("Occurred", event.time.as_millis());
        metadata.text("EventSource", &commit.info.aggregate.id);
        metadata.uuid("TypeId", common.mapping.uuid(Kind::Event, &event.event_type));
        metadata.int64("TypeGeneration", event.generation.into());
        metadata.boolean("Public", event.public);
    });
    out.raw()
}

fn write_context(context: &mut Writer, common: &Common<'_>) {
    context.uuid("Correlation", common.correlation);
    context.binary("SpanId", 0x00, &[0; 8]);
    context.uuid("Microservice", Uuid::nil());
    context.uuid("Tenant", common.tenant);
    context.document("Version", |version| {
        for part in ["Major", "Minor", "Patch", "Build"] {
            version.int32(part, 0);
        }
        version.text("PreRelease", "");
    });
    context.text("Environment", "");
    context.array("Claims", |_| {});
}
