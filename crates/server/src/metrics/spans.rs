//! Metrics of recorded spans.

use annals_core::trace::Spans;

use super::{family, line};

/// Writes how many spans were lost on the way to the collector, if spans are recorded.
pub(super) fn write_spans(out: &mut String, spans: Option<&dyn Spans>) {
    let Some(spans) = spans else { return };
    const NAME: &str = "annals_spans_dropped_total";
    family(out, NAME, "counter", "Spans dropped because the trace collector did not accept them in time.");
    line(out, format_args!("{NAME} {}", spans.dropped()));
}
