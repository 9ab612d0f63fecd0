//! The rarely used fields of a commit: an append condition, prepare keys, and a wait.

use std::time::Duration;

use bson::raw::{CStr, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::time;
use crate::fields::{body, fields, integer, list, nested, text, unknown};
use crate::wire::commit::stage;
use crate::{AppendCondition, Code, Data, EventPattern, Invalid, KeyValue, Release, Reserve, Wait};

/// The field that holds a key's value in its document.
const VALUE: &CStr = cstr!("value");

/// Parses each document of an array.
pub(super) fn each<T>(
    path: &str,
    value: RawBsonRef<'_>,
    read: impl Fn(&str, &RawDocument) -> Result<T, Invalid>,
) -> Result<Vec<T>, Invalid> {
    let values = list(path, value)?.into_iter().enumerate();
    let read = values.map(|(place, value)| {
        let path = format!("{path}[{place}]");
        read(&path, nested(&path, value.map_err(|error| body(&path, error))?)?)
    });
    read.collect()
}

pub(super) fn condition(document: &RawDocument) -> Result<AppendCondition, Invalid> {
    let mut condition = AppendCondition::default();
    let read = fields(document, "append_condition", |key, path, value| {
        match key {
            "fail_if" => condition.fail_if = each(path, value, pattern)?,
            "after" => {
                let after = integer(value).ok_or_else(|| body(path, "is not a whole number from 0"))?;
                condition.after = Some(after as u64);
            }
            _ => return Err(unknown(path)),
        }
        Ok(())
    });
    read.map_err(|invalid| Invalid { code: Code::InvalidAppendCondition, ..invalid })?;
    Ok(condition)
}

fn pattern(path: &str, document: &RawDocument) -> Result<EventPattern, Invalid> {
    let mut pattern = EventPattern::default();
    fields(document, path, |key, path, value| {
        let texts = match key {
            "types" => &mut pattern.types,
            "tags" => &mut pattern.tags,
            _ => return Err(unknown(path)),
        };
        for value in list(path, value)? {
            texts.push(text(path, value.map_err(|error| body(path, error))?)?);
        }
        Ok(())
    })?;
    Ok(pattern)
}

pub(super) fn reserve(path: &str, document: &RawDocument) -> Result<Reserve, Invalid> {
    let (mut name, mut key, mut value, mut ttl_at) = (None, None, None, None);
    let read = fields(document, path, |field, path, given| {
        match field {
            "name" => name = Some(text(path, given)?),
            "key" => key = Some(text(path, given)?),
            "value" => value = Some(key_value(path, given)?),
            "ttl_at" => ttl_at = Some(time(path, given)?),
            _ => return Err(unknown(path)),
        }
        Ok(())
    });
    read.map_err(of_keys)?;
    match (name, key, value) {
        (Some(name), Some(key), Some(value)) => Ok(Reserve { name, key, value, ttl_at }),
        _ => Err(of_keys(body(path, "has not a name, a key and a value"))),
    }
}

pub(super) fn release(path: &str, document: &RawDocument) -> Result<Release, Invalid> {
    let (mut name, mut key, mut value) = (None, None, None);
    let read = fields(document, path, |field, path, given| {
        match field {
            "name" => name = Some(text(path, given)?),
            "key" => key = Some(text(path, given)?),
            "value" => value = Some(key_value(path, given)?),
            _ => return Err(unknown(path)),
        }
        Ok(())
    });
    read.map_err(of_keys)?;
    match (name, key) {
        (Some(name), Some(key)) => Ok(Release { name, key, value }),
        _ => Err(of_keys(body(path, "has not both a name and a key"))),
    }
}

pub(super) fn wait(document: &RawDocument) -> Result<Wait, Invalid> {
    let (mut until, mut at_most) = (None, None);
    fields(document, "wait", |key, path, value| {
        match key {
            "for" => until = Some(stage(&text(path, value)?, path)?),
            "timeout_ms" => {
                let millis = integer(value).ok_or_else(|| body(path, "is not a whole number from 0"))?;
                at_most = Some(Duration::from_millis(millis as u64));
            }
            _ => return Err(unknown(path)),
        }
        Ok(())
    })?;
    let until = until.ok_or_else(|| body("wait.for", "is missing"))?;
    Ok(Wait { until, at_most })
}

fn of_keys(invalid: Invalid) -> Invalid {
    Invalid { code: Code::InvalidKeys, ..invalid }
}

fn key_value(path: &str, value: RawBsonRef<'_>) -> Result<KeyValue, Invalid> {
    let mut document = RawDocumentBuf::new();
    document.append(VALUE, value);
    Data::from_bson(document.as_bytes()).map(KeyValue::from_data).map_err(|message| body(path, message))
}
