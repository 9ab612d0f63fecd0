//! Parses requests. Every refusal has the path of the value. Rules that need the whole request but no store are checked by `validate`.

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, RawBsonRef};

use super::Encoding;
use crate::condition::read_condition as condition_at;
use crate::fields::{body, boolean, elements, fields, integer, nested, text, unknown};
use crate::order::Direction;
use crate::{
    Aggregation, Code, Collection, Condition, Cursor, Every, Expected, Figure, GroupQuery, Index, IndexForm, Invalid,
    Projection, RecordChange, RecordQuery, SortBy, limits,
};

/// Parses the changes of a batch: `{"changes":[{"insert":{"collection","document"}}, {"replace":{…,"expected"}},
/// {"delete":{"collection","id","expected"}}, {"set":{"collection","id","fields","unset","expected"}},
/// {"check":{"collection","id","expected"}}]}`.
///
/// # Errors
/// `not_json`, `invalid_integer`, `invalid_body`, `invalid_record`, `invalid_condition`.
pub fn read_changes(bytes: &[u8], encoding: Encoding) -> Result<Vec<RecordChange>, Invalid> {
    let mut changes = None;
    fields(&encoding.document(bytes)?, "", |name, path, value| {
        let "changes" = name else { return Err(unknown(path)) };
        let mut read = Vec::new();
        elements(path, value, |path, value| {
            if read.len() == limits::RECORD_CHANGES_MAX {
                let message = format!("are more than {}; send several batches", limits::RECORD_CHANGES_MAX);
                return Err(Invalid::new(Code::InvalidRecord, "changes", message));
            }
            read.push(read_change(encoding, path, nested(path, value)?)?);
            Ok(())
        })?;
        changes = Some(read);
        Ok(())
    })?;
    changes.ok_or_else(|| missing("", "changes"))
}

/// Parses a body that is one document.
///
/// # Errors
/// `not_json`, `invalid_integer`, `invalid_record`.
pub fn read_document(bytes: &[u8], encoding: Encoding) -> Result<RawDocumentBuf, Invalid> {
    let read = encoding.document(bytes).and_then(|read| encoding.record("document", RawBsonRef::Document(&read)));
    read.map_err(|error| match error.code {
        Code::InvalidBody => Invalid { code: Code::InvalidRecord, ..error },
        _ => error,
    })
}

fn read_change(encoding: Encoding, at: &str, document: &RawDocument) -> Result<RecordChange, Invalid> {
    let mut change = None;
    fields(document, at, |kind, path, value| {
        if change.is_some() {
            return Err(body(at, "holds several changes; give each its own object"));
        }
        change = Some(read_kind(encoding, kind, path, nested(path, value)?)?);
        Ok(())
    })?;
    change.ok_or_else(|| body(at, "is not a change; give insert, replace, set, delete or check"))
}

fn read_kind(encoding: Encoding, kind: &str, at: &str, document: &RawDocument) -> Result<RecordChange, Invalid> {
    let (inserts, by_id) = match kind {
        "insert" => (true, false),
        "replace" => (false, false),
        "delete" | "check" | "set" => (false, true),
        _ => return Err(body(at, "is not a change; give insert, replace, set, delete or check")),
    };
    let sets = kind == "set";
    let (mut set, mut unset) = (Vec::new(), Vec::new());
    let (mut collection, mut content, mut id, mut expected) = (None, None, None, None);
    fields(document, at, |name, path, value| {
        match name {
            "collection" => collection = Some(text(path, value)?.to_string()),
            "document" if !by_id => content = Some(encoding.record(path, value)?),
            "id" if by_id => id = Some(encoding.value(path, value)?),
            "fields" if sets => {
                fields(nested(path, value)?, path, |name, path, value| {
                    set.push((name.to_owned(), encoding.value(path, value)?));
                    Ok(())
                })?;
            }
            "unset" if sets => {
                elements(path, value, |path, value| {
                    unset.push(text(path, value)?.to_string());
                    Ok(())
                })?;
            }
            "expected" if !inserts => expected = Some(read_expected(encoding, path, value)?),
            _ => return Err(unknown(path)),
        }
        Ok(())
    })?;
    let collection = collection.ok_or_else(|| missing(at, "collection"))?;
    if inserts {
        return Ok(RecordChange::insert(collection, content.ok_or_else(|| missing(at, "document"))?));
    }
    let expected = || expected.ok_or_else(|| missing(at, "expected"));
    if by_id {
        let (id, expected) = (id.ok_or_else(|| missing(at, "id"))?, expected()?);
        return Ok(match kind {
            "check" => RecordChange::check(collection, id, expected),
            "set" => RecordChange::Set { collection, id, fields: set, unset, expected },
            _ => RecordChange::delete_if(collection, id, expected),
        });
    }
    Ok(RecordChange::replace_if(collection, content.ok_or_else(|| missing(at, "document"))?, expected()?))
}

fn read_expected(encoding: Encoding, at: &str, value: RawBsonRef<'_>) -> Result<Expected, Invalid> {
    let wrong = || body(at, "is not \"present\", \"absent\", {\"revision\"}, {\"matching\"} or {\"absent_or\"}");
    match value {
        RawBsonRef::String("present") => return Ok(Expected::Present),
        RawBsonRef::String("absent") => return Ok(Expected::Absent),
        RawBsonRef::Document(_) => {}
        _ => return Err(wrong()),
    }
    let mut expected = None;
    fields(nested(at, value)?, at, |name, path, value| {
        if expected.is_some() {
            return Err(wrong());
        }
        expected = Some(match name {
            "revision" => Expected::Revision(number(path, value)?),
            "matching" => Expected::Matching(condition(encoding, path, value)?),
            "absent_or" => Expected::AbsentOr(condition(encoding, path, value)?),
            _ => return Err(unknown(path)),
        });
        Ok(())
    })?;
    expected.ok_or_else(wrong)
}

/// Parses a query: `{"condition","projection","sort","limit","after"}`, each of which is optional.
///
/// # Errors
/// As [`read_changes`]; `invalid_query`.
pub fn read_query(collection: &str, bytes: &[u8], encoding: Encoding) -> Result<RecordQuery, Invalid> {
    let mut query = RecordQuery::new(collection);
    fields(&encoding.document(bytes)?, "", |name, path, value| {
        match name {
            "condition" => query.condition = condition(encoding, path, value)?,
            "projection" => query.projection = read_projection(path, nested(path, value)?)?,
            "sort" => query.sort = read_sort(path, value)?,
            // A number that does not fit exceeds every limit, which the query's own validation reports.
            "limit" => query.limit = usize::try_from(number(path, value)?).unwrap_or(usize::MAX),
            "after" => query.after = Some(Cursor::new(text(path, value)?.to_string())),
            _ => return Err(unknown(path)),
        }
        Ok(())
    })?;
    Ok(query)
}

/// Parses `[{"field","direction"}]`.
pub(crate) fn read_sort(at: &str, value: RawBsonRef<'_>) -> Result<Vec<SortBy>, Invalid> {
    let mut sort = Vec::new();
    elements(at, value, |path, by| {
        let (path, direction) = read_field(path, nested(path, by)?)?;
        sort.push(SortBy { path, direction: direction.unwrap_or(Direction::Ascending) });
        Ok(())
    })?;
    Ok(sort)
}

/// Parses `{"include":[…]}` or `{"exclude":[…]}`.
pub(crate) fn read_projection(at: &str, document: &RawDocument) -> Result<Projection, Invalid> {
    let mut projection = Projection::Whole;
    fields(document, at, |name, path, value| {
        let make = match name {
            "include" => Projection::Only,
            "exclude" => Projection::Without,
            _ => return Err(unknown(path)),
        };
        let mut paths = Vec::new();
        elements(path, value, |path, value| {
            paths.push(text(path, value)?.to_string());
            Ok(())
        })?;
        if !paths.is_empty() {
            if projection != Projection::Whole {
                return Err(Invalid::new(
                    Code::InvalidQuery,
                    at,
                    "both includes and excludes fields; do one or the other",
                ));
            }
            projection = make(paths);
        }
        Ok(())
    })?;
    Ok(projection)
}

/// Parses a count: `{"condition"}`, which is optional.
///
/// # Errors
/// As [`read_changes`].
pub fn read_condition(bytes: &[u8], encoding: Encoding) -> Result<Condition, Invalid> {
    let mut read = Condition::All;
    fields(&encoding.document(bytes)?, "", |name, path, value| {
        let "condition" = name else { return Err(unknown(path)) };
        read = condition(encoding, path, value)?;
        Ok(())
    })?;
    Ok(read)
}

/// Parses the id of a record: `{"id"}`.
///
/// # Errors
/// As [`read_changes`].
pub fn read_id(bytes: &[u8], encoding: Encoding) -> Result<Bson, Invalid> {
    let mut id = None;
    fields(&encoding.document(bytes)?, "", |name, path, value| {
        let "id" = name else { return Err(unknown(path)) };
        id = Some(encoding.value(path, value)?);
        Ok(())
    })?;
    id.ok_or_else(|| missing("", "id"))
}

/// Parses a declaration:
/// `{"indexes":[{"name","fields":[{"field","direction"}],"unique","hashed","text","sparse","partial","expires_after_seconds"}],"feed"}`.
///
/// # Errors
/// As [`read_changes`].
pub fn read_collection(name: &str, bytes: &[u8], encoding: Encoding) -> Result<Collection, Invalid> {
    let mut collection = Collection::new(name);
    fields(&encoding.document(bytes)?, "", |name, path, value| {
        match name {
            "indexes" => {}
            "feed" => {
                collection.feed = boolean(path, value)?;
                return Ok(());
            }
            _ => return Err(unknown(path)),
        }
        elements(path, value, |path, value| {
            collection.indexes.push(read_index(encoding, path, nested(path, value)?)?);
            Ok(())
        })
    })?;
    Ok(collection)
}

/// Parses a request for groups: `{"by","every","condition","figures":{NAME:{"sum"|"avg"|"min"|"max":PATH}},"limit","after"}`.
///
/// # Errors
/// As [`read_changes`], and `invalid_query`.
pub fn read_group(collection: &str, bytes: &[u8], encoding: Encoding) -> Result<GroupQuery, Invalid> {
    let mut query = GroupQuery::new(collection);
    fields(&encoding.document(bytes)?, "", |name, path, value| {
        match name {
            "condition" => query.condition = condition(encoding, path, value)?,
            "by" => query.by = Some(text(path, value)?.to_string()),
            "every" => {
                let unit = Every::from_name(&text(path, value)?);
                query.every = Some(unit.ok_or_else(|| body(path, "is neither \"hour\" nor \"day\""))?);
            }
            "figures" => fields(nested(path, value)?, path, |name, path, value| {
                query.figures.push(read_figure(name, path, nested(path, value)?)?);
                Ok(())
            })?,
            "limit" => query.limit = usize::try_from(number(path, value)?).unwrap_or(usize::MAX),
            "after" => query.after = Some(Cursor::new(text(path, value)?.to_string())),
            _ => return Err(unknown(path)),
        }
        Ok(())
    })?;
    Ok(query)
}

fn read_figure(name: &str, at: &str, document: &RawDocument) -> Result<Figure, Invalid> {
    let wrong = || body(at, "is not one of {\"sum\": PATH}, {\"avg\": PATH}, {\"min\": PATH} and {\"max\": PATH}");
    let mut figure = None;
    fields(document, at, |what, path, value| {
        let what = Aggregation::from_name(what).filter(|_| figure.is_none()).ok_or_else(wrong)?;
        figure = Some(Figure { name: name.to_owned(), what, path: text(path, value)?.to_string() });
        Ok(())
    })?;
    figure.ok_or_else(wrong)
}

/// Parses an index; without a name it gets the one that MongoDB would give it.
pub(super) fn read_index(encoding: Encoding, at: &str, document: &RawDocument) -> Result<Index, Invalid> {
    let (mut form, mut name, mut has_fields, mut directed) = (IndexForm::default(), None, false, None);
    fields(document, at, |field, path, value| {
        match field {
            "name" => name = Some(text(path, value)?.to_string()),
            "fields" => {
                has_fields = true;
                elements(path, value, |path, value| {
                    let (field, direction) = read_field(path, nested(path, value)?)?;
                    if direction.is_some() && directed.is_none() {
                        directed = Some(format!("{path}.direction"));
                    }
                    form.fields.push((field, direction.unwrap_or(Direction::Ascending)));
                    Ok(())
                })?;
            }
            "unique" => form.unique = boolean(path, value)?,
            "hashed" => form.hashed = boolean(path, value)?,
            "text" => form.text = boolean(path, value)?,
            "sparse" => form.sparse = boolean(path, value)?,
            "language" => form.language = Some(text(path, value)?.to_string()),
            "language_override" => form.language_override = Some(text(path, value)?.to_string()),
            "partial" => form.partial = Some(condition(encoding, path, value)?),
            "expires_after_seconds" => {
                let seconds = u32::try_from(number(path, value)?);
                form.expires_after_seconds = Some(seconds.map_err(|_| body(path, "is more than 4294967295"))?);
            }
            _ => return Err(unknown(path)),
        }
        Ok(())
    })?;
    if !has_fields {
        return Err(missing(at, "fields"));
    }
    if let Some(path) = directed.filter(|_| form.text) {
        let message = "is of a text index, which has no order of its fields; leave the direction out";
        return Err(Invalid::new(Code::InvalidCollection, path, message));
    }
    form.name = name.unwrap_or_else(|| usual_name(&form));
    Index::try_from(form).map_err(|message| Invalid::new(Code::InvalidCollection, at, message))
}

/// Returns the name that MongoDB would give an index.
fn usual_name(form: &IndexForm) -> String {
    match form.fields.as_slice() {
        [(path, _)] if form.hashed => Index::hashed(path).name,
        fields if form.text => Index::text(fields.iter().map(|(path, _)| path.as_str())).name,
        fields => Index::ordered(fields.iter().map(|(path, direction)| (path.as_str(), *direction))).name,
    }
}

fn read_field(at: &str, document: &RawDocument) -> Result<(String, Option<Direction>), Invalid> {
    let (mut name, mut direction) = (None, None);
    fields(document, at, |field, path, value| {
        match field {
            "field" => name = Some(text(path, value)?.to_string()),
            "direction" => {
                direction = match value.as_str() {
                    Some("ASC") => Some(Direction::Ascending),
                    Some("DESC") => Some(Direction::Descending),
                    _ => return Err(body(path, "is neither \"ASC\" nor \"DESC\"")),
                }
            }
            _ => return Err(unknown(path)),
        }
        Ok(())
    })?;
    Ok((name.ok_or_else(|| missing(at, "field"))?, direction))
}

pub(crate) fn condition(encoding: Encoding, path: &str, value: RawBsonRef<'_>) -> Result<Condition, Invalid> {
    condition_at(nested(path, value)?, path, &|path, value| encoding.value(path, value))
}

pub(crate) fn number(path: &str, value: RawBsonRef<'_>) -> Result<u64, Invalid> {
    let number = integer(value).and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| body(path, "is not a whole number from 0"))
}

fn missing(at: &str, field: &str) -> Invalid {
    body(&if at.is_empty() { field.to_owned() } else { format!("{at}.{field}") }, "is missing")
}
