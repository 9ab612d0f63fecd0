//! Reads fields of documents that other software may have written: numbers in any of BSON's types, and what is missing.

use mongodb::bson::{RawBsonRef, RawDocument};

/// The values of these fields, found in one pass: each look-up alone reads the document from its beginning. It is fastest where the names
/// are in the order of the layout. Where a name stands twice the first counts.
pub(crate) fn fields<'a, const N: usize>(document: &'a RawDocument, names: [&str; N]) -> [Option<RawBsonRef<'a>>; N] {
    let mut values = [None; N];
    let mut next = 0;
    for element in document.iter_elements().map_while(Result::ok) {
        let key = element.key().as_str();
        let place = (next..N).chain(0..next).find(|place| names[*place] == key);
        if let Some(place) = place {
            if values[place].is_none() {
                values[place] = element.value().ok();
            }
            next = place + 1;
        }
    }
    values
}

/// A whole number in any type that can hold one.
pub(crate) fn integer(document: &RawDocument, key: &str) -> Option<i64> {
    integer_of(document.get(key).ok()??)
}

/// The same of a value.
pub(crate) fn integer_of(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(value) => Some(value.into()),
        RawBsonRef::Int64(value) => Some(value),
        RawBsonRef::Double(value) if value.fract() == 0.0 && value.abs() < 9.0e15 => Some(value as i64),
        RawBsonRef::Decimal128(value) => whole(&value.to_string()),
        _ => None,
    }
}

/// A whole number that is not negative.
pub(crate) fn natural(document: &RawDocument, key: &str) -> Option<u64> {
    natural_of(document.get(key).ok()??)
}

/// The same of a value.
pub(crate) fn natural_of(value: RawBsonRef<'_>) -> Option<u64> {
    integer_of(value).and_then(|value| u64::try_from(value).ok())
}

/// `5`, `5.0` and `5E0` are the same decimal.
fn whole(decimal: &str) -> Option<i64> {
    if let Ok(value) = decimal.parse() {
        return Some(value);
    }
    let value: f64 = decimal.parse().ok()?;
    (value.fract() == 0.0 && value.abs() < 9.0e15).then_some(value as i64)
}

pub(crate) fn text<'a>(document: &'a RawDocument, key: &str) -> Option<&'a str> {
    document.get(key).ok()??.as_str()
}

pub(crate) fn boolean(document: &RawDocument, key: &str) -> Option<bool> {
    document.get(key).ok()??.as_bool()
}

pub(crate) fn inner<'a>(document: &'a RawDocument, key: &str) -> Option<&'a RawDocument> {
    document.get(key).ok()??.as_document()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::{RawDocumentBuf, doc};

    #[test]
    fn many_fields_are_found_in_one_pass_in_any_order() {
        let document =
            RawDocumentBuf::try_from(&doc! { "x": 1, "b": "two", "y": 3, "a": 4_i64, "c": null }).expect("encodes");
        for names in [["a", "b", "none"], ["b", "a", "none"], ["none", "b", "a"]] {
            let found = fields(&document, names);
            for (name, value) in names.into_iter().zip(found) {
                assert_eq!(value, document.get(name).expect("is whole"), "{name}");
            }
        }
    }

    #[test]
    fn of_a_name_that_stands_twice_the_first_counts() {
        let mut twice = RawDocumentBuf::new();
        for value in [1, 2] {
            twice.append(mongodb::bson::cstr!("a"), value);
        }
        assert_eq!(fields(&twice, ["a"]), [Some(RawBsonRef::Int32(1))]);
        assert_eq!(integer(&twice, "a"), Some(1));
    }
}
