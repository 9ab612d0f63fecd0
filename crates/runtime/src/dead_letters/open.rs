//! Reads the open letters of a consumer page by page, in the order of their keys: what its owner needs to know of each.

use std::sync::Arc;

use annals_core::dead_letters::{DEAD_LETTERS, DeadLetter};
use annals_core::{Condition, Projection, RecordError, RecordQuery, Records, limits};

/// An open letter.
pub(crate) struct OpenLetter {
    pub key: String,
    pub position: i64,
    /// Whether later letters of its key wait for it.
    pub holds: bool,
}

/// The open letters of one consumer. Each is read once, however many keys they have, in memory for one page.
pub(crate) struct OpenLetters {
    records: Arc<dyn Records>,
    /// The query of the next page; `None` after the last one.
    query: Option<RecordQuery>,
}

impl OpenLetters {
    pub fn of(records: &Arc<dyn Records>, processor: &str) -> Self {
        let open = Condition::and([Condition::eq("processor", processor), DeadLetter::open()]);
        let query = RecordQuery::new(DEAD_LETTERS)
            .matching(open)
            .ascending("key")
            .ascending("position")
            .projection(Projection::only(["key", "position", "holds"]))
            .limit(limits::PAGE_MAX);
        Self { records: Arc::clone(records), query: Some(query) }
    }

    /// Returns the next page, or `None` after the last one.
    pub async fn next_page(&mut self) -> Result<Option<Vec<OpenLetter>>, RecordError> {
        let Some(query) = self.query.take() else { return Ok(None) };
        let page = match self.records.find(query.clone()).await {
            // There has never been a letter.
            Err(RecordError::UnknownCollection(_)) => return Ok(None),
            page => page?,
        };
        self.query = page.next.map(|cursor| query.after(cursor));
        let letters = page.records.iter().filter_map(|record| {
            let document = &record.document;
            Some(OpenLetter {
                key: document.get_str("key").ok()?.to_owned(),
                position: document.get_i64("position").ok()?,
                holds: document.get_bool("holds").ok()?,
            })
        });
        Ok(Some(letters.collect()))
    }
}
