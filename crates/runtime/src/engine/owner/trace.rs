//! The spans of deliveries. A span begins when its event is handed out, and ends when the delivery is settled or its lease expires.

use std::collections::HashMap;
use std::sync::Arc;

use annals_core::processing::{Taken, shortened};
use annals_core::trace::{BegunSpan, EndedSpan, SpanKind, SpanValue, Spans, TraceContext};
use annals_core::{ByteString, RecordedEvent, Timestamp};

/// The spans of deliveries in flight, by token. Empty if no spans are recorded.
pub(super) struct Traces {
    spans: Option<Arc<dyn Spans>>,
    tenant: String,
    /// The name of the handler or group.
    name: ByteString,
    open: HashMap<u64, Open>,
}

struct Open {
    begun: BegunSpan,
    partition: ByteString,
    sequence_number: u64,
    event_type: ByteString,
    attempt: u32,
    until: Timestamp,
}

impl Traces {
    pub fn new(spans: Option<Arc<dyn Spans>>, tenant: &str, name: ByteString) -> Self {
        Self { spans, tenant: tenant.to_owned(), name, open: HashMap::new() }
    }

    /// Begins the span of a delivery as a child of the span that the event's commit names. Returns the parent for the worker's spans.
    pub fn begin(&mut self, taken: &Taken, event: &RecordedEvent, until: Timestamp) -> Option<TraceContext> {
        let parent = TraceContext::of_header(&event.commit.header);
        let Some(begun) = self.spans.as_ref().and_then(|spans| spans.begin(parent)) else { return parent };
        let open = Open {
            begun,
            partition: taken.event.partition.clone(),
            sequence_number: taken.event.sequence_number,
            event_type: event.event_type.clone(),
            attempt: taken.attempt,
            until,
        };
        self.open.insert(taken.token, open);
        Some(begun.context)
    }

    /// Ends the span of a delivery that was settled. After a failure, other deliveries of its partition are handed out again, with spans
    /// of their own.
    pub fn end(&mut self, token: u64, failure: Option<&str>) {
        let Some(open) = self.open.remove(&token) else { return };
        if failure.is_some() {
            self.open.retain(|_, other| other.partition != open.partition);
        }
        self.record(open, failure);
    }

    /// Discards the spans of deliveries that did not reach a worker.
    pub fn forget(&mut self, taken: &[Taken]) {
        taken.iter().for_each(|taken| drop(self.open.remove(&taken.token)));
    }

    /// Ends the spans of deliveries whose leases have expired.
    pub fn expire(&mut self, now: Timestamp) {
        let ended: Vec<Open> = self.open.extract_if(|_, open| open.until <= now).map(|(_, open)| open).collect();
        ended.into_iter().for_each(|open| self.record(open, Some("its lease ended before it was settled")));
    }

    fn record(&self, open: Open, failure: Option<&str>) {
        let Some(spans) = &self.spans else { return };
        let text = |text: &str| SpanValue::Text(text.into());
        spans.end(EndedSpan {
            begun: open.begun,
            name: format!("handle {}", self.name),
            kind: SpanKind::Consumer,
            attributes: vec![
                ("annals.tenant", text(&self.tenant)),
                ("annals.handler", SpanValue::Text(self.name.clone())),
                ("annals.partition", SpanValue::Text(open.partition)),
                ("annals.sequence_number", SpanValue::Number(open.sequence_number.cast_signed())),
                ("annals.event_type", SpanValue::Text(open.event_type)),
                ("annals.attempt", SpanValue::Number(open.attempt.into())),
            ],
            failure: failure.map(|failure| shortened(failure.to_owned())),
        });
    }
}
