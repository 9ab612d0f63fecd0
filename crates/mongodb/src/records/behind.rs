//! Expresses "after a position in a sort order" as a filter, so that a page is not read from the beginning of all pages.
//!
//! The filter matches every record after the position, and a few others: in a sort order, an array counts by one of its elements; in a
//! filter, by any of them. The caller compares the results exactly.

use annals_core::bson::{Bson, Document, RawBson, doc};
use annals_core::order::{Direction, TypeOrder};

use super::filter::visible;

/// A field of the sort, and its value at the position.
pub(super) struct At<'a> {
    pub(super) path: &'a str,
    pub(super) direction: Direction,
    pub(super) value: &'a Bson,
}

/// Returns a filter for records after the position: by the fields, or equal in all fields and after it by `_id`.
pub(super) fn behind(fields: &[At<'_>], id: &Bson) -> Document {
    let mut either = Vec::new();
    let mut same: Vec<Document> = Vec::new();
    for field in fields {
        let mut all = same.clone();
        all.push(beyond(field));
        either.push(all_of(all));
        same.push(equal(field));
    }
    let operator = match fields.last().map(|field| field.direction) {
        Some(Direction::Descending) => "$lt",
        _ => "$gt",
    };
    // An expression compares values of all types, like the sort order.
    same.push(doc! { "$expr": { operator: ["$_id", { "$literal": id.clone() }] } });
    either.push(all_of(same));
    match either.len() {
        1 => either.remove(0),
        _ => doc! { "$or": either },
    }
}

fn all_of(mut parts: Vec<Document>) -> Document {
    match parts.len() {
        1 => parts.remove(0),
        _ => doc! { "$and": parts },
    }
}

/// Returns a filter for values after that of the field.
fn beyond(field: &At<'_>) -> Document {
    let path = &*visible(field.path);
    let kind = kind_of(field.value);
    let mut either = Vec::new();
    let comparison = match field.direction {
        Direction::Ascending => "$gt",
        Direction::Descending => "$lt",
    };
    let comparable = is_comparable(field.value);
    if comparable {
        either.push(doc! { path: { comparison: field.value.clone() } });
        if kind == TypeOrder::Number && field.direction == Direction::Descending {
            // NaN sorts before all numbers, and is less than none.
            either.push(doc! { path: { "$eq": f64::NAN } });
        }
    }
    let wanted = |other: TypeOrder| match field.direction {
        Direction::Ascending => other > kind || (other == kind && !comparable),
        Direction::Descending => other < kind || (other == kind && !comparable),
    };
    let types: Vec<Bson> =
        TYPES.iter().filter(|(other, _)| wanted(*other)).map(|(_, code)| Bson::Int32(*code)).collect();
    if !types.is_empty() {
        either.push(doc! { path: { "$type": types } });
    }
    if wanted(TypeOrder::Null) {
        either.push(nothing(path));
    }
    if wanted(TypeOrder::Undefined) {
        either.push(doc! { path: { "$size": 0 } });
    }
    doc! { "$or": either }
}

/// Returns a filter for values equal to that of the field.
fn equal(field: &At<'_>) -> Document {
    let path = &*visible(field.path);
    let kind = kind_of(field.value);
    if is_comparable(field.value) {
        return doc! { path: { "$eq": field.value.clone() } };
    }
    let types: Vec<Bson> =
        TYPES.iter().filter(|(other, _)| *other == kind).map(|(_, code)| Bson::Int32(*code)).collect();
    let mut either = vec![doc! { path: { "$type": types } }];
    match kind {
        TypeOrder::Null => either.push(nothing(path)),
        TypeOrder::Undefined => either.push(doc! { path: { "$size": 0 } }),
        _ => {}
    }
    doc! { "$or": either }
}

/// Returns a filter for records in which a path may lead to no value, also because it leads through an array to an element without fields.
fn nothing(path: &str) -> Document {
    let mut either = vec![doc! { path: { "$eq": Bson::Null } }, doc! { path: { "$exists": false } }];
    for (end, _) in path.match_indices('.') {
        either.push(doc! { &path[..end]: { "$type": "array" } });
    }
    doc! { "$or": either }
}

/// Returns whether, among values of its type, the server's comparison with the value equals that of the sort order.
fn is_comparable(value: &Bson) -> bool {
    match value {
        Bson::Double(value) => !value.is_nan(),
        Bson::Decimal128(value) => value.to_string() != "NaN",
        Bson::Int32(_)
        | Bson::Int64(_)
        | Bson::String(_)
        | Bson::Boolean(_)
        | Bson::DateTime(_)
        | Bson::ObjectId(_)
        | Bson::Timestamp(_)
        | Bson::Binary(_) => true,
        _ => false,
    }
}

fn kind_of(value: &Bson) -> TypeOrder {
    RawBson::try_from(value.clone()).map_or(TypeOrder::Null, |raw| TypeOrder::of(&raw.as_raw_bson_ref()))
}

/// The server's type codes, by type in the sort order.
const TYPES: [(TypeOrder, i32); 21] = [
    (TypeOrder::MinKey, -1),
    (TypeOrder::Undefined, 6),
    (TypeOrder::Null, 10),
    (TypeOrder::Number, 1),
    (TypeOrder::Number, 16),
    (TypeOrder::Number, 18),
    (TypeOrder::Number, 19),
    (TypeOrder::String, 2),
    (TypeOrder::String, 14),
    (TypeOrder::Document, 3),
    (TypeOrder::Array, 4),
    (TypeOrder::Binary, 5),
    (TypeOrder::ObjectId, 7),
    (TypeOrder::Boolean, 8),
    (TypeOrder::DateTime, 9),
    (TypeOrder::Timestamp, 17),
    (TypeOrder::RegularExpression, 11),
    (TypeOrder::DbPointer, 12),
    (TypeOrder::JavaScriptCode, 13),
    (TypeOrder::JavaScriptCodeWithScope, 15),
    (TypeOrder::MaxKey, 127),
];
