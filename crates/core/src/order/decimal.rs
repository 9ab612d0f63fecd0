//! Decimal numbers of any length, for exact comparison.

use bson::Decimal128;

/// A decimal128, taken apart (IEEE 754-2008, binary integer decimal).
pub(super) enum Decimal {
    NotANumber,
    Infinite { negative: bool },
    Finite { negative: bool, magnitude: Magnitude },
}

const EXPONENT_BIAS: i32 = 6176;
/// 10^34: the first coefficient that is not canonical, and therefore means zero.
const COEFFICIENT_END: u128 = 10u128.pow(34);

impl Decimal {
    pub(super) fn of(value: Decimal128) -> Self {
        let bits = u128::from_le_bytes(value.bytes());
        let negative = bits >> 127 == 1;
        match (bits >> 122) & 0b1_1111 {
            0b1_1111 => return Self::NotANumber,
            0b1_1110 => return Self::Infinite { negative },
            // The other form of a finite number has a coefficient that is never canonical.
            form if form >> 3 == 0b11 => return Self::Finite { negative, magnitude: Magnitude::of_integer(0, 0) },
            _ => {}
        }
        let exponent = ((bits >> 113) & 0x3fff) as i32 - EXPONENT_BIAS;
        let coefficient = bits & ((1 << 113) - 1);
        let coefficient = if coefficient < COEFFICIENT_END { coefficient } else { 0 };
        Self::Finite { negative, magnitude: Magnitude::of_integer(coefficient, exponent) }
    }
}

/// A number that is not negative: `0.d₁d₂d₃… × 10^point`, with d₁ and the last digit not zero; zero has no digits.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Magnitude {
    // The order of the fields matters to the derived comparison of numbers that are not zero.
    point: i32,
    digits: Vec<u8>,
}

/// At least the number of digits of any double.
const DOUBLE_DIGITS: usize = 770;
/// Makes every point positive: the lowest is that of the smallest decimal128, about -6176.
const POINT_BIAS: i32 = 8192;

impl Magnitude {
    /// Returns `coefficient × 10^exponent`.
    pub(super) fn of_integer(coefficient: u128, exponent: i32) -> Self {
        Self::of_digits(&coefficient.to_string(), exponent)
    }

    /// Returns the integer that the digits spell, times `10^exponent`.
    fn of_digits(text: &str, exponent: i32) -> Self {
        let text = text.trim_start_matches('0');
        let point = text.len() as i32 + exponent;
        let digits: Vec<u8> = text.trim_end_matches('0').bytes().map(|digit| digit - b'0').collect();
        if digits.is_empty() { Self { point: i32::MIN, digits } } else { Self { point, digits } }
    }

    fn of_double(value: f64) -> Self {
        // `d.ddd…e±x`, with every digit the double has.
        let text = format!("{value:.DOUBLE_DIGITS$e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        Self::of_digits(&mantissa.replace('.', ""), exponent - DOUBLE_DIGITS as i32)
    }

    pub(super) fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// Returns the greatest double that does not exceed it, and whether both are the same number.
    pub(super) fn greatest_double_below_or_equal(&self) -> (f64, bool) {
        let digits: String = self.digits.iter().map(|digit| char::from(digit + b'0')).collect();
        let nearest: f64 = format!("0.{digits}e{}", self.point).parse().unwrap_or(0.0);
        if nearest.is_infinite() {
            return (f64::MAX, false);
        }
        match Self::of_double(nearest).cmp(self) {
            std::cmp::Ordering::Equal => (nearest, true),
            std::cmp::Ordering::Less => (nearest, false),
            std::cmp::Ordering::Greater => (nearest.next_down(), false),
        }
    }

    /// Encodes the point, then two digits per byte, each incremented by one, then a zero.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&((self.point + POINT_BIAS) as u16).to_be_bytes());
        for pair in self.digits.chunks(2) {
            out.push((pair[0] + 1) << 4 | pair.get(1).map_or(0, |digit| digit + 1));
        }
        if self.digits.len().is_multiple_of(2) {
            out.push(0);
        }
    }
}
