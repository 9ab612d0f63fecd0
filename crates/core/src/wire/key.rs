//! Prepare keys over HTTP: one document for each change, and one for each key that exists.

use bson::RawBsonRef;
use bson::raw::{CStr, RawArrayBuf, RawDocument, RawDocumentBuf, cstr};

use super::records::Encoding;
use crate::fields::{body, boolean, fields, text, unknown};
use crate::{
    ByteString, Code, Data, FoundKey, Invalid, KeyChange, KeyHolder, KeyPage, KeyValue, ListedKey, Release, Reserve,
    Timestamp,
};

/// Parses a change of a key: `{"value", "ttl_at"?, "expected"?: "free" | "held", "old_value"?, "old_key"?}`.
///
/// By default the key is prepared. If it is expected to be held, or an old value is given, it is reprepared; it must have the old value, if
/// one is given. If an old key is given, that key is moved to this one; it must have the old value, if one is given.
///
/// # Errors
/// The first error, with its path.
pub fn read_key_change(name: &str, key: &str, bytes: &[u8], encoding: Encoding) -> Result<KeyChange, Invalid> {
    let document = encoding.document(bytes)?;
    let (mut value, mut ttl_at, mut held) = (None, None, None);
    let (mut old_value, mut old_key): (Option<KeyValue>, Option<ByteString>) = (None, None);
    fields(&document, "", |field, path, it| {
        match field {
            "value" => value = Some(read_value(path, it, encoding)?),
            "ttl_at" => ttl_at = time(path, it)?,
            "expected" => held = Some(is_held(path, it)?),
            "old_value" => old_value = Some(read_value(path, it, encoding)?),
            "old_key" => old_key = Some(text(path, it)?),
            _ => return Err(unknown(path)),
        }
        Ok(())
    })?;
    let value = value.ok_or_else(|| body("value", "is missing"))?;
    let new = Reserve { ttl_at, ..Reserve::new(name, key, value) };
    let change = match (old_key, old_value, held) {
        (Some(_), _, Some(true)) => {
            return Err(body("expected", "is held, but a key can move only to a free key"));
        }
        (Some(old_key), value, _) => KeyChange::Move { old: Release { value, ..Release::new(name, old_key) }, new },
        (None, Some(_), Some(false)) => {
            return Err(body("expected", "is free, so it has no old value; leave old_value out"));
        }
        (None, None, None | Some(false)) => KeyChange::Prepare(new),
        (None, old, _) => KeyChange::Reprepare { old, new },
    };
    change.validate()?;
    Ok(change)
}

/// Writes the body that [`read_key_change`] parses, for a change that results in a held key; the request's path names that key.
pub fn write_key_change(new: &Reserve, change: &KeyChange) -> RawDocumentBuf {
    let mut out = RawDocumentBuf::new();
    append(&mut out, cstr!("value"), &new.value);
    if let Some(ttl_at) = new.ttl_at {
        out.append(cstr!("ttl_at"), ttl_at.to_string());
    }
    match change {
        KeyChange::Prepare(_) | KeyChange::Rollback(_) => {}
        KeyChange::Reprepare { old: None, .. } => out.append(cstr!("expected"), "held"),
        KeyChange::Reprepare { old: Some(old), .. } => append(&mut out, cstr!("old_value"), old),
        KeyChange::Move { old, .. } => {
            out.append(cstr!("old_key"), &*old.key);
            old.value.iter().for_each(|value| append(&mut out, cstr!("old_value"), value));
        }
    }
    out
}

/// Parses the rollback of a key: `{}` for any value, or `{"value"}`.
///
/// # Errors
/// The first error, with its path.
pub fn read_key_rollback(name: &str, key: &str, bytes: &[u8], encoding: Encoding) -> Result<KeyChange, Invalid> {
    let document = encoding.document(bytes)?;
    let mut old = Release::new(name, key);
    fields(&document, "", |field, path, it| match field {
        "value" => {
            old.value = Some(read_value(path, it, encoding)?);
            Ok(())
        }
        _ => Err(unknown(path)),
    })?;
    let change = KeyChange::Rollback(old);
    change.validate()?;
    Ok(change)
}

/// Writes the body that [`read_key_rollback`] parses.
pub fn write_key_rollback(value: Option<&KeyValue>) -> RawDocumentBuf {
    let mut out = RawDocumentBuf::new();
    value.iter().for_each(|value| append(&mut out, cstr!("value"), value));
    out
}

/// Writes whether a change took effect.
pub fn write_key_changed(changed: bool) -> RawDocumentBuf {
    let mut out = RawDocumentBuf::new();
    out.append(cstr!("changed"), changed);
    out
}

/// Parses whether a change took effect.
///
/// # Errors
/// A sentence, if the answer has another form.
pub fn read_key_changed(bytes: &[u8]) -> Result<bool, String> {
    let document = RawDocument::from_bytes(bytes).map_err(|error| error.to_string())?;
    document.get_bool("changed").map_err(|error| error.to_string())
}

/// Writes a held key.
pub fn write_found_key(name: &str, key: &str, found: &FoundKey) -> RawDocumentBuf {
    let mut out = RawDocumentBuf::new();
    out.append(cstr!("name"), name);
    out.append(cstr!("key"), key);
    append(&mut out, cstr!("value"), &found.holder.value);
    if let Some(ttl_at) = found.holder.ttl_at {
        out.append(cstr!("ttl_at"), ttl_at.to_string());
    }
    out.append(cstr!("expired"), found.expired);
    out
}

/// Parses a held key, as BSON.
///
/// # Errors
/// A sentence, if the answer has another form.
pub fn read_found_key(bytes: &[u8]) -> Result<FoundKey, String> {
    let document = RawDocument::from_bytes(bytes).map_err(|error| error.to_string())?;
    let (mut value, mut ttl_at, mut expired) = (None, None, None);
    let read = fields(document, "", |field, path, it| {
        match field {
            "value" => value = Some(read_value(path, it, Encoding::Bson)?),
            "ttl_at" => ttl_at = time(path, it)?,
            "expired" => expired = Some(boolean(path, it)?),
            _ => {}
        }
        Ok(())
    });
    read.map_err(|error| error.to_string())?;
    let (Some(value), Some(expired)) = (value, expired) else {
        return Err("a key without value or expired".to_owned());
    };
    Ok(FoundKey { holder: KeyHolder { value, ttl_at }, expired })
}

/// Writes a page of keys: `{"keys": [{"name", "key", "value", "ttl_at"?, "expired"}], "next"}`, with the last key as `next`.
pub fn write_key_page(name: &str, page: &KeyPage) -> RawDocumentBuf {
    let mut keys = RawArrayBuf::new();
    for ListedKey { key, holder } in &page.keys {
        keys.push(write_found_key(name, key, &FoundKey { holder: holder.clone(), expired: false }));
    }
    let mut out = RawDocumentBuf::new();
    out.append(cstr!("keys"), keys);
    match page.keys.last() {
        Some(last) => out.append(cstr!("next"), &*last.key),
        None => out.append(cstr!("next"), RawBsonRef::Null),
    }
    out
}

/// Parses a page of keys, as BSON.
///
/// # Errors
/// A sentence, if the answer has another form.
pub fn read_key_page(bytes: &[u8]) -> Result<KeyPage, String> {
    let document = RawDocument::from_bytes(bytes).map_err(|error| error.to_string())?;
    let mut page = KeyPage::default();
    for found in document.get_array("keys").map_err(|error| error.to_string())? {
        let found = found.map_err(|error| error.to_string())?.as_document().ok_or("a key that is not a document")?;
        let key = found.get_str("key").map_err(|error| error.to_string())?.into();
        page.keys.push(ListedKey { key, holder: read_found_key(found.as_bytes())?.holder });
    }
    Ok(page)
}

/// Appends the value as a field of this name.
fn append(out: &mut RawDocumentBuf, name: &CStr, value: &KeyValue) {
    out.append(name, value.data().as_raw().get("value").ok().flatten().unwrap_or(RawBsonRef::Null));
}

fn read_value(path: &str, value: RawBsonRef<'_>, encoding: Encoding) -> Result<KeyValue, Invalid> {
    let mut holding = RawDocumentBuf::new();
    holding.append(cstr!("value"), value);
    let read = encoding.record(path, RawBsonRef::Document(&holding));
    let read = read.map_err(|fault| Invalid { code: Code::InvalidKeys, ..fault })?;
    Ok(KeyValue::from_data(Data::of_raw(&read)))
}

/// Parses an RFC 3339 time, or null for no expiry.
fn time(path: &str, value: RawBsonRef<'_>) -> Result<Option<Timestamp>, Invalid> {
    if value == RawBsonRef::Null {
        return Ok(None);
    }
    let invalid = |message: String| Invalid::new(Code::InvalidKeys, path, message);
    let text = value.as_str().ok_or_else(|| invalid("is not a string such as 2026-03-01T12:00:00.123Z".to_owned()))?;
    Timestamp::parse(text).map(Some).map_err(invalid)
}

fn is_held(path: &str, value: RawBsonRef<'_>) -> Result<bool, Invalid> {
    match value.as_str() {
        Some("held") => Ok(true),
        Some("free") => Ok(false),
        _ => Err(body(path, "is neither \"free\" nor \"held\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Result<KeyChange, Invalid> {
        read_key_change("user", "eva", text.as_bytes(), Encoding::Json)
    }

    fn value(text: &str) -> KeyValue {
        serde_json::from_str(text).expect("a value")
    }

    #[test]
    fn a_key_is_held_up_to_the_end_of_the_year_9999_and_by_offsets_that_there_are() {
        let last = json(r#"{"value":1,"ttl_at":"9999-12-31T23:59:59Z"}"#).expect("it is a time");
        let KeyChange::Prepare(new) = last else { panic!("{last:?}") };
        assert_eq!(new.ttl_at.expect("it ends").to_string(), "9999-12-31T23:59:59.000Z");
        let far = json(r#"{"value":1,"ttl_at":"2030-01-01T00:00:00+25:00"}"#).expect_err("no such offset");
        assert_eq!((far.code, &*far.path), (Code::InvalidKeys, "ttl_at"));
    }

    #[test]
    fn every_form_of_a_change_is_read_and_written() {
        let new = || Reserve::new("user", "eva", value(r#"{"b":1,"a":2.5}"#));
        let old = Release::new("user", "eve").of_value(value("7"));
        for (text, due) in [
            (r#"{"value":{"b":1,"a":2.5}}"#, KeyChange::Prepare(new())),
            (r#"{"value":{"b":1,"a":2.5},"expected":"free","ttl_at":null}"#, KeyChange::Prepare(new())),
            (
                r#"{"value":{"b":1,"a":2.5},"ttl_at":"1970-01-01T00:00:00.007Z"}"#,
                KeyChange::Prepare(new().until(Timestamp::from_millis(7))),
            ),
            (r#"{"value":{"b":1,"a":2.5},"expected":"held"}"#, KeyChange::Reprepare { old: None, new: new() }),
            (
                r#"{"value":{"b":1,"a":2.5},"old_value":null}"#,
                KeyChange::Reprepare { old: Some(value("null")), new: new() },
            ),
            (r#"{"value":{"b":1,"a":2.5},"old_key":"eve","old_value":7}"#, KeyChange::Move { old, new: new() }),
        ] {
            assert_eq!(json(text).as_ref(), Ok(&due), "{text}");
            let new = due.made().reserve.remove(0);
            let written = write_key_change(&new, &due);
            assert_eq!(read_key_change("user", "eva", written.as_bytes(), Encoding::Bson), Ok(due), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, path) in [
            ("{}", "value"),
            (r#"{"value":1,"ttl_at":7}"#, "ttl_at"),
            (r#"{"value":1,"ttl_at":"soon"}"#, "ttl_at"),
            (r#"{"value":1,"expected":"taken"}"#, "expected"),
            (r#"{"value":1,"expected":"free","old_value":1}"#, "expected"),
            (r#"{"value":1,"expected":"held","old_key":"eve","old_value":1}"#, "expected"),
            (r#"{"value":1,"old_key":"eve"}"#, "old_value"),
            (r#"{"value":1,"old_key":"eva","old_value":1}"#, "new_key"),
            (r#"{"value":1,"ttl":1}"#, "ttl"),
        ] {
            assert_eq!(json(text).expect_err(text).path, path, "{text}");
        }
        assert_eq!(read_key_rollback("user", "", b"{}", Encoding::Json).expect_err("no key").path, "key");
        assert_eq!(read_key_rollback("user", "eva", b"[]", Encoding::Json).expect_err("none").code, Code::InvalidBody);
    }

    #[test]
    fn a_found_key_and_the_types_of_its_value_come_back() {
        let dated = br#"{"value":{"at":{"$date":"1970-01-01T00:00:00.005Z"}}}"#;
        let KeyChange::Rollback(old) =
            read_key_rollback("user", "eva", dated, Encoding::ExtendedJson).expect("a rollback")
        else {
            panic!("no rollback")
        };
        assert_ne!(old.value, Some(value(r#"{"at":{"$date":"1970-01-01T00:00:00.005Z"}}"#)));
        let value = old.value.expect("named");
        let again = write_key_rollback(Some(&value));
        let same = KeyChange::Rollback(Release::new("user", "eva").of_value(value.clone()));
        assert_eq!(read_key_rollback("user", "eva", again.as_bytes(), Encoding::Bson), Ok(same));
        for ttl_at in [None, Some(Timestamp::from_millis(9))] {
            let found = FoundKey { holder: KeyHolder { value: value.clone(), ttl_at }, expired: ttl_at.is_some() };
            assert_eq!(read_found_key(write_found_key("user", "eva", &found).as_bytes()), Ok(found));
        }
        assert_eq!(read_key_changed(write_key_changed(true).as_bytes()), Ok(true));
    }
}
