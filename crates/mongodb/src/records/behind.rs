//! Expresses "after a position in a sort order" as a filter, so that a page is not read from the beginning of all pages.
//!
//! The filter matches every record after the position, and a few others: in a sort order, an array counts by one of its elements; in a
//! filter, by any of them. The caller compares the results exactly.

use annals_core::SortBy;
use annals_core::bson::oid::ObjectId;
use annals_core::bson::spec::BinarySubtype;
use annals_core::bson::{Binary, Bson, DateTime, Document, RawBson, Timestamp, doc};
use annals_core::order::{Direction, TypeOrder};

use super::filter::visible;

/// A field of the sort, and its value at the position.
pub(super) struct At<'a> {
    path: &'a str,
    direction: Direction,
    value: &'a Bson,
}

/// Returns the fields of a sort with their values at a position.
pub(super) fn at<'a>(sort: &'a [SortBy], values: &'a [Bson]) -> Vec<At<'a>> {
    let fields = sort.iter().zip(values);
    fields.map(|(by, value)| At { path: &by.path, direction: by.direction, value }).collect()
}

/// Returns a filter for records after the position: by the fields, or equal in all fields and after it by `_id`.
pub(super) fn behind(fields: &[At<'_>], id: &Bson) -> Document {
    let mut either = Vec::new();
    for (n, field) in fields.iter().enumerate() {
        let further: Vec<_> = within(field).into_iter().chain(later(field)).collect();
        if !further.is_empty() {
            either.push(joined(&fields[..n], doc! { "$or": further }));
        }
    }
    either.push(equals(fields, Some(id)));
    match either.len() {
        1 => either.remove(0),
        _ => doc! { "$or": either },
    }
}

/// Returns a filter for records that are equal to the position in all fields, and after it by `_id` if that is given.
pub(super) fn equals(fields: &[At<'_>], id: Option<&Bson>) -> Document {
    let mut same: Vec<_> = fields.iter().map(equal).collect();
    if let Some(id) = id {
        let operator = match fields.last().map(|field| field.direction) {
            Some(Direction::Descending) => "$lt",
            _ => "$gt",
        };
        // An expression compares values of all types, like the sort order.
        same.push(doc! { "$expr": { operator: ["$_id", { "$literal": id.clone() }] } });
    }
    all_of(same)
}

/// A filter for some of the records after a position, which lie side by side in the order.
pub(super) struct Stretch {
    pub(super) filter: Document,
    /// In how many of the first fields they are equal to the position.
    pub(super) equal: usize,
    /// Whether they have the type of the position in the next field, too.
    pub(super) typed: bool,
}

/// Returns filters for the records that are after the position by the fields, in the order in which they come. Each says of one field in
/// which range its values are, so that the server can read it from an index on the fields.
pub(super) fn stretches(fields: &[At<'_>]) -> Vec<Stretch> {
    let mut stretches = Vec::new();
    for (equal, field) in fields.iter().enumerate().rev() {
        let same = &fields[..equal];
        if let Some(filter) = within(field) {
            stretches.push(Stretch { filter: joined(same, filter), equal, typed: true });
        }
        if let Some(mut filter) = later(field) {
            // No element of what comes later by its first field has the type of the position. Without this the server would read all
            // entries of that type. In further fields it does not hold: documents in an array come by the first field of one of them.
            if let Some(others) = other_types(field).filter(|_| equal == 0) {
                filter = all_of(vec![others, filter]);
            }
            stretches.push(Stretch { filter: joined(same, filter), equal, typed: false });
        }
    }
    stretches
}

fn joined(same: &[At<'_>], filter: Document) -> Document {
    all_of(same.iter().map(equal).chain([filter]).collect())
}

fn all_of(mut parts: Vec<Document>) -> Document {
    match parts.len() {
        1 => parts.remove(0),
        _ => doc! { "$and": parts },
    }
}

/// Returns a filter for values of the same type after that of the field; `None` if there are none.
fn within(field: &At<'_>) -> Option<Document> {
    let path = &*visible(field.path);
    let kind = kind_of(field.value);
    if is_comparable(field.value) {
        let comparison = match field.direction {
            Direction::Ascending => "$gt",
            Direction::Descending => "$lt",
        };
        return Some(doc! { path: { comparison: field.value.clone() } });
    }
    match kind {
        TypeOrder::MinKey | TypeOrder::Undefined | TypeOrder::Null | TypeOrder::MaxKey => None,
        // NaN, which is below all numbers.
        TypeOrder::Number if field.direction == Direction::Ascending => {
            Some(doc! { path: { "$gte": f64::NEG_INFINITY } })
        }
        TypeOrder::Number => None,
        _ => Some(of_types(path, |other| other == kind)),
    }
}

/// Returns a filter for values of types after that of the field, and for NaN below other numbers, which is less than none to the server;
/// `None` if there are none.
fn later(field: &At<'_>) -> Option<Document> {
    let path = &*visible(field.path);
    let kind = kind_of(field.value);
    let wanted = |other: TypeOrder| match field.direction {
        Direction::Ascending => other > kind,
        Direction::Descending => other < kind,
    };
    let mut either = Vec::new();
    if kind == TypeOrder::Number && is_comparable(field.value) && field.direction == Direction::Descending {
        either.push(doc! { path: { "$eq": f64::NAN } });
    }
    if TYPES.iter().any(|(other, _)| wanted(*other)) {
        either.push(of_types(path, wanted));
    }
    if wanted(TypeOrder::Null) {
        either.push(nothing(path));
    }
    if wanted(TypeOrder::Undefined) {
        either.push(doc! { path: { "$size": 0 } });
    }
    match either.len() {
        0 => None,
        1 => either.pop(),
        _ => Some(doc! { "$or": either }),
    }
}

/// Returns a filter for records in which no value has the type of the field's, as far as the server has one that an index serves.
fn other_types(field: &At<'_>) -> Option<Document> {
    let lowest: Bson = match kind_of(field.value) {
        // Undefined equals null, and is later in descending order.
        TypeOrder::Null if field.direction == Direction::Ascending => {
            return Some(doc! { visible(field.path): { "$ne": Bson::Null } });
        }
        TypeOrder::Number => f64::NEG_INFINITY.into(),
        TypeOrder::String => "".into(),
        TypeOrder::Binary => Binary { subtype: BinarySubtype::Generic, bytes: Vec::new() }.into(),
        TypeOrder::ObjectId => ObjectId::from_bytes([0; 12]).into(),
        TypeOrder::Boolean => false.into(),
        TypeOrder::DateTime => DateTime::from_millis(i64::MIN).into(),
        TypeOrder::Timestamp => Timestamp { time: 0, increment: 0 }.into(),
        _ => return None,
    };
    Some(doc! { visible(field.path): { "$not": { "$gte": lowest } } })
}

/// Returns a filter for values of some types.
fn of_types(path: &str, wanted: impl Fn(TypeOrder) -> bool) -> Document {
    let codes = TYPES.iter().filter(|(other, _)| wanted(*other)).map(|(_, code)| Bson::Int32(*code));
    doc! { path: { "$type": codes.collect::<Vec<_>>() } }
}

/// Returns a filter for values equal to that of the field.
fn equal(field: &At<'_>) -> Document {
    let path = &*visible(field.path);
    let kind = kind_of(field.value);
    if is_comparable(field.value) {
        return doc! { path: { "$eq": field.value.clone() } };
    }
    let mut either = vec![of_types(path, |other| other == kind)];
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
pub(super) fn is_comparable(value: &Bson) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The filters of the stretches after a value, each with how many fields are equal and whether the type is the same.
    fn after(values: &[(&str, Direction, Bson)]) -> Vec<(Document, usize, bool)> {
        let fields: Vec<_> =
            values.iter().map(|(path, direction, value)| At { path, direction: *direction, value }).collect();
        stretches(&fields).into_iter().map(|it| (it.filter, it.equal, it.typed)).collect()
    }

    #[test]
    fn a_stretch_has_a_range_that_an_index_serves() {
        let date = Bson::DateTime(DateTime::from_millis(7));
        let types = doc! { "d": { "$type": [17, 11, 12, 13, 15, 127] } };
        let others = doc! { "d": { "$not": { "$gte": DateTime::from_millis(i64::MIN) } } };
        let later = doc! { "$and": [others, types] };
        let within = doc! { "d": { "$gt": date.clone() } };
        assert_eq!(after(&[("d", Direction::Ascending, date)]), [(within, 0, true), (later, 0, false)]);
    }

    #[test]
    fn further_fields_come_first() {
        let fields = [("a", Direction::Ascending, Bson::from(1)), ("b", Direction::Descending, Bson::MinKey)];
        let stretches = after(&fields);
        assert_eq!(stretches.iter().map(|it| (it.1, it.2)).collect::<Vec<_>>(), [(0, true), (0, false)]);
        let fields = [("a", Direction::Ascending, Bson::from(1)), ("b", Direction::Ascending, Bson::from("x"))];
        let stretches = after(&fields);
        let shape: Vec<_> = stretches.iter().map(|it| (it.1, it.2)).collect();
        assert_eq!(shape, [(1, true), (1, false), (0, true), (0, false)]);
        assert_eq!(stretches[0].0, doc! { "$and": [{ "a": { "$eq": 1 } }, { "b": { "$gt": "x" } }] });
    }

    #[test]
    fn a_type_with_one_value_has_nothing_behind_it() {
        for (value, direction) in [(Bson::MinKey, Direction::Descending), (Bson::MaxKey, Direction::Ascending)] {
            assert!(after(&[("a", direction, value)]).is_empty());
        }
        let nan = after(&[("a", Direction::Ascending, f64::NAN.into())]);
        assert_eq!(nan[0], (doc! { "a": { "$gte": f64::NEG_INFINITY } }, 0, true));
        let null = after(&[("a", Direction::Ascending, Bson::Null)]);
        assert!(matches!(&*null, [(_, 0, false)]), "{null:?}");
    }
}
