//! A key of `prepare_{name}`, as in Wow's Mongo extension: `{_id: key, value, ttlAt}`, with a far date if it never expires.

use annals_core::{Code, Data, Invalid, KeyHolder, KeyValue, Timestamp};
use bytes::Bytes;
use mongodb::bson::raw::cstr;
use mongodb::bson::{Bson, DateTime, Document, RawBsonRef, RawDocument, RawDocumentBuf, doc};

use super::index::Index;
use super::names::{aggregate_of, unfit};
use super::writer::Writer;

/// The date that Wow writes for a key that never expires: 6666-06-06.
const FOR_EVER: i64 = 148_204_944_000_000;

/// Returns Wow's two indexes. With the first, the server deletes a key some time after it has expired.
pub(crate) fn indexes() -> Vec<Index> {
    let expiring = Index { expires_after: Some(0), ..Index::ascending("ttlAt_1", &["ttlAt"]) };
    vec![expiring, Index::hashed("_id_hashed", "_id")]
}

/// Returns a filter for the key with this value.
///
/// A filter's equality also matches an array with an equal element, so the values are additionally compared by an expression.
///
/// # Errors
/// If a filter cannot contain the value.
pub(crate) fn with_value(key: &str, value: &KeyValue) -> Result<Document, mongodb::bson::error::Error> {
    let value = value.data().as_raw().get("value")?.unwrap_or(RawBsonRef::Null);
    let value = Bson::try_from(value)?;
    let same = doc! { "$eq": ["$value", { "$literal": value.clone() }] };
    Ok(doc! { "_id": key, "value": { "$eq": value }, "$expr": same })
}

/// Returns a filter for the key with a `ttlAt` that compares to now in this way.
pub(crate) fn with_time(key: &str, operator: &str, now: Timestamp) -> Document {
    doc! { "_id": key, "ttlAt": { operator: DateTime::from_millis(now.as_millis()) } }
}

/// Returns a filter for keys after this one that are held and have not expired, including those without a date.
pub(crate) fn held_after(after: Option<&str>, now: Timestamp) -> Document {
    let id = match after {
        Some(after) => doc! { "$gt": after },
        None => doc! { "$gte": "" },
    };
    doc! { "_id": id, "ttlAt": { "$not": { "$lt": DateTime::from_millis(now.as_millis()) } } }
}

/// Returns the collection of the keys of this name; `path` says where the request has the name.
///
/// # Errors
/// `invalid_keys` for a name whose collection would look like one of commits or snapshots.
pub(crate) fn collection(name: &str, path: impl Fn() -> String) -> Result<String, Invalid> {
    let collection = format!("prepare_{name}");
    if aggregate_of(&collection).is_some() || collection.ends_with("_snapshot") {
        let message = format!("MongoDB's layout keeps collections that are called like {collection}; use another name");
        return Err(Invalid::new(Code::InvalidKeys, path(), message));
    }
    if let Some(why) = unfit(&collection) {
        let message = format!("{name:?} {why}, and keys are in a collection of this name; use another name");
        return Err(Invalid::new(Code::InvalidKeys, path(), message));
    }
    Ok(collection)
}

pub(crate) fn write(key: &str, holder: &KeyHolder) -> Result<RawDocumentBuf, mongodb::bson::error::Error> {
    let value = holder.value.data().as_bytes();
    let mut out = Writer::with_capacity(value.len() + key.len() + 64);
    out.text("_id", key);
    out.only("value", value);
    out.date("ttlAt", holder.ttl_at.map_or(FOR_EVER, |at| at.as_millis().min(FOR_EVER)));
    out.raw()
}

/// Reads the holder of a key. A key without a date never expires.
///
/// # Errors
/// A sentence that says what is wrong.
pub(crate) fn read(document: &RawDocument) -> Result<KeyHolder, String> {
    let ttl_at = match document.get("ttlAt").map_err(|error| error.to_string())? {
        None => None,
        Some(RawBsonRef::DateTime(at)) => Some(at.timestamp_millis()),
        Some(_) => return Err("ttlAt is no date".to_owned()),
    };
    let ttl_at = ttl_at.filter(|at| *at < FOR_EVER).map(Timestamp::from_millis);
    Ok(KeyHolder { value: value(document)?, ttl_at })
}

/// Returns the field `value` of a document; null if there is none.
///
/// # Errors
/// A sentence, if the value is not valid BSON.
pub(crate) fn value(document: &RawDocument) -> Result<KeyValue, String> {
    let mut out = RawDocumentBuf::new();
    let found = document.get("value").map_err(|error| error.to_string())?;
    out.append(cstr!("value"), found.unwrap_or(RawBsonRef::Null));
    Data::from_stored(Bytes::from(out.into_bytes())).map(KeyValue::from_data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(holder: &KeyHolder) -> Document {
        Document::try_from(&*write("eva", holder).expect("encodes")).expect("a document")
    }

    #[test]
    fn a_key_is_stored_as_wow_stores_it() {
        let value: KeyValue = serde_json::from_str(r#"{"b":1,"a":"x"}"#).expect("a value");
        let ever = KeyHolder { value: value.clone(), ttl_at: None };
        let date = |millis| Bson::DateTime(mongodb::bson::DateTime::from_millis(millis));
        let found = stored(&ever);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["_id", "value", "ttlAt"]);
        assert_eq!(found.get("ttlAt"), Some(&date(148_204_944_000_000)));
        assert_eq!(found.get_document("value").expect("embedded").keys().collect::<Vec<_>>(), ["b", "a"]);
        let timed = KeyHolder { value: KeyValue::new(7).expect("a value"), ttl_at: Some(Timestamp::from_millis(9)) };
        assert_eq!(stored(&timed).get("ttlAt"), Some(&date(9)));
        assert!(matches!(stored(&timed).get("value"), Some(Bson::Int32(7) | Bson::Int64(7))));
        for holder in [ever, timed] {
            assert_eq!(read(&write("eva", &holder).expect("encodes")), Ok(holder));
        }
    }

    #[test]
    fn a_key_of_other_software_is_read() {
        let read_document = |document: Document| read(&RawDocumentBuf::try_from(&document).expect("encodes"));
        let holder = read_document(doc! { "_id": "k", "value": "u-1" }).expect("held for ever");
        assert_eq!(holder, KeyHolder { value: KeyValue::new("u-1").expect("a value"), ttl_at: None });
        assert_eq!(read_document(doc! { "_id": "k" }).expect("null").value, KeyValue::new(()).expect("a value"));
        assert!(read_document(doc! { "_id": "k", "value": 1, "ttlAt": 5_i64 }).is_err());
    }

    #[test]
    fn a_name_never_reaches_into_commits_or_snapshots() {
        let of = |name: &str| collection(name, || "reserve[0].name".to_owned());
        assert_eq!(of("user").as_deref(), Ok("prepare_user"));
        for name in ["a_event_stream", "x_snapshot"] {
            assert_eq!(of(name).expect_err("refused").path, "reserve[0].name");
        }
    }
}
