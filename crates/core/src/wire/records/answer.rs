//! Parses answers, for the client. Fields that a newer server adds are ignored.

use bson::raw::{RawArray, RawDocument};
use bson::{Bson, RawBsonRef};

use super::Encoding;
use super::read::read_index;
use crate::{
    ChangeKind, Collection, Cursor, Explained, Group, GroupPage, Record, RecordPage, RecordedChange, Revision,
};

/// Parses a page of records.
///
/// # Errors
/// A sentence, if the answer has another form. The same holds for all answers.
pub fn read_page(bytes: &[u8]) -> Result<RecordPage, String> {
    let answer = document(bytes)?;
    let records = each(array(answer, "records")?, record_of)?;
    let next = match field(answer, "next")? {
        RawBsonRef::String(next) => Some(Cursor::new(next)),
        _ => None,
    };
    Ok(RecordPage { records, next })
}

/// Parses a record.
///
/// # Errors
/// As [`read_page`].
pub fn read_record(bytes: &[u8]) -> Result<Record, String> {
    record_of(document(bytes)?)
}

/// Parses a number of records.
///
/// # Errors
/// As [`read_page`].
pub fn read_count(bytes: &[u8]) -> Result<u64, String> {
    number(document(bytes)?, "count")
}

/// Parses how a query finds its records.
///
/// # Errors
/// As [`read_page`].
pub fn read_explained(bytes: &[u8]) -> Result<Explained, String> {
    let answer = document(bytes)?;
    let index = match field(answer, "index")? {
        RawBsonRef::String(name) => Some(name.to_owned()),
        _ => None,
    };
    Ok(Explained {
        index,
        entries_examined: number(answer, "entries_examined")?,
        documents_examined: number(answer, "documents_examined")?,
        found: number(answer, "found")?,
        sorted: field(answer, "sorted")?.as_bool().ok_or("sorted is neither true nor false")?,
    })
}

/// Parses a page of groups.
///
/// # Errors
/// As [`read_page`].
pub fn read_group_page(bytes: &[u8]) -> Result<GroupPage, String> {
    let answer = document(bytes)?;
    let value = |value: RawBsonRef<'_>| Bson::try_from(value).map_err(|error| error.to_string());
    let groups = each(array(answer, "groups")?, |group| {
        let figures = field(group, "figures")?.as_document().ok_or("figures has the wrong type")?;
        let figures = figures.into_iter().map(|figure| value(figure.map_err(|error| error.to_string())?.1));
        let figures = figures.collect::<Result<_, _>>()?;
        Ok(Group { key: value(field(group, "key")?)?, count: number(group, "count")?, figures })
    })?;
    let next = field(answer, "next")?.as_str().map(Cursor::new);
    Ok(GroupPage { groups, next })
}

/// Parses the numbers that a batch returns for its changes.
///
/// # Errors
/// As [`read_page`].
pub fn read_numbers(bytes: &[u8]) -> Result<Vec<Revision>, String> {
    let numbers = array(document(bytes)?, "numbers")?.into_iter();
    numbers.map(|value| as_number("numbers", value.map_err(|error| error.to_string())?)).collect()
}

/// Parses a page of changes.
///
/// # Errors
/// As [`read_page`].
pub fn read_changes_page(bytes: &[u8]) -> Result<Vec<RecordedChange>, String> {
    each(array(document(bytes)?, "changes")?, |change| {
        Ok(RecordedChange {
            number: number(change, "number")?,
            collection: text(change, "collection")?,
            id: Bson::try_from(field(change, "id")?).map_err(|error| error.to_string())?,
            what: match text(change, "what")?.as_str() {
                "inserted" => ChangeKind::Inserted,
                "replaced" => ChangeKind::Replaced,
                "deleted" => ChangeKind::Deleted,
                other => return Err(format!("a change that is {other:?}")),
            },
        })
    })
}

/// Parses declared collections.
///
/// # Errors
/// As [`read_page`].
pub fn read_collections(bytes: &[u8]) -> Result<Vec<Collection>, String> {
    each(array(document(bytes)?, "collections")?, |collection| {
        let index = |index: &RawDocument| read_index(Encoding::Bson, "", index).map_err(|error| error.to_string());
        let feed = collection.get("feed").ok().flatten().and_then(|feed| feed.as_bool()).unwrap_or(false);
        Ok(Collection { name: text(collection, "name")?, indexes: each(array(collection, "indexes")?, index)?, feed })
    })
}

fn record_of(answer: &RawDocument) -> Result<Record, String> {
    let document = field(answer, "document")?.as_document().ok_or("document has the wrong type")?.to_owned();
    Ok(Record { document, revision: number(answer, "revision")? })
}

fn document(bytes: &[u8]) -> Result<&RawDocument, String> {
    RawDocument::from_bytes(bytes).map_err(|error| error.to_string())
}

fn field<'a>(document: &'a RawDocument, name: &str) -> Result<RawBsonRef<'a>, String> {
    document.get(name).map_err(|error| error.to_string())?.ok_or_else(|| format!("no {name}"))
}

fn array<'a>(document: &'a RawDocument, name: &str) -> Result<&'a RawArray, String> {
    field(document, name)?.as_array().ok_or_else(|| format!("{name} is not a list"))
}

fn text(document: &RawDocument, name: &str) -> Result<String, String> {
    field(document, name)?.as_str().map(str::to_owned).ok_or_else(|| format!("{name} is not a string"))
}

fn number(document: &RawDocument, name: &str) -> Result<u64, String> {
    as_number(name, field(document, name)?)
}

fn as_number(name: &str, value: RawBsonRef<'_>) -> Result<u64, String> {
    crate::fields::integer(value)
        .and_then(|number| number.try_into().ok())
        .ok_or_else(|| format!("{name} is {value:?}"))
}

fn each<T>(array: &RawArray, read: impl Fn(&RawDocument) -> Result<T, String>) -> Result<Vec<T>, String> {
    let document = |value: Result<RawBsonRef<'_>, bson::error::Error>| {
        let value = value.map_err(|error| error.to_string())?;
        read(value.as_document().ok_or_else(|| format!("{value:?} in a list of documents"))?)
    };
    array.into_iter().map(document).collect()
}
