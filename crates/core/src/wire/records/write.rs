//! Writes requests and answers as BSON.

use bson::raw::{BindRawBsonRef, CStr, RawArrayBuf, RawDocumentBuf, cstr};
use bson::{Bson, RawBson};

use crate::order::Direction;
use crate::{
    ChangeKind, ChangeNumber, Code, Collection, Condition, Expected, Explained, Figure, Group, GroupPage, GroupQuery,
    Index, Invalid, Projection, Record, RecordChange, RecordPage, RecordQuery, RecordedChange, Revision, SortBy,
    TextLanguage,
};

/// Writes the body of a batch.
///
/// # Errors
/// `invalid_record` or `invalid_condition`, for values that BSON does not allow.
pub fn write_changes(changes: &[RecordChange]) -> Result<RawDocumentBuf, Invalid> {
    let mut all = RawArrayBuf::new();
    for change in changes {
        let mut content = RawDocumentBuf::new();
        content.append(cstr!("collection"), change.collection());
        let mut kind = RawDocumentBuf::new();
        match change {
            RecordChange::Insert { document, .. } => {
                content.append(cstr!("document"), document);
                kind.append(cstr!("insert"), content);
            }
            RecordChange::Replace { document, expected, .. } => {
                content.append(cstr!("document"), document);
                content.append(cstr!("expected"), write_expected(expected)?);
                kind.append(cstr!("replace"), content);
            }
            RecordChange::Delete { id, expected, .. } => {
                content.append(cstr!("id"), value(id)?);
                content.append(cstr!("expected"), write_expected(expected)?);
                kind.append(cstr!("delete"), content);
            }
            RecordChange::Set { id, fields, unset, expected, .. } => {
                content.append(cstr!("id"), value(id)?);
                let mut set = RawDocumentBuf::new();
                for (path, field) in fields {
                    let path = bson::raw::CString::try_from(path.as_str())
                        .map_err(|error| Invalid::new(Code::InvalidRecord, "fields", error.to_string()))?;
                    set.append(path, value(field)?);
                }
                content.append(cstr!("fields"), set);
                content.append(cstr!("unset"), array(unset.iter().map(String::as_str)));
                content.append(cstr!("expected"), write_expected(expected)?);
                kind.append(cstr!("set"), content);
            }
            RecordChange::Check { id, expected, .. } => {
                content.append(cstr!("id"), value(id)?);
                content.append(cstr!("expected"), write_expected(expected)?);
                kind.append(cstr!("check"), content);
            }
        }
        all.push(kind);
    }
    Ok(only(cstr!("changes"), all))
}

fn write_expected(expected: &Expected) -> Result<RawBson, Invalid> {
    Ok(RawBson::Document(match expected {
        Expected::Present => return Ok(RawBson::String("present".to_owned())),
        Expected::Absent => return Ok(RawBson::String("absent".to_owned())),
        Expected::Revision(revision) => only(cstr!("revision"), number(*revision)),
        Expected::Matching(condition) => only(cstr!("matching"), condition.to_bson()?),
        Expected::AbsentOr(condition) => only(cstr!("absent_or"), condition.to_bson()?),
    }))
}

/// Writes the body of a query.
///
/// # Errors
/// As [`write_changes`].
pub fn write_query(query: &RecordQuery) -> Result<RawDocumentBuf, Invalid> {
    let mut body = only(cstr!("condition"), query.condition.to_bson()?);
    if let Some(projection) = write_projection(&query.projection) {
        body.append(cstr!("projection"), projection);
    }
    body.append(cstr!("sort"), write_sort(&query.sort));
    body.append(cstr!("limit"), number(query.limit as u64));
    if let Some(after) = &query.after {
        body.append(cstr!("after"), after.as_str());
    }
    Ok(body)
}

/// Writes a projection; `None` for all fields.
pub(crate) fn write_projection(projection: &Projection) -> Option<RawDocumentBuf> {
    // Only the id, because an empty list would mean all fields.
    let id = ["_id".to_owned()];
    let (how, paths) = match projection {
        Projection::Whole => return None,
        Projection::Only(paths) if paths.is_empty() => (cstr!("include"), &id[..]),
        Projection::Only(paths) => (cstr!("include"), &paths[..]),
        Projection::Without(paths) => (cstr!("exclude"), &paths[..]),
    };
    Some(only(how, array(paths.iter().map(String::as_str))))
}

/// Writes a sort order.
pub(crate) fn write_sort(sort: &[SortBy]) -> RawArrayBuf {
    array(sort.iter().map(|by| write_field(&by.path, by.direction)))
}

/// Writes the body of a request for groups.
///
/// # Errors
/// As [`write_changes`].
pub fn write_group(query: &GroupQuery) -> Result<RawDocumentBuf, Invalid> {
    let mut body = only(cstr!("condition"), query.condition.to_bson()?);
    if let Some(by) = &query.by {
        body.append(cstr!("by"), by.as_str());
    }
    if let Some(unit) = query.every {
        body.append(cstr!("every"), unit.name());
    }
    let mut figures = RawDocumentBuf::new();
    for Figure { name, what, path } in &query.figures {
        let mut figure = RawDocumentBuf::new();
        figure.append(named(what.name())?, path.as_str());
        figures.append(named(name)?, figure);
    }
    body.append(cstr!("figures"), figures);
    body.append(cstr!("limit"), number(query.limit as u64));
    if let Some(after) = &query.after {
        body.append(cstr!("after"), after.as_str());
    }
    Ok(body)
}

/// Writes a group as in an answer.
///
/// # Errors
/// As [`write_changes`].
pub fn group(query: &GroupQuery, group: &Group) -> Result<RawDocumentBuf, Invalid> {
    let mut shown = only(cstr!("key"), value(&group.key)?);
    shown.append(cstr!("count"), number(group.count));
    let mut figures = RawDocumentBuf::new();
    for (figure, computed) in query.figures.iter().zip(&group.figures) {
        figures.append(named(&figure.name)?, value(computed)?);
    }
    shown.append(cstr!("figures"), figures);
    Ok(shown)
}

/// Writes a page of groups.
///
/// # Errors
/// As [`write_changes`].
pub fn group_page(query: &GroupQuery, page: &GroupPage) -> Result<RawDocumentBuf, Invalid> {
    let groups = page.groups.iter().map(|one| group(query, one)).collect::<Result<Vec<_>, _>>()?;
    let mut shown = only(cstr!("groups"), array(groups));
    shown.append(cstr!("next"), page.next.as_ref().map_or(RawBson::Null, |next| text(next.as_str())));
    Ok(shown)
}

/// Writes the body of a count.
///
/// # Errors
/// As [`write_changes`].
pub fn write_condition(condition: &Condition) -> Result<RawDocumentBuf, Invalid> {
    Ok(only(cstr!("condition"), condition.to_bson()?))
}

/// Writes the body that names a record.
///
/// # Errors
/// As [`write_changes`].
pub fn write_id(id: &Bson) -> Result<RawDocumentBuf, Invalid> {
    Ok(only(cstr!("id"), value(id)?))
}

/// Writes the body of a declaration.
///
/// # Errors
/// As [`write_changes`].
pub fn write_collection(collection: &Collection) -> Result<RawDocumentBuf, Invalid> {
    let mut body = only(cstr!("indexes"), indexes(collection)?);
    if collection.feed {
        body.append(cstr!("feed"), true);
    }
    Ok(body)
}

/// Writes a record as in an answer.
pub fn record(record: &Record) -> RawDocumentBuf {
    let mut shown = only(cstr!("revision"), number(record.revision));
    shown.append(cstr!("document"), &record.document);
    shown
}

/// Writes a page of records.
pub fn page(page: &RecordPage) -> RawDocumentBuf {
    let mut shown = only(cstr!("records"), array(page.records.iter().map(record)));
    shown.append(cstr!("next"), page.next.as_ref().map_or(RawBson::Null, |next| text(next.as_str())));
    shown
}

/// Writes the answer that explains how a query finds its records.
pub fn explained(explained: &Explained) -> RawDocumentBuf {
    let index = explained.index.clone().map_or(RawBson::Null, RawBson::String);
    let mut answer = only(cstr!("index"), index);
    answer.append(cstr!("entries_examined"), number(explained.entries_examined));
    answer.append(cstr!("documents_examined"), number(explained.documents_examined));
    answer.append(cstr!("found"), number(explained.found));
    answer.append(cstr!("sorted"), explained.sorted);
    answer
}

/// Writes a number of records.
pub fn count(count: u64) -> RawDocumentBuf {
    only(cstr!("count"), number(count))
}

/// Writes the numbers that a batch returns for its changes.
pub fn numbers(numbers: &[Revision]) -> RawDocumentBuf {
    only(cstr!("numbers"), array(numbers.iter().map(|one| number(*one))))
}

/// Writes a change as in an answer.
///
/// # Errors
/// As [`write_changes`].
pub fn change(change: &RecordedChange) -> Result<RawDocumentBuf, Invalid> {
    let what = match change.what {
        ChangeKind::Inserted => "inserted",
        ChangeKind::Replaced => "replaced",
        ChangeKind::Deleted => "deleted",
    };
    let mut shown = only(cstr!("number"), number(change.number));
    shown.append(cstr!("collection"), change.collection.as_str());
    shown.append(cstr!("id"), value(&change.id)?);
    shown.append(cstr!("what"), what);
    Ok(shown)
}

/// Writes a page of the changes after `after`.
///
/// # Errors
/// As [`write_changes`].
pub fn changes_page(changes: &[RecordedChange], after: ChangeNumber) -> Result<RawDocumentBuf, Invalid> {
    let shown = changes.iter().map(change).collect::<Result<Vec<_>, _>>()?;
    let mut page = only(cstr!("changes"), array(shown));
    page.append(cstr!("next"), number(changes.last().map_or(after, |last| last.number)));
    Ok(page)
}

/// Writes a declared collection.
///
/// # Errors
/// As [`write_changes`].
pub fn collection(collection: &Collection) -> Result<RawDocumentBuf, Invalid> {
    let mut shown = only(cstr!("name"), collection.name.as_str());
    shown.append(cstr!("indexes"), indexes(collection)?);
    if collection.feed {
        shown.append(cstr!("feed"), true);
    }
    Ok(shown)
}

/// Writes a page of declared collections.
///
/// # Errors
/// As [`write_changes`].
pub fn collections(collections: &[Collection]) -> Result<RawDocumentBuf, Invalid> {
    let shown = collections.iter().map(collection).collect::<Result<Vec<_>, _>>()?;
    let mut page = only(cstr!("collections"), array(shown));
    page.append(cstr!("next"), collections.last().map_or(RawBson::Null, |last| text(&last.name)));
    Ok(page)
}

fn indexes(collection: &Collection) -> Result<RawArrayBuf, Invalid> {
    Ok(array(collection.indexes.iter().map(index).collect::<Result<Vec<_>, _>>()?))
}

fn index(index: &Index) -> Result<RawDocumentBuf, Invalid> {
    let mut shown = only(cstr!("name"), index.name());
    let field = |(path, direction): &(&str, Direction)| match index {
        Index::Text(_) => only(cstr!("field"), *path),
        Index::Ordered(_) | Index::Hashed(_) => write_field(path, *direction),
    };
    shown.append(cstr!("fields"), array(index.fields().iter().map(field)));
    if index.is_unique() {
        shown.append(cstr!("unique"), true);
    }
    match index {
        Index::Ordered(_) => {}
        Index::Hashed(_) => shown.append(cstr!("hashed"), true),
        Index::Text(index) => {
            shown.append(cstr!("text"), true);
            if index.language != TextLanguage::None {
                shown.append(cstr!("language"), index.language.name());
            }
            if let Some(field) = &index.language_override {
                shown.append(cstr!("language_override"), field.as_str());
            }
        }
    }
    if index.is_sparse() {
        shown.append(cstr!("sparse"), true);
    }
    if let Some(partial) = index.partial() {
        shown.append(cstr!("partial"), partial.to_bson()?);
    }
    if let Some(seconds) = index.expires_after_seconds() {
        shown.append(cstr!("expires_after_seconds"), i64::from(seconds));
    }
    Ok(shown)
}

fn write_field(path: &str, direction: Direction) -> RawDocumentBuf {
    let mut field = only(cstr!("field"), path);
    let direction = match direction {
        Direction::Ascending => "ASC",
        Direction::Descending => "DESC",
    };
    field.append(cstr!("direction"), direction);
    field
}

/// Returns a document with one field, to which others may be added.
fn only(name: &CStr, value: impl BindRawBsonRef) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(name, value);
    document
}

fn array(values: impl IntoIterator<Item = impl BindRawBsonRef>) -> RawArrayBuf {
    values.into_iter().collect()
}

fn text(text: &str) -> RawBson {
    RawBson::String(text.to_owned())
}

/// Clamps a number to int64. No change has a greater number, so an expectation of one fails either way.
fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn named(name: &str) -> Result<bson::raw::CString, Invalid> {
    bson::raw::CString::try_from(name).map_err(|error| Invalid::new(Code::InvalidQuery, "figures", error.to_string()))
}

fn value(value: &Bson) -> Result<RawBson, Invalid> {
    let invalid =
        |error: bson::error::Error| Invalid::new(Code::InvalidRecord, "_id", format!("cannot be stored: {error}"));
    RawBson::try_from(value.clone()).map_err(invalid)
}
