//! A snapshot as a document, in the layout of Wow's Mongo extension: every field, in its order.

use bson::raw::{CString, RawArrayBuf, RawDocument, RawDocumentBuf, cstr};
use bytestring::ByteString;

use super::Snapshot;
use crate::fields::whole;
use crate::{Aggregate, AggregateInfo, Data, Tags, Timestamp};

/// The fields that a document can have.
pub(super) const FIELDS: [&str; 17] = [
    "_id",
    "contextName",
    "aggregateName",
    "tenantId",
    "ownerId",
    "spaceId",
    "version",
    "eventId",
    "firstOperator",
    "operator",
    "firstEventTime",
    "eventTime",
    "state",
    "snapshotTime",
    "tags",
    "deleted",
    "annals",
];

pub(super) fn write(snapshot: &Snapshot, context: &str, saved: Timestamp) -> RawDocumentBuf {
    let info = &snapshot.info;
    let mut out = RawDocumentBuf::new();
    out.append(cstr!("_id"), &*info.aggregate.id);
    out.append(cstr!("contextName"), context);
    out.append(cstr!("aggregateName"), &*info.aggregate.name);
    out.append(cstr!("tenantId"), &*info.tenant_id);
    out.append(cstr!("ownerId"), &*info.owner_id);
    out.append(cstr!("spaceId"), &*info.space_id);
    // A version that does not fit was refused earlier.
    out.append(cstr!("version"), i32::try_from(info.version).unwrap_or(i32::MAX));
    out.append(cstr!("eventId"), &*info.commit_id);
    out.append(cstr!("firstOperator"), &*info.first_operator);
    out.append(cstr!("operator"), &*info.operator);
    out.append(cstr!("firstEventTime"), info.first_time.as_millis());
    out.append(cstr!("eventTime"), info.time.as_millis());
    out.append(cstr!("state"), snapshot.state.as_raw());
    out.append(cstr!("snapshotTime"), snapshot.time.unwrap_or(saved).as_millis());
    out.append(cstr!("tags"), tags(&info.tags));
    out.append(cstr!("deleted"), info.deleted);
    if snapshot.state_revision != 1 {
        let mut ours = RawDocumentBuf::new();
        ours.append(cstr!("stateRevision"), i64::from(snapshot.state_revision));
        out.append(cstr!("annals"), ours);
    }
    out
}

/// Writes the tags. A key with a NUL cannot be a BSON field name and is left out; no stored event can contain one.
pub(crate) fn tags(tags: &Tags) -> RawDocumentBuf {
    let mut out = RawDocumentBuf::new();
    for (key, values) in tags {
        if let Ok(key) = CString::try_from(key.clone()) {
            out.append(&*key, values.iter().map(String::as_str).collect::<RawArrayBuf>());
        }
    }
    out
}

/// Reads a snapshot. Fields that Wow's reader requires are required here as well; without them the document is not a snapshot.
pub(crate) fn read(aggregate: &Aggregate, document: &RawDocument) -> Option<Snapshot> {
    let field = |name: &str| document.get(name).ok().flatten();
    let text = |name: &str| field(name).and_then(|value| value.as_str()).map(ByteString::from);
    let time = |name: &str| Timestamp::from_millis(field(name).and_then(whole).unwrap_or_default());
    let info = AggregateInfo {
        aggregate: aggregate.clone(),
        version: u64::try_from(whole(field("version")?)?).ok()?,
        tenant_id: text("tenantId")?,
        owner_id: text("ownerId").unwrap_or_default(),
        space_id: text("spaceId").unwrap_or_default(),
        deleted: field("deleted")?.as_bool()?,
        tags: field("tags").and_then(|tags| read_tags(tags.as_document()?)).unwrap_or_default(),
        commit_id: text("eventId").unwrap_or_default(),
        first_operator: text("firstOperator").unwrap_or_default(),
        operator: text("operator").unwrap_or_default(),
        first_time: time("firstEventTime"),
        time: time("eventTime"),
    };
    let ours = field("annals").and_then(|ours| ours.as_document()?.get("stateRevision").ok()?);
    let state_revision = ours.map_or(Some(1), |revision| u32::try_from(whole(revision)?).ok());
    Some(Snapshot {
        info,
        state: Data::of_raw(field("state")?.as_document()?),
        state_revision: state_revision.unwrap_or(0),
        time: Some(time("snapshotTime")),
    })
}

pub(crate) fn read_tags(tags: &RawDocument) -> Option<Tags> {
    let mut read = Tags::new();
    for tag in tags {
        let (key, values) = tag.ok()?;
        let values = values.as_array()?.into_iter().map(|value| Some(value.ok()?.as_str()?.to_owned()));
        read.insert(key.as_str().to_owned(), values.collect::<Option<_>>()?);
    }
    Some(read)
}
