//! The form of a row: `row | measured | target | met`, on one line, so that `cargo xtask bench features` finds it.

use std::fmt;

/// The target for a row's figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// At least this much.
    AtLeast(f64),
    /// At most this much.
    AtMost(f64),
    /// The figure is for comparison only.
    Unset,
}

/// The verdict on a row whose target is unset.
const NO_VERDICT: &str = "–";

impl Target {
    /// Returns whether a figure meets the target. A figure that is not a number meets none.
    fn verdict(self, figure: f64) -> &'static str {
        let met = match self {
            Self::AtLeast(least) => figure >= least,
            Self::AtMost(most) => figure <= most,
            Self::Unset => return NO_VERDICT,
        };
        if met { "met" } else { "missed" }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "≥ {least}"),
            Self::AtMost(most) => write!(f, "≤ {most}"),
            Self::Unset => f.write_str(NO_VERDICT),
        }
    }
}

/// Prints a row. `measured` is the result with units; `figure` is the part of it that the target is about.
pub fn print(row: impl fmt::Display, measured: impl fmt::Display, figure: f64, target: Target) {
    println!("{row} | {measured} | {target} | {}", target.verdict(figure));
}

/// Prints a row whose target is about the quotient of two figures of the same unit.
pub fn ratio(row: impl fmt::Display, unit: &str, ours: f64, other: f64, target: Target) {
    let quotient = ours / other;
    print(row, format!("{} ÷ {} {unit} = {quotient:.2}", number(ours), number(other)), quotient, target);
}

/// Prints a row whose target is about a figure with a unit.
pub fn figure(row: impl fmt::Display, unit: &str, figure: f64, target: Target) {
    let measured = format!("{} {unit}", number(figure));
    match target {
        Target::Unset => print(row, measured, figure, target),
        _ => println!("{row} | {measured} | {target} {unit} | {}", target.verdict(figure)),
    }
}

/// Formats a figure for people: two decimals below 100, and groups of thousands above.
pub fn number(figure: f64) -> String {
    if !figure.is_finite() || figure.abs() < 100.0 {
        return format!("{figure:.2}");
    }
    let digits = format!("{figure:.0}");
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        let left = digits.len() - at;
        if at > 0 && left.is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Converts bytes to MiB.
pub fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The parts of a run. If one cannot be measured, the others still are.
#[derive(Default)]
pub struct Parts {
    failed: Vec<String>,
}

impl Parts {
    /// Notes the outcome of a part, and prints a missed row if it could not be measured.
    pub fn note(&mut self, part: &str, outcome: Result<(), String>) {
        let Err(error) = outcome else { return };
        let error = error.replace(['\n', '|'], " ");
        println!("{part} | not measured: {error} | {NO_VERDICT} | missed");
        self.failed.push(format!("{part}: {error}"));
    }

    /// Ends the run.
    ///
    /// # Errors
    /// The parts that could not be measured.
    pub fn end(self) -> Result<(), String> {
        if self.failed.is_empty() { Ok(()) } else { Err(self.failed.join("; ")) }
    }
}
