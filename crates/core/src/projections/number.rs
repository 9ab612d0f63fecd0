//! Sums of numbers in records.

use bson::Bson;

use super::rule::shown;

/// Adds a number to another, or subtracts it. The result is a 64-bit integer, or a double if either side is one.
pub(super) fn sum(known: &Bson, value: &Bson, subtracts: bool) -> Result<Bson, String> {
    let (known, value) = (number(known, "the record has")?, number(value, "the event has")?);
    match (known, value) {
        (Number::Integer(a), Number::Integer(b)) => {
            let sum = if subtracts { a.checked_sub(b) } else { a.checked_add(b) };
            sum.map(Bson::Int64).ok_or_else(|| format!("the result of {a} and {b} does not fit in 64 bits"))
        }
        (a, b) => Ok(Bson::Double(if subtracts { a.double() - b.double() } else { a.double() + b.double() })),
    }
}

#[derive(Clone, Copy)]
enum Number {
    Integer(i64),
    Double(f64),
}

impl Number {
    fn double(self) -> f64 {
        match self {
            Self::Integer(number) => number as f64,
            Self::Double(number) => number,
        }
    }
}

fn number(value: &Bson, whose: &str) -> Result<Number, String> {
    match value {
        Bson::Int32(number) => Ok(Number::Integer((*number).into())),
        Bson::Int64(number) => Ok(Number::Integer(*number)),
        Bson::Double(number) => Ok(Number::Double(*number)),
        other => Err(format!("{whose} {}, which is not an integer or floating-point number", shown(other))),
    }
}
