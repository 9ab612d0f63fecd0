//! The books of a party.

use annals::{EventLog, LogQuery};

use crate::{Failure, Role};

/// A line of the books: `order` or `invoice`, the id of the order, and the amount.
pub type Line = (&'static str, String, i64);

/// The books of a party. They have a line for each event, so that an event which was committed twice appears twice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Books {
    /// The lines, sorted.
    pub lines: Vec<Line>,
}

impl Books {
    /// Reads the books of a party from its log.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn read(log: &dyn EventLog, role: Role) -> Result<Self, Failure> {
        let mut lines = Vec::new();
        let mut query = LogQuery::default();
        loop {
            let page = log.read(query.clone()).await?;
            for event in &page.events {
                let Some(kind) = role.kind_of(&event.event_type) else { continue };
                let amount = event.data.as_raw().get_i64("amount")?;
                lines.push((kind, event.commit.aggregate.id.to_string(), amount));
            }
            if page.events.is_empty() {
                break;
            }
            query.from = Some(page.next);
        }
        lines.sort_unstable();
        Ok(Self { lines })
    }

    /// Returns the lines of a kind.
    pub fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Line> {
        self.lines.iter().filter(move |(known, ..)| *known == kind)
    }

    /// Returns the sum of the lines of a kind.
    pub fn total(&self, kind: &str) -> i64 {
        self.of(kind).map(|(_, _, amount)| amount).sum()
    }
}
