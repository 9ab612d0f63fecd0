//! Accumulators for the figures of a group.

use bson::{Bson, RawBsonRef};

use super::Aggregation;
use crate::order::encoded;

/// The value of a figure over the records added so far.
#[derive(Debug)]
pub(super) enum Running {
    Sum(Sum),
    Avg(Sum),
    Min(Option<(Vec<u8>, Bson)>),
    Max(Option<(Vec<u8>, Bson)>),
}

impl Running {
    pub(super) fn new(what: Aggregation) -> Self {
        match what {
            Aggregation::Sum => Self::Sum(Sum::default()),
            Aggregation::Avg => Self::Avg(Sum::default()),
            Aggregation::Min => Self::Min(None),
            Aggregation::Max => Self::Max(None),
        }
    }

    /// Adds the value of a record.
    pub(super) fn add(&mut self, value: RawBsonRef<'_>) {
        if matches!(value, RawBsonRef::Null | RawBsonRef::Undefined) {
            return;
        }
        let (held, lower_wins) = match self {
            Self::Sum(sum) | Self::Avg(sum) => return sum.add(value),
            Self::Min(held) => (held, true),
            Self::Max(held) => (held, false),
        };
        let order = encoded(value);
        let wins = held.as_ref().is_none_or(|(other, _)| if lower_wins { order < *other } else { order > *other });
        if wins && let Ok(value) = Bson::try_from(value) {
            *held = Some((order, value));
        }
    }

    /// Returns the approximate number of bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Sum(_) | Self::Avg(_) => size_of::<Self>(),
            Self::Min(held) | Self::Max(held) => {
                size_of::<Self>() + held.as_ref().map_or(0, |(order, _)| 2 * order.len())
            }
        }
    }

    /// Returns the figure; `None` if a sum or average would include a Decimal128.
    pub(super) fn finish(self) -> Option<Bson> {
        match self {
            Self::Sum(sum) if sum.decimal => None,
            Self::Avg(sum) if sum.decimal => None,
            Self::Sum(sum) => Some(sum.total()),
            Self::Avg(sum) if sum.count == 0 => Some(Bson::Null),
            Self::Avg(sum) => Some(Bson::Double(sum.double() / sum.count as f64)),
            Self::Min(held) | Self::Max(held) => Some(held.map_or(Bson::Null, |(_, value)| value)),
        }
    }
}

/// A sum of numbers, computed as MongoDB does: integers exactly, doubles with compensation for rounding errors.
#[derive(Debug, Default)]
pub(super) struct Sum {
    whole: i128,
    doubles: f64,
    lost: f64,
    /// Whether any number was a double.
    is_double: bool,
    decimal: bool,
    count: u64,
}

impl Sum {
    fn add(&mut self, value: RawBsonRef<'_>) {
        match value {
            RawBsonRef::Int32(number) => self.whole += i128::from(number),
            RawBsonRef::Int64(number) => self.whole += i128::from(number),
            RawBsonRef::Double(number) => {
                self.is_double = true;
                add_exactly(&mut self.doubles, &mut self.lost, number);
            }
            RawBsonRef::Decimal128(_) => self.decimal = true,
            _ => return,
        }
        self.count += 1;
    }

    fn total(&self) -> Bson {
        match i64::try_from(self.whole) {
            Ok(whole) if !self.is_double => Bson::Int64(whole),
            _ => Bson::Double(self.double()),
        }
    }

    fn double(&self) -> f64 {
        let (mut sum, mut lost) = (self.doubles, self.lost);
        let high = self.whole as f64;
        add_exactly(&mut sum, &mut lost, high);
        add_exactly(&mut sum, &mut lost, (self.whole - high as i128) as f64);
        let all = sum + lost;
        // With an infinity, the compensation is NaN and meaningless.
        if all.is_nan() { sum } else { all }
    }
}

/// Adds a number to a sum; the rounding error is added to `lost`.
fn add_exactly(sum: &mut f64, lost: &mut f64, number: f64) {
    let new = *sum + number;
    let part = new - *sum;
    *lost += (*sum - (new - part)) + (number - part);
    *sum = new;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(values: &[Bson]) -> (Bson, Bson) {
        let mut figures = [Running::new(Aggregation::Sum), Running::new(Aggregation::Avg)];
        for value in values {
            let raw = bson::RawBson::try_from(value.clone()).expect("a value");
            figures.iter_mut().for_each(|figure| figure.add(raw.as_raw_bson_ref()));
        }
        let [sum, average] = figures.map(|figure| figure.finish().expect("no decimals"));
        (sum, average)
    }

    #[test]
    fn whole_numbers_are_added_exactly_and_doubles_without_loss() {
        assert_eq!(sum(&[]), (Bson::Int64(0), Bson::Null));
        assert_eq!(sum(&[Bson::Int32(2), Bson::Int64(5), "x".into()]), (Bson::Int64(7), Bson::Double(3.5)));
        let most = Bson::Int64(i64::MAX);
        assert_eq!(sum(&[most.clone(), most.clone()]).0, Bson::Double(2.0 * i64::MAX as f64));
        assert_eq!(sum(&[most.clone(), most, Bson::Int64(-i64::MAX)]).0, Bson::Int64(i64::MAX));
        let tenths: Vec<Bson> = (0..10).map(|_| Bson::Double(0.1)).collect();
        assert_eq!(sum(&tenths).0, Bson::Double(1.0));
        assert_eq!(sum(&[Bson::Double(1e100), Bson::Int32(1), Bson::Double(-1e100)]).0, Bson::Double(1.0));
        assert_eq!(sum(&[Bson::Double(f64::INFINITY), Bson::Int32(1)]).0, Bson::Double(f64::INFINITY));
        let Bson::Double(nothing) = sum(&[Bson::Double(f64::NAN), Bson::Int32(1)]).0 else { panic!("a double") };
        assert!(nothing.is_nan());
    }
}
