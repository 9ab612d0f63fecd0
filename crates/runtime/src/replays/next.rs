//! The next events of a replay: the browse view determines which ones and their order, and the log supplies the events.

use std::collections::BTreeMap;

use annals_core::browse::number_of;
use annals_core::bson::raw::{RawDocument, RawDocumentBuf};
use annals_core::bson::{Bson, DateTime};
use annals_core::replays::{After, ReplayBody, ReplayOrder, ReplaySession};
use annals_core::{Condition, LogQuery, Projection, RecordQuery, RecordedEvent, limits};

use super::{ReplayError, TenantReplays};
use crate::browse::below;

/// Sequence numbers that are at most this far apart are read in one page.
const GAP_MAX: u64 = 8;

/// The next event of a replay.
pub(super) struct Next {
    pub after: After,
    /// The event. `None` for a document that does not belong to an event of this log, or that has the number of one but another id. Other
    /// software may have written anything into the view, and the filter selected it.
    pub event: Option<RecordedEvent>,
}

/// Returns the query of a session's events after its position. It returns only their ids and times, because the events themselves are
/// read from the log.
pub(super) fn query_of(session: &ReplaySession, body: &ReplayBody) -> RecordQuery {
    let mut all = vec![selected(session, body)];
    let query = RecordQuery { projection: Projection::only(["event_id", "timestamp"]), ..RecordQuery::new("") };
    let query = match body.order {
        ReplayOrder::SequenceNumber => query,
        ReplayOrder::Timestamp => query.ascending("timestamp"),
    };
    if let Some(id) = session.annals.after_id.clone() {
        match (body.order, session.annals.after_time.clone()) {
            (ReplayOrder::Timestamp, Some(time @ Bson::DateTime(_))) => {
                all.push(Condition::gte("timestamp", time.clone()));
                all.push(Condition::or([Condition::gt("timestamp", time), Condition::gt("_id", id)]));
            }
            // A document of other software, whose time is a number or a string. It sorts before documents with a date.
            (ReplayOrder::Timestamp, Some(other)) => {
                let equal = Condition::and([Condition::eq("timestamp", other.clone()), Condition::gt("_id", id)]);
                let dated = Condition::gte("timestamp", DateTime::MIN);
                all.push(Condition::or([equal, Condition::gt("timestamp", other), dated]));
            }
            // Documents without a time come first.
            (ReplayOrder::Timestamp, None) => {
                let rest = Condition::and([Condition::is_null("timestamp"), Condition::gt("_id", id)]);
                all.push(Condition::or([Condition::not_null("timestamp"), rest]));
            }
            (ReplayOrder::SequenceNumber, _) => all.push(Condition::gt("_id", id)),
        }
    }
    query.matching(Condition::and(all))
}

/// Returns the condition for all events of a session.
pub(super) fn selected(session: &ReplaySession, body: &ReplayBody) -> Condition {
    Condition::and([body.filter.condition(), below(session.annals.until.cast_unsigned())])
}

/// Returns the position of a document of the view in the order of a replay.
fn place_of(document: &RawDocument) -> After {
    let value = |name: &str| document.get(name).ok().flatten().and_then(|value| Bson::try_from(value).ok());
    let time = value("timestamp").filter(|time| *time != Bson::Null);
    let event_id = document.get_str("event_id").ok().map(str::to_owned);
    After { time, id: value("_id").unwrap_or(Bson::Null), event_id }
}

impl TenantReplays {
    /// Reads the events of documents of the view.
    pub(super) async fn events_of(&self, documents: &[RawDocumentBuf]) -> Result<Vec<Next>, ReplayError> {
        let places: Vec<_> = documents.iter().map(|document| place_of(document)).collect();
        let numbers = places.iter().filter_map(|place| number_of(&place.id)).collect();
        let mut events = self.numbered(numbers).await?;
        let next = |after: After| {
            let event = number_of(&after.id).and_then(|number| events.remove(&number));
            let is_its = |event: &RecordedEvent| after.event_id.as_deref() == Some(&*event.id.hyphenated().to_string());
            let event = event.filter(is_its);
            Next { after, event }
        };
        Ok(places.into_iter().map(next).collect())
    }

    /// Reads events by their sequence numbers.
    pub(super) async fn numbered(&self, mut numbers: Vec<u64>) -> Result<BTreeMap<u64, RecordedEvent>, ReplayError> {
        numbers.sort_unstable();
        let mut events = BTreeMap::new();
        let mut rest = &*numbers;
        while let Some(first) = rest.first() {
            let count = 1 + rest.windows(2).take_while(|pair| pair[1] - pair[0] <= GAP_MAX).count();
            let last = rest[count - 1];
            let mut from = *first;
            while from <= last {
                let limit = usize::try_from(last - from + 1).unwrap_or(limits::PAGE_MAX).min(limits::PAGE_MAX);
                let page = self.log.read(LogQuery { from: Some(from), limit, ..LogQuery::default() }).await?;
                if page.events.is_empty() {
                    break;
                }
                from = page.next;
                events.extend(page.events.into_iter().map(|event| (event.sequence_number, event)));
            }
            rest = &rest[count..];
        }
        Ok(events)
    }
}
