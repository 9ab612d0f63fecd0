//! Metrics of work queues.

use annals_core::queue::QueuePriority;
use annals_runtime::TenantQueueStatus;

use super::{family, label, line};

/// A metric of a work queue: name, type, help, value.
type OfQueue = (&'static str, &'static str, &'static str, fn(&TenantQueueStatus) -> u64);

/// Writes the contents of the work queues, which are the same in every process. `None` means that they cannot be read.
pub(super) fn write_queues(out: &mut String, queues: Option<&[TenantQueueStatus]>) {
    const OF_QUEUE: [OfQueue; 9] = [
        ("annals_queue_active", "gauge", "Active items.", |it| it.queue.counts.active),
        ("annals_queue_cap", "gauge", "The most items that may be active.", |it| it.queue.definition.cap.into()),
        ("annals_queue_oldest_seconds", "gauge", "Age of the oldest pending item; 0 when there is none.", |it| {
            it.queue.oldest_seconds
        }),
        ("annals_queue_enqueued_total", "counter", "Items enqueued.", |it| it.queue.counts.enqueued_total),
        ("annals_queue_taken_total", "counter", "Hand-outs of items.", |it| it.queue.counts.taken_total),
        ("annals_queue_done_total", "counter", "Items completed.", |it| it.queue.counts.done_total),
        ("annals_queue_expired_total", "counter", "Leases that ended without a renewal.", |it| {
            it.queue.counts.expired_total
        }),
        ("annals_queue_cancelled_total", "counter", "Items cancelled.", |it| it.queue.counts.cancelled_total),
        ("annals_queue_lost_total", "counter", "Items dropped because their payloads were gone.", |it| {
            it.queue.counts.lost_total
        }),
    ];
    let name = "annals_queues_readable";
    family(out, name, "gauge", "1 while the state of work queues can be read.");
    line(out, format_args!("{name} {}", u8::from(queues.is_some())));
    let queues = queues.unwrap_or_default();
    if queues.is_empty() {
        return;
    }
    let labels = |of: &TenantQueueStatus| {
        format!("tenant=\"{}\",queue=\"{}\"", label(&of.tenant), label(&of.queue.definition.name))
    };
    for (name, kind, help, value) in OF_QUEUE {
        family(out, name, kind, help);
        for of in queues {
            line(out, format_args!("{name}{{{}}} {}", labels(of), value(of)));
        }
    }
    let name = "annals_queue_pending";
    family(out, name, "gauge", "Pending items, by priority.");
    for of in queues {
        for (priority, pending) in QueuePriority::ALL.iter().zip(of.queue.counts.pending.highest_first()) {
            line(out, format_args!("{name}{{{},priority=\"{}\"}} {pending}", labels(of), priority.as_str()));
        }
    }
}
