//! Metrics of the guards of consumer groups.

use annals_runtime::GroupMetrics;

use super::{family, label, line};

/// Writes the metrics of this process for groups with a guard.
pub(super) fn write_groups(out: &mut String, groups: &[GroupMetrics]) {
    if groups.is_empty() {
        return;
    }
    let name = "annals_group_duplicates_total";
    family(out, name, "counter", "Messages that the guard of a group passed as duplicates.");
    for GroupMetrics { tenant, group, duplicates } in groups {
        line(out, format_args!("{name}{{tenant=\"{}\",group=\"{}\"}} {duplicates}", label(tenant), label(group)));
    }
}
