//! Snapshots over HTTP: one document with the field names of the stored one, except that the aggregate's id is `aggregateId`.

use bson::RawBsonRef;
use bson::raw::{RawDocument, RawDocumentBuf, cstr};
use bytestring::ByteString;

use super::records::Encoding;
use crate::fields::{body, boolean, fields, integer, nested, text, unknown};
use crate::snapshots::{read_tags, write_tags};
use crate::{Aggregate, Code, Data, Invalid, Snapshot, Timestamp};

/// Writes a snapshot.
pub fn write_snapshot(snapshot: &Snapshot) -> RawDocumentBuf {
    let info = &snapshot.info;
    let mut out = RawDocumentBuf::new();
    out.append(cstr!("aggregateName"), &*info.aggregate.name);
    out.append(cstr!("aggregateId"), &*info.aggregate.id);
    out.append(cstr!("tenantId"), &*info.tenant_id);
    out.append(cstr!("ownerId"), &*info.owner_id);
    out.append(cstr!("spaceId"), &*info.space_id);
    out.append(cstr!("version"), info.version.cast_signed());
    out.append(cstr!("eventId"), &*info.commit_id);
    out.append(cstr!("firstOperator"), &*info.first_operator);
    out.append(cstr!("operator"), &*info.operator);
    out.append(cstr!("firstEventTime"), info.first_time.as_millis());
    out.append(cstr!("eventTime"), info.time.as_millis());
    out.append(cstr!("state"), snapshot.state.as_raw());
    if let Some(time) = snapshot.time {
        out.append(cstr!("snapshotTime"), time.as_millis());
    }
    out.append(cstr!("tags"), write_tags(&info.tags));
    out.append(cstr!("deleted"), info.deleted);
    out.append(cstr!("stateRevision"), i64::from(snapshot.state_revision));
    out
}

/// Parses a snapshot of an aggregate. Its version and state are required; other fields have defaults. The document may repeat the
/// aggregate's name and id, which must then match.
///
/// # Errors
/// The first error, with its path.
pub fn read_snapshot(aggregate: &Aggregate, bytes: &[u8], encoding: Encoding) -> Result<Snapshot, Invalid> {
    let document = encoding.document(bytes)?;
    let mut snapshot = Snapshot::new(aggregate.clone(), 0, Data::empty());
    let (mut version, mut state) = (None, None);
    fields(&document, "", |field, path, value| {
        let info = &mut snapshot.info;
        match field {
            "aggregateName" => same(path, &text(path, value)?, &aggregate.name)?,
            "aggregateId" => same(path, &text(path, value)?, &aggregate.id)?,
            "tenantId" => info.tenant_id = text(path, value)?,
            "ownerId" => info.owner_id = text(path, value)?,
            "spaceId" => info.space_id = text(path, value)?,
            "version" => version = Some(number(path, value)?),
            "eventId" => info.commit_id = text(path, value)?,
            "firstOperator" => info.first_operator = text(path, value)?,
            "operator" => info.operator = text(path, value)?,
            "firstEventTime" => info.first_time = time(path, value)?,
            "eventTime" => info.time = time(path, value)?,
            "state" => {
                let read =
                    encoding.record(path, value).map_err(|fault| Invalid { code: Code::InvalidData, ..fault })?;
                state = Some(Data::of_raw(&read));
            }
            "snapshotTime" => snapshot.time = Some(time(path, value)?),
            "tags" => {
                let read = read_tags(nested(path, value)?);
                info.tags = read.ok_or_else(|| body(path, "is not an object of arrays of strings"))?;
            }
            "deleted" => info.deleted = boolean(path, value)?,
            "stateRevision" => {
                let revision =
                    u32::try_from(number(path, value)?).map_err(|_| body(path, "is more than 4294967295"))?;
                snapshot.state_revision = revision;
            }
            _ => return Err(unknown(path)),
        }
        Ok(())
    })?;
    snapshot.info.version = version.ok_or_else(|| body("version", "is missing"))?;
    snapshot.state = state.ok_or_else(|| body("state", "is missing"))?;
    snapshot.validate()?;
    Ok(snapshot)
}

/// Writes whether a snapshot was saved.
pub fn write_saved(saved: bool) -> RawDocumentBuf {
    let mut out = RawDocumentBuf::new();
    out.append(cstr!("saved"), saved);
    out
}

/// Parses whether a snapshot was saved.
///
/// # Errors
/// A sentence, if the answer has another form.
pub fn read_saved(bytes: &[u8]) -> Result<bool, String> {
    let document = RawDocument::from_bytes(bytes).map_err(|error| error.to_string())?;
    document.get_bool("saved").map_err(|error| error.to_string())
}

fn same(path: &str, said: &str, of_path: &ByteString) -> Result<(), Invalid> {
    if *said == **of_path {
        return Ok(());
    }
    Err(body(path, format_args!("is {said:?}, but the path says {of_path:?}")))
}

fn number(path: &str, value: RawBsonRef<'_>) -> Result<u64, Invalid> {
    let number = integer(value).and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| body(path, "is not a whole number from 0"))
}

fn time(path: &str, value: RawBsonRef<'_>) -> Result<Timestamp, Invalid> {
    let millis = value.as_i64().or_else(|| value.as_i32().map(i64::from));
    let invalid = || Invalid::new(Code::InvalidTime, path, "is not a time in milliseconds since 1970");
    millis.map(Timestamp::from_millis).filter(|time| time.is_writable()).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> Aggregate {
        Aggregate::new("order", "o-1")
    }

    #[test]
    fn a_snapshot_is_read_back_as_it_was_written() {
        let mut snapshot = Snapshot::new(order(), 7, Data::from_json(r#"{"b":1,"a":{"$set":2}}"#).expect("an object"));
        snapshot.info.tags.insert("region".to_owned(), vec!["eu".to_owned()]);
        snapshot.info.deleted = true;
        snapshot.time = Some(Timestamp::from_millis(5));
        let written = write_snapshot(&snapshot);
        assert_eq!(read_snapshot(&order(), written.as_bytes(), Encoding::Bson), Ok(snapshot));
    }

    #[test]
    fn version_and_state_are_enough_and_what_is_wrong_is_named() {
        let read = |json: &str| read_snapshot(&order(), json.as_bytes(), Encoding::Json);
        let plain = Snapshot::new(order(), 7, Data::from_json(r#"{"b":1}"#).expect("an object"));
        assert_eq!(read(r#"{"version":7,"state":{"b":1}}"#), Ok(plain));
        for (json, path) in [
            (r#"{"state":{}}"#, "version"),
            (r#"{"version":1}"#, "state"),
            (r#"{"version":-1,"state":{}}"#, "version"),
            (r#"{"version":2147483648,"state":{}}"#, "version"),
            (r#"{"version":1,"state":[]}"#, "state"),
            (r#"{"version":1,"state":{},"aggregateId":"o-2"}"#, "aggregateId"),
            (r#"{"version":1,"state":{},"tags":{"a":"b"}}"#, "tags"),
            (r#"{"version":1,"state":{},"eventTime":"now"}"#, "eventTime"),
            (r#"{"version":1,"state":{},"tenantId":""}"#, "tenantId"),
            (r#"{"version":1,"state":{},"status":"paid"}"#, "status"),
        ] {
            assert_eq!(read(json).expect_err(json).path, path, "{json}");
        }
    }
}
