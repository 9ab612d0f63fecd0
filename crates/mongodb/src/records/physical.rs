//! Indexes as the server has them.
//!
//! Some declared indexes are not created, because the server cannot have them and answers are the same without. These are another index on
//! `_id`, and an index that differs from another only in its name. A partial condition is omitted if it merely limits what a non-unique
//! index contains.

use annals_core::bson::{Bson, Document, doc};
use annals_core::order::Direction;
use annals_core::{Condition, Index, RecordError, StoreError, Test};

use super::{filter, text};

/// Returns the index as the server creates it; `None` if it is not created.
pub(super) fn physical(index: &Index) -> Result<Option<Document>, RecordError> {
    let fields = index.fields();
    let key: Document = match index {
        Index::Text(index) => return Ok(Some(text::physical(index))),
        Index::Hashed(index) => doc! { &index.path: "hashed" },
        Index::Ordered(_) if matches!(fields.as_slice(), [("_id", _)]) => return Ok(None),
        Index::Ordered(_) => {
            let way = |way| if way == Direction::Descending { -1_i32 } else { 1 };
            fields.iter().map(|(path, direction)| ((*path).to_owned(), way(*direction).into())).collect()
        }
    };
    let mut due = doc! { "key": key, "name": index.name() };
    if index.is_unique() {
        due.insert("unique", true);
    }
    let partial = match index.partial() {
        None => None,
        Some(condition) if is_bound(condition) => filter::compile(condition),
        Some(_) if index.is_unique() => {
            let what = format!(
                "index {:?}: a unique index that is partial with tests other than EQ, GT, GTE, LT, LTE, IN, BETWEEN, EXISTS",
                index.name()
            );
            return Err(StoreError::NotSupported(what).into());
        }
        Some(_) => None,
    };
    match (index.is_sparse(), partial) {
        (true, None) => {
            due.insert("sparse", true);
        }
        (true, Some(partial)) => {
            // The server does not allow both options together.
            let any: Vec<Bson> = fields.iter().map(|(path, _)| doc! { *path: { "$exists": true } }.into()).collect();
            due.insert("partialFilterExpression", doc! { "$and": [partial, { "$or": any }] });
        }
        (false, Some(partial)) => {
            due.insert("partialFilterExpression", partial);
        }
        (false, None) => {}
    }
    if let Some(seconds) = index.expires_after_seconds().and_then(|seconds| i32::try_from(seconds).ok()) {
        due.insert("expireAfterSeconds", seconds);
    }
    Ok(Some(due))
}

/// Returns whether the server accepts the condition for a partial index.
fn is_bound(condition: &Condition) -> bool {
    match condition {
        Condition::All => true,
        Condition::And(children) | Condition::Or(children) => children.iter().all(is_bound),
        Condition::Field { test, .. } => matches!(
            test,
            Test::Eq(_)
                | Test::Gt(_)
                | Test::Gte(_)
                | Test::Lt(_)
                | Test::Lte(_)
                | Test::In(_)
                | Test::Between(..)
                | Test::Exists(true)
        ),
        _ => false,
    }
}

/// Returns whether two indexes are the same to the server, apart from their names and expiry.
pub(super) fn same(found: &Document, due: &Document) -> bool {
    if text::is_text(due) {
        return text::same(found, due);
    }
    let flag = |index: &Document, name| index.get_bool(name).unwrap_or(false);
    let kind = |value: &Bson| match value {
        Bson::Int32(n) => Some(Bson::Int64(i64::from(*n))),
        Bson::Int64(n) => Some(Bson::Int64(*n)),
        Bson::Double(n) => Some(Bson::Int64(*n as i64)),
        Bson::String(kind) if kind == "hashed" => Some(value.clone()),
        _ => None,
    };
    let keys = |index: &Document| -> Option<Vec<(String, Bson)>> {
        index.get_document("key").ok()?.iter().map(|(path, way)| Some((path.clone(), kind(way)?))).collect()
    };
    keys(found).is_some()
        && keys(found) == keys(due)
        && flag(found, "unique") == flag(due, "unique")
        && flag(found, "sparse") == flag(due, "sparse")
        && found.get("collation").is_none()
        && found.get_document("partialFilterExpression").ok() == due.get_document("partialFilterExpression").ok()
}

/// Returns the seconds after which an existing index or one to create deletes documents.
pub(super) fn expiry(index: &Document) -> Option<i64> {
    match index.get("expireAfterSeconds")? {
        Bson::Int32(seconds) => Some((*seconds).into()),
        Bson::Int64(seconds) => Some(*seconds),
        Bson::Double(seconds) => Some(*seconds as i64),
        _ => None,
    }
}
