//! Metrics of consumers that have joined groups on a broker.

use std::collections::BTreeMap;

use annals_runtime::ConsumerStatus;

use super::{family, label, line};

/// A metric of a group: name, type, help, value.
type OfGroup = (&'static str, &'static str, &'static str, fn(&ConsumerStatus) -> u64);

/// Writes the metrics of the group members in this process.
pub(super) fn write_consumers(out: &mut String, members: &[ConsumerStatus]) {
    const OF_GROUP: [OfGroup; 6] = [
        ("annals_consumer_partitions", "gauge", "Partitions assigned to members in this process.", |it| {
            it.partitions as u64
        }),
        ("annals_consumer_processed_total", "counter", "Messages processed.", |it| it.processed),
        ("annals_consumer_failed_total", "counter", "Failed attempts.", |it| it.failed),
        (
            "annals_consumer_unreadable_total",
            "counter",
            "Messages that could not be read as events of their topics.",
            |it| it.unreadable,
        ),
        ("annals_consumer_dead_letters_total", "counter", "Messages that became dead letters.", |it| it.dead_letters),
        ("annals_consumer_broken", "gauge", "Members whose breaker is open.", |it| it.broken.into()),
    ];
    let mut groups: BTreeMap<(&str, &str), Vec<&ConsumerStatus>> = BTreeMap::new();
    for member in members {
        groups.entry((&member.tenant, &member.group)).or_default().push(member);
    }
    if groups.is_empty() {
        return;
    }
    for (name, kind, help, value) in OF_GROUP {
        family(out, name, kind, help);
        for ((tenant, group), members) in &groups {
            let sum: u64 = members.iter().map(|member| value(member)).sum();
            line(out, format_args!("{name}{{tenant=\"{}\",group=\"{}\"}} {sum}", label(tenant), label(group)));
        }
    }
}
