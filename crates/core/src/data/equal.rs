//! Equality of documents as BSON values, whatever their bytes.

use bson::raw::{RawBsonRef, RawDocument};

/// Returns whether two documents are equal: they have equal fields in the same order. An int32, an int64 and a double are compared by
/// value, and NaN equals itself. Everything else, including decimal128, is compared by type and bytes.
pub(crate) fn documents_equal(a: &RawDocument, b: &RawDocument) -> bool {
    let (mut left, mut right) = (a.iter(), b.iter());
    loop {
        match (left.next(), right.next()) {
            (None, None) => return true,
            (Some(Ok((key, value))), Some(Ok((other_key, other)))) if key == other_key && equal(value, other) => {}
            _ => return false,
        }
    }
}

fn equal(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> bool {
    match (a, b) {
        (RawBsonRef::Document(a), RawBsonRef::Document(b)) => documents_equal(a, b),
        // Arrays are documents whose keys are indexes.
        (RawBsonRef::Array(a), RawBsonRef::Array(b)) => {
            let elements =
                |array: &bson::raw::RawArray| RawDocument::from_bytes(array.as_bytes()).map(ToOwned::to_owned);
            matches!((elements(a), elements(b)), (Ok(a), Ok(b)) if documents_equal(&a, &b))
        }
        (RawBsonRef::Double(a), RawBsonRef::Double(b)) => a == b || (a.is_nan() && b.is_nan()),
        (RawBsonRef::Double(double), other) | (other, RawBsonRef::Double(double)) => {
            integer(other).is_some_and(|integer| is_integer(double, integer))
        }
        (a, b) => match (integer(a), integer(b)) {
            (Some(a), Some(b)) => a == b,
            _ => a == b,
        },
    }
}

fn integer(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(value) => Some(value.into()),
        RawBsonRef::Int64(value) => Some(value),
        _ => None,
    }
}

/// Returns whether the two are exactly equal: beyond 2^53, a double cannot represent every integer. 2^63 itself would saturate to the
/// largest int64.
fn is_integer(double: f64, integer: i64) -> bool {
    const ABOVE: f64 = 9_223_372_036_854_775_808.0;
    double.fract() == 0.0 && (-ABOVE..ABOVE).contains(&double) && double as i64 == integer
}

#[cfg(test)]
mod tests {
    use bson::{Bson, doc};

    use crate::{Data, KeyValue};

    fn equal(a: impl Into<Bson>, b: impl Into<Bson>) -> bool {
        let value =
            |value: Bson| KeyValue::from_data(Data::from_document(&doc! { "value": value }).expect("a document"));
        value(a.into()) == value(b.into())
    }

    #[test]
    fn numbers_are_equal_by_value_whatever_their_type() {
        assert!(equal(7_i32, 7_i64) && equal(7_i64, 7.0) && equal(7.0, 7_i32));
        assert!(equal(0.0, -0.0) && equal(f64::NAN, -f64::NAN) && equal(f64::INFINITY, f64::INFINITY));
        assert!(!equal(7_i32, 8_i64) && !equal(7_i64, 7.5) && !equal(f64::NAN, 0_i32));
        assert!(equal(1_i64 << 53, (1_u64 << 53) as f64) && !equal((1_i64 << 53) + 1, (1_u64 << 53) as f64));
        assert!(equal(i64::MIN, i64::MIN as f64) && !equal(i64::MAX, i64::MAX as f64));
        assert!(!equal(1_i32, true) && !equal(1_i32, "1"));
    }

    #[test]
    fn documents_and_arrays_are_equal_in_the_same_order_only() {
        assert!(equal(
            doc! { "a": 1_i32, "b": [1_i64, { "c": 2.0 }] },
            doc! { "a": 1.0, "b": [1_i32, { "c": 2_i64 }] }
        ));
        assert!(!equal(doc! { "a": 1, "b": 2 }, doc! { "b": 2, "a": 1 }));
        assert!(!equal(doc! { "a": 1 }, doc! { "a": 1, "b": 2 }) && !equal(doc! { "a": 1 }, doc! { "b": 1 }));
        assert!(!equal(vec![1, 2], vec![2, 1]) && !equal(vec![1], vec![1, 2]) && !equal(vec![1], doc! { "0": 1 }));
        assert!(!equal(Bson::Null, doc! {}) && equal(Bson::Null, Bson::Null));
    }
}
