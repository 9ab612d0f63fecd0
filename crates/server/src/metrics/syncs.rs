//! Metrics of the duration of log syncs.

use annals_core::{LogStatus, SYNC_BUCKETS};

use super::{family, label, line};

/// Writes the sync durations of each log.
pub(super) fn write_syncs(out: &mut String, logs: &[LogStatus]) {
    if logs.is_empty() {
        return;
    }
    let name = "annals_log_sync_duration_seconds";
    let help = "Time until a written batch is durable: the duration of the disk sync, or of the acknowledgement by a majority.";
    family(out, name, "histogram", help);
    for log in logs {
        let labels = format!("tenant=\"{}\",scope=\"{}\"", label(&log.tenant), label(&log.scope));
        let times = log.sync_times;
        let mut sum = 0;
        for (end, count) in SYNC_BUCKETS.iter().zip(times.buckets) {
            sum += count;
            let end = *end as f64 / 1e6;
            line(out, format_args!("{name}_bucket{{{labels},le=\"{end}\"}} {sum}"));
        }
        let (count, seconds) = (times.count, times.micros as f64 / 1e6);
        line(out, format_args!("{name}_bucket{{{labels},le=\"+Inf\"}} {count}"));
        line(out, format_args!("{name}_sum{{{labels}}} {seconds}"));
        line(out, format_args!("{name}_count{{{labels}}} {count}"));
    }
}
