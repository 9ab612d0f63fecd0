//! Groups as the model computes them: first it collects every value of a group, and then it computes the figures of all of them.

use std::collections::BTreeMap;

use annals_core::bson::{Bson, Document, RawBson};
use annals_core::{Aggregation, Every, Group, GroupQuery, Invalid, Record, decimals_not_summed, order};

/// Returns groups in a comparable form. Equal values of different types may represent a group, and NaN does not equal itself.
pub(super) fn comparable(groups: &[Group]) -> Vec<(Vec<u8>, u64, Vec<Vec<u8>>)> {
    let one = |group: &Group| (encoded(&group.key), group.count, group.figures.iter().map(encoded).collect());
    groups.iter().map(one).collect()
}

/// Returns the groups of these records, by the encodings of their keys.
pub(super) fn of(query: &GroupQuery, records: &[Record]) -> BTreeMap<Vec<u8>, Result<Group, Invalid>> {
    let mut members: BTreeMap<Vec<u8>, (Bson, Vec<Document>)> = BTreeMap::new();
    for record in records {
        let document = Document::try_from(&record.document).expect("a document");
        let value = query.by.as_deref().map_or(Bson::Null, |path| at(&document, path));
        let key = match (query.every, value) {
            (None, value) => value,
            (Some(unit), Bson::DateTime(date)) => Bson::DateTime(truncated(date, unit)),
            _ => Bson::Null,
        };
        members.entry(encoded(&key)).or_insert((key, Vec::new())).1.push(document);
    }
    let group = |(order, (key, members)): (Vec<u8>, (Bson, Vec<Document>))| {
        let count = members.len() as u64;
        let figures = query.figures.iter().map(|figure| {
            let values = members.iter().map(|member| at(member, &figure.path)).filter(|value| *value != Bson::Null);
            figure_of(figure.what, values.collect()).ok_or_else(|| decimals_not_summed(&figure.name))
        });
        let figures = figures.collect::<Result<Vec<_>, _>>();
        (order, figures.map(|figures| Group { key, count, figures }))
    };
    members.into_iter().map(group).collect()
}

fn figure_of(what: Aggregation, values: Vec<Bson>) -> Option<Bson> {
    let by_order = |one: &Bson, other: &Bson| encoded(one).cmp(&encoded(other));
    match what {
        Aggregation::Min => return Some(values.into_iter().min_by(by_order).unwrap_or(Bson::Null)),
        Aggregation::Max => return Some(values.into_iter().max_by(by_order).unwrap_or(Bson::Null)),
        Aggregation::Sum | Aggregation::Avg => {}
    }
    if values.iter().any(|value| matches!(value, Bson::Decimal128(_))) {
        return None;
    }
    let numbers: Vec<f64> = values.iter().filter_map(number).collect();
    let sum: f64 = numbers.iter().sum();
    let whole: i128 =
        values.iter().filter_map(|value| value.as_i64().or(value.as_i32().map(i64::from))).map(i128::from).sum();
    let are_whole = !values.iter().any(|value| matches!(value, Bson::Double(_)));
    Some(match what {
        Aggregation::Sum if are_whole => i64::try_from(whole).map_or(Bson::Double(whole as f64), Bson::Int64),
        Aggregation::Sum => Bson::Double(sum),
        _ if numbers.is_empty() => Bson::Null,
        _ => Bson::Double(sum / numbers.len() as f64),
    })
}

fn number(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(number) => Some((*number).into()),
        Bson::Int64(number) => Some(*number as f64),
        Bson::Double(number) => Some(*number),
        _ => None,
    }
}

fn at(document: &Document, path: &str) -> Bson {
    let found = match path.split_once('.') {
        None => document.get(path).cloned(),
        Some((name, rest)) => document.get_document(name).ok().map(|inner| at(inner, rest)),
    };
    found.filter(|value| *value != Bson::Undefined).unwrap_or(Bson::Null)
}

fn truncated(date: annals_core::bson::DateTime, unit: Every) -> annals_core::bson::DateTime {
    let (millis, length) = (date.timestamp_millis(), unit.millis());
    annals_core::bson::DateTime::from_millis(millis.div_euclid(length) * length)
}

fn encoded(value: &Bson) -> Vec<u8> {
    order::encoded(RawBson::try_from(value.clone()).expect("a value").as_raw_bson_ref())
}
