//! Inspects a Dolittle Runtime's event log: which events are to be adopted, which cannot be read, and which UUIDs need names.

use std::collections::BTreeMap;

use annals_core::{Code, SequenceNumber};
use mongodb::Database;
use mongodb::bson::{RawDocument, RawDocumentBuf, doc};
use uuid::Uuid;

use super::commits::Counting;
use super::report::{AdoptReport, FoundLog};
use crate::layout::adopted;
use crate::layout::fields::natural;
use crate::layout::mapping::Kind;
use crate::layout::names::EVENT_LOG;
use crate::reach::Reach;

/// Events after which progress is reported.
const BATCH_MAX: u64 = 500;

/// Maximum number of unreadable events that are listed individually.
const TOLD_MAX: usize = 5;

/// The UUIDs that occur, with the number of events of each.
pub(super) type Uuids = BTreeMap<(Kind, Uuid), u64>;

/// Inspects the events after the sequence numbers that Annals knows.
pub(super) async fn look(
    database: &Database,
    reach: &Reach,
    report: &mut AdoptReport,
    progress: &mut Counting<'_, '_>,
) -> mongodb::error::Result<(FoundLog, Uuids)> {
    let mut found = FoundLog { next: reach.end(), ..FoundLog::default() };
    let (mut uuids, mut malformed, mut told) = (Uuids::new(), 0, Vec::new());
    let mut due: SequenceNumber = reach.known();
    let events = database.collection::<RawDocumentBuf>(EVENT_LOG);
    // An `_id` that is not a number sorts before or after all numbers, so the range must not exclude it.
    let mut cursor = events.find(doc! { "_id": { "$not": { "$lt": due as i64 } } }).sort(doc! { "_id": 1 }).await?;
    while cursor.advance().await? {
        let document = cursor.current();
        match adopted::find(document) {
            Ok(event) => {
                found.to_take_in += 1;
                if event.number > due {
                    let count = event.number - due;
                    found.holes += count;
                    report.find("hole", format!("{EVENT_LOG}: {count} events from number {due} on were deleted"));
                }
                due = event.number + 1;
                *uuids.entry((Kind::Event, event.event_type)).or_default() += 1;
                match &event.applied {
                    Some(applied) => *uuids.entry((Kind::Aggregate, applied.aggregate)).or_default() += 1,
                    None => found.of_no_aggregate += 1,
                }
                found.redacted += u64::from(document.get("RedactedBy").is_ok_and(|it| it.is_some()));
            }
            Err(why) => {
                malformed += 1;
                if told.len() < TOLD_MAX {
                    told.push(format!("event {}: {why}", number_of(document)));
                }
            }
        }
        if (found.to_take_in + malformed).is_multiple_of(BATCH_MAX) {
            progress.advance(BATCH_MAX);
        }
    }
    found.holes += found.next.saturating_sub(due);
    if malformed > 0 {
        let more = match malformed - told.len() as u64 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let (name, told) = (database.name(), told.join(", "));
        let message =
            format!("{name}.{EVENT_LOG} holds events that cannot be read: {told}{more}; mend or remove them by hand");
        report.obstruct(Code::CannotAdopt, message);
    }
    Ok((found, uuids))
}

fn number_of(document: &RawDocument) -> String {
    let number = natural(document, "_id").map(|number| number.to_string());
    number.unwrap_or_else(|| format!("{:?}", document.get("_id").ok().flatten()))
}
