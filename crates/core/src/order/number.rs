//! Numbers by their exact value, whatever their type.
//!
//! A number is encoded as its sign and its magnitude. A magnitude is encoded as the greatest double that does not exceed it, followed by
//! all its decimal digits if the double is not exact. A value that two types can represent therefore has one encoding, and a value that
//! only int64 or decimal128 can represent sorts between two doubles.

use bson::Decimal128;

use super::decimal::{Decimal, Magnitude};

const NOT_A_NUMBER: u8 = 0;
const NEGATIVE: u8 = 1;
const NOT_NEGATIVE: u8 = 2;

/// The magnitude equals the double.
const EXACT: u8 = 0;
/// The magnitude is above the double: its digits follow.
const ABOVE: u8 = 1;

pub(super) fn double(value: f64, out: &mut Vec<u8>) {
    if value.is_nan() {
        return out.push(NOT_A_NUMBER);
    }
    signed(value < 0.0, out, |out| exact(value.abs(), out));
}

pub(super) fn integer(value: i64, out: &mut Vec<u8>) {
    let magnitude = value.unsigned_abs();
    // The nearest double may be above the magnitude; the next one below is then used.
    let nearest = magnitude as f64;
    signed(value < 0, out, |out| match nearest as u128 {
        same if same == u128::from(magnitude) => exact(nearest, out),
        below if below < u128::from(magnitude) => above(nearest, &Magnitude::of_integer(magnitude.into(), 0), out),
        _ => above(nearest.next_down(), &Magnitude::of_integer(magnitude.into(), 0), out),
    });
}

pub(super) fn decimal(value: Decimal128, out: &mut Vec<u8>) {
    match Decimal::of(value) {
        Decimal::NotANumber => out.push(NOT_A_NUMBER),
        Decimal::Infinite { negative } => signed(negative, out, |out| exact(f64::INFINITY, out)),
        Decimal::Finite { magnitude, .. } if magnitude.is_zero() => signed(false, out, |out| exact(0.0, out)),
        Decimal::Finite { negative, magnitude } => signed(negative, out, |out| {
            let (double, is_exact) = magnitude.greatest_double_below_or_equal();
            if is_exact { exact(double, out) } else { above(double, &magnitude, out) }
        }),
    }
}

/// Encodes the sign and the magnitude, whose bytes are inverted if a greater magnitude is a lower number.
fn signed(negative: bool, out: &mut Vec<u8>, magnitude: impl FnOnce(&mut Vec<u8>)) {
    out.push(if negative { NEGATIVE } else { NOT_NEGATIVE });
    let start = out.len();
    magnitude(out);
    if negative {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

fn exact(double: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(&double.to_bits().to_be_bytes());
    out.push(EXACT);
}

fn above(double: f64, magnitude: &Magnitude, out: &mut Vec<u8>) {
    out.extend_from_slice(&double.to_bits().to_be_bytes());
    out.push(ABOVE);
    magnitude.encode(out);
}
