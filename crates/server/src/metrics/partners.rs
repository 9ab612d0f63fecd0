//! Metrics of partners.

use std::collections::BTreeMap;

use annals_core::partners::EventDirection;
use annals_runtime::{PartnerFailures, PartnerMetrics};

use super::{family, label, line};

/// Writes the metrics of this process for partners.
pub(super) fn write_partners(out: &mut String, partners: &[PartnerMetrics]) {
    if partners.is_empty() {
        return;
    }
    let of = |it: &PartnerMetrics| format!("tenant=\"{}\",partner=\"{}\"", label(&it.tenant), label(&it.partner));
    let name = "annals_partner_attempts_total";
    family(out, name, "counter", "Attempts to deliver or to commit partner events, by outcome.");
    for partner in partners {
        for (direction, outcome, count) in &partner.attempts {
            let labels = format!("{},direction=\"{direction}\",outcome=\"{outcome}\"", of(partner));
            line(out, format_args!("{name}{{{labels}}} {count}"));
        }
    }
    let name = "annals_partner_retries_total";
    family(out, name, "counter", "Attempts after the first one of their deliveries.");
    for partner in partners {
        for (direction, count) in &partner.retries {
            line(out, format_args!("{name}{{{},direction=\"{direction}\"}} {count}", of(partner)));
        }
    }
    let name = "annals_partner_received_total";
    family(out, name, "counter", "Requests of partners, by outcome.");
    for partner in partners {
        for (outcome, count) in &partner.received {
            line(out, format_args!("{name}{{{},outcome=\"{outcome}\"}} {count}", of(partner)));
        }
    }
    let name = "annals_partner_failing";
    family(out, name, "gauge", "1 while sending to a partner is suspended after consecutive failures.");
    for partner in partners {
        line(out, format_args!("{name}{{{}}} {}", of(partner), u8::from(partner.is_failing)));
    }
}

/// Writes how many events of partners are exhausted. A partner without any shows 0.
pub(super) fn write_partner_failures(out: &mut String, partners: &[PartnerMetrics], failures: &[PartnerFailures]) {
    let mut counts: BTreeMap<(&str, &str, EventDirection), u64> = BTreeMap::new();
    for it in partners {
        counts.extend(EventDirection::ALL.iter().map(|direction| ((&*it.tenant, &*it.partner, *direction), 0)));
    }
    counts.extend(failures.iter().map(|it| ((&*it.tenant, &*it.partner, it.direction), it.count)));
    if counts.is_empty() {
        return;
    }
    let name = "annals_partner_exhausted";
    family(out, name, "gauge", "Partner events that failed their last attempt and need an operator.");
    for ((tenant, partner, direction), count) in counts {
        let (tenant, partner, direction) = (label(tenant), label(partner), direction.as_str());
        line(
            out,
            format_args!("{name}{{tenant=\"{tenant}\",partner=\"{partner}\",direction=\"{direction}\"}} {count}"),
        );
    }
}
