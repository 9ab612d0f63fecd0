//! Metrics of retries.

use annals_runtime::RetryMetrics;

use super::{family, label, line};

/// A metric of the retries of a handler or group: name, help, value.
type OfRetries = (&'static str, &'static str, fn(&RetryMetrics) -> u64);

/// Writes how often this process retried events and dead letters of handlers and groups.
pub(super) fn write_retries(out: &mut String, retries: &[RetryMetrics]) {
    const OF_RETRIES: [OfRetries; 2] = [
        ("annals_processor_retries_total", "Attempts of events after their first one, without dead letters.", |it| {
            it.events
        }),
        ("annals_dead_letter_retries_total", "Attempts of its dead letters after the first one.", |it| it.letters),
    ];
    if retries.is_empty() {
        return;
    }
    for (name, help, value) in OF_RETRIES {
        family(out, name, "counter", help);
        for of in retries {
            let (tenant, kind, processor) = (label(&of.tenant), of.kind, label(&of.processor));
            let labels = format_args!("tenant=\"{tenant}\",kind=\"{kind}\",processor=\"{processor}\"").to_string();
            line(out, format_args!("{name}{{{labels}}} {}", value(of)));
        }
    }
}
