//! How far a log reaches, according to each collection that records it. They change together in one transaction, so if they differ, other
//! software has assigned numbers.

use annals_core::{SequenceNumber, Uuid};
use mongodb::Database;
use mongodb::bson::{RawDocumentBuf, doc};

use crate::identity::ADOPTED;
use crate::layout::fields::{boolean, natural, text};
use crate::layout::guid;
use crate::layout::names::{ENTRIES, EVENT_LOG, EVENT_LOG_METADATA, IDENTITY, SEQUENCER};
use crate::moment::{Moment, Tries};
use crate::refused::{Code, OpenError, asking};

/// The extent of a log at one point in time, since a sequencer may be active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reach {
    /// `event-log-metadata.NextEventOffset`, if it exists.
    pub(crate) next: Option<SequenceNumber>,
    /// Whether it exists and is not a whole number.
    malformed: bool,
    /// The number after the last event.
    pub(crate) events: SequenceNumber,
    /// The number after the last entry.
    pub(crate) entries: SequenceNumber,
    /// The number after the adopted part. The last events of that part may have been deleted by then.
    pub(crate) adopted: Option<SequenceNumber>,
    /// Whether an adoption was begun and not finished.
    pub(crate) under_way: bool,
    /// Whether Annals has used the database before.
    pub(crate) opened: bool,
    /// The id of the store, if one was opened here.
    pub(crate) store: Option<Uuid>,
    /// Whether Annals has assigned numbers here.
    pub(crate) numbered: bool,
}

impl Reach {
    /// Returns the number after what Annals knows.
    pub(crate) fn known(&self) -> SequenceNumber {
        self.entries.max(self.adopted.unwrap_or(0))
    }

    /// Returns the number that the next event must get, whichever software assigned the earlier ones.
    pub(crate) fn end(&self) -> SequenceNumber {
        self.known().max(self.events).max(self.next.unwrap_or(0))
    }

    fn as_due(&self) -> bool {
        let known = self.known();
        let events = self.events == known || (self.adopted == Some(known) && self.events < known);
        events && self.next.unwrap_or(0) == known && !self.under_way
    }
}

/// Reads the extent of a log.
pub(crate) async fn read(database: &Database) -> mongodb::error::Result<Reach> {
    let mut tries = Tries::default();
    loop {
        match look(database).await {
            Err(error) if tries.again(&error).await => {}
            other => return other,
        }
    }
}

async fn look(database: &Database) -> mongodb::error::Result<Reach> {
    let Moment { database, mut session } = Moment::of(database).await?;
    let mut reach = Reach::default();
    let metadata = database.collection::<RawDocumentBuf>(EVENT_LOG_METADATA);
    let next = metadata.find_one(doc! { "_id": EVENT_LOG }).session(&mut session).await?;
    reach.next = next.as_deref().and_then(|found| natural(found, "NextEventOffset"));
    reach.malformed = next.is_some() && reach.next.is_none();
    for name in [EVENT_LOG, ENTRIES] {
        let documents = database.collection::<RawDocumentBuf>(name);
        let last = documents.find_one(doc! {}).sort(doc! { "_id": -1 }).session(&mut session).await?;
        let Some(last) = last else { continue };
        let count = if name == ENTRIES { natural(&last, "n") } else { Some(1) };
        let end = natural(&last, "_id").unwrap_or(0) + count.unwrap_or(0);
        if name == ENTRIES { reach.entries = end } else { reach.events = end }
    }
    let store = database.collection::<RawDocumentBuf>(IDENTITY);
    let mut found = store.find(doc! {}).session(&mut session).await?;
    while let Some(document) = found.next(&mut session).await.transpose()? {
        match text(&document, "_id") {
            Some(ADOPTED) => {
                reach.adopted = natural(&document, "head");
                reach.under_way = boolean(&document, "underWay").unwrap_or(false);
            }
            _ => {
                reach.opened = true;
                reach.store = guid::uuid(&document, "storeId").or(reach.store);
            }
        }
    }
    let state = database.collection::<RawDocumentBuf>(SEQUENCER);
    let state = state.find_one(doc! { "_id": EVENT_LOG }).projection(doc! { "next": 1 }).session(&mut session).await?;
    reach.numbered =
        reach.entries > 0 || state.is_some_and(|state| natural(&state, "next").is_some_and(|next| next > 0));
    Ok(reach)
}

/// Checks that only Annals has assigned numbers. Writes nothing.
///
/// # Errors
/// `not_adopted` if a log was written before Annals was used, `foreign_numbers` if it was written concurrently, `unreachable`.
pub(crate) async fn judge(database: &Database) -> Result<Reach, OpenError> {
    let reach = read(database).await.map_err(|error| asking(database.name(), &error))?;
    fault(database.name(), &reach).map_or(Ok(reach), Err)
}

/// Returns what is wrong with the log of an open store. Unlike [`fault`], it reports missing documents, which opening creates.
pub(crate) fn fault_of_open(database: &str, reach: &Reach) -> Option<OpenError> {
    if reach.opened && reach.next.is_some() {
        return fault(database, reach);
    }
    if reach.malformed {
        return Some(malformed(database, reach));
    }
    let message = format!(
        "database {database}: it has no {IDENTITY} or no {EVENT_LOG_METADATA} any more, so other software has dropped it; put it back from a \
         backup, or open the store again to begin a new one"
    );
    Some(OpenError::new(Code::StoreDamaged, message))
}

fn malformed(database: &str, reach: &Reach) -> OpenError {
    let message = format!(
        "database {database}: NextEventOffset in the document {EVENT_LOG:?} of {EVENT_LOG_METADATA} is no whole number from 0, so other \
         software has changed it; set it to {}, the number after the last event",
        reach.known()
    );
    OpenError::new(Code::StoreDamaged, message)
}

/// Returns what is wrong with a log.
pub(crate) fn fault(database: &str, reach: &Reach) -> Option<OpenError> {
    if reach.as_due() {
        return None;
    }
    if reach.malformed {
        return Some(malformed(database, reach));
    }
    let Reach { events, entries, .. } = reach;
    if reach.under_way || (reach.adopted.is_none() && (!reach.opened || !reach.numbered)) {
        let begun = if reach.under_way { ", or not to the end" } else { "" };
        let message = format!(
            "database {database} holds {EVENT_LOG} with numbers up to {events}, and Annals has not adopted it{begun}"
        );
        return Some(OpenError::new(Code::NotAdopted, message));
    }
    let next = reach.next.map_or("missing".to_owned(), |next| next.to_string());
    let found = format!(
        "database {database}: {EVENT_LOG} reaches to {events}, {ENTRIES} to {entries}, and NextEventOffset is {next}"
    );
    // Software that assigns numbers only adds; a lower end means that a collection was dropped or truncated.
    let lost = *events < reach.known() || reach.next.is_none() || (reach.adopted.is_none() && *entries == 0);
    Some(match lost {
        true => {
            let message = format!(
                "{found}: other software has dropped or deleted what had numbers; put it back from a backup of the database"
            );
            OpenError::new(Code::StoreDamaged, message)
        }
        false => {
            let message = format!(
                "{found}: events were numbered by other software, most often a Dolittle Runtime that was not stopped"
            );
            OpenError::new(Code::ForeignNumbers, message)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(reach: Reach) -> Option<Code> {
        fault("db", &reach).map(|error| error.code)
    }

    #[test]
    fn a_database_that_was_dropped_under_an_open_store_is_damage() {
        let due = Reach { next: Some(5), events: 5, entries: 5, opened: true, numbered: true, ..Reach::default() };
        let code = |reach| fault_of_open("db", &reach).map(|error| error.code);
        assert_eq!(code(due), None);
        assert_eq!(code(Reach { next: Some(0), opened: true, ..Reach::default() }), None, "just begun");
        assert_eq!(code(Reach { events: 6, ..due }), Some(Code::ForeignNumbers));
        assert_eq!(code(Reach::default()), Some(Code::StoreDamaged));
        assert_eq!(code(Reach { next: None, ..due }), Some(Code::StoreDamaged));
        assert_eq!(code(Reach { opened: false, ..due }), Some(Code::StoreDamaged));
    }

    #[test]
    fn a_log_is_as_due_when_all_say_the_same() {
        let due = Reach { next: Some(5), events: 5, entries: 5, opened: true, numbered: true, ..Reach::default() };
        assert_eq!(code(Reach::default()), None);
        assert_eq!(code(due), None);
        assert_eq!(code(Reach { next: Some(7), events: 5, entries: 5, adopted: Some(7), ..due }), None, "deleted");
        assert_eq!(code(Reach { adopted: Some(5), under_way: true, ..due }), Some(Code::NotAdopted));
        assert_eq!(code(Reach { events: 6, ..due }), Some(Code::ForeignNumbers));
        assert_eq!(code(Reach { next: Some(6), events: 6, ..due }), Some(Code::ForeignNumbers));
        assert_eq!(code(Reach { next: Some(6), ..due }), Some(Code::ForeignNumbers));
        assert_eq!(code(Reach { events: 6, adopted: Some(5), ..due }), Some(Code::ForeignNumbers));
        assert_eq!(code(Reach { events: 3, ..due }), Some(Code::StoreDamaged), "the end of the log is gone");
        assert_eq!(code(Reach { events: 0, ..due }), Some(Code::StoreDamaged));
        assert_eq!(code(Reach { next: None, ..due }), Some(Code::StoreDamaged));
        assert_eq!(code(Reach { entries: 0, ..due }), Some(Code::StoreDamaged), "the entries are gone");
        assert_eq!(code(Reach { entries: 0, numbered: false, ..due }), Some(Code::NotAdopted), "a Runtime's");
        assert_eq!(code(Reach { next: None, events: 3, ..Reach::default() }), Some(Code::NotAdopted));
        assert_eq!(code(Reach { next: Some(3), events: 3, ..Reach::default() }), Some(Code::NotAdopted));
    }
}
