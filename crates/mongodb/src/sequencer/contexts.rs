//! Commits of other contexts than the log's: they get numbers like all others, because Wow's reader does not ask whose a commit is, and a
//! log without them would not be what it reads. A person is told of each such context: two applications may write to one database by
//! mistake.
//!
//! ```text
//! sequencer-state: {_id: "contexts", others: [names]}     once noted, always there
//! ```

use std::collections::BTreeSet;

use mongodb::Database;
use mongodb::bson::{Document, RawDocumentBuf, doc};

use super::stream::Incoming;
use crate::layout::fields::text;
use crate::layout::names::SEQUENCER;
use crate::log::Log;

const ID: &str = "contexts";
/// Contexts that are noted, and bytes of their names: what is more is a mistake that these show as well.
const NOTED_MAX: usize = 50;
const NAME_BYTES_MAX: usize = 200;

/// The other contexts that this process has met while it leads.
#[derive(Default)]
pub(super) struct Contexts(BTreeSet<String>);

impl Contexts {
    /// Takes note of the contexts of these commits, and warns of each that is new.
    ///
    /// # Errors
    /// The driver's.
    pub(super) async fn note(&mut self, log: &Log, commits: &[Incoming]) -> mongodb::error::Result<()> {
        for commit in commits {
            let other = text(&commit.document, "contextName").filter(|context| *context != log.context);
            let Some(other) = other.filter(|other| !self.0.contains(*other)) else { continue };
            if self.0.len() >= NOTED_MAX || other.len() > NAME_BYTES_MAX {
                continue;
            }
            self.0.insert(other.to_owned());
            let (database, collection, own) = (log.database.name(), &commit.collection, &log.context);
            tracing::warn!(
                database,
                collection,
                context = other,
                own,
                "commits of another context are in this database; they get sequence numbers like all others"
            );
            let state = log.database.collection::<Document>(SEQUENCER);
            let noted = doc! { "$addToSet": { "others": other } };
            state.update_one(doc! { "_id": ID }, noted).upsert(true).await?;
        }
        Ok(())
    }
}

/// The other contexts that any sequencer of this log has met, in the order of meeting.
///
/// # Errors
/// The driver's.
pub(crate) async fn others(database: &Database) -> mongodb::error::Result<Vec<String>> {
    let state = database.collection::<RawDocumentBuf>(SEQUENCER);
    let Some(found) = state.find_one(doc! { "_id": ID }).await? else { return Ok(Vec::new()) };
    let names = found.get_array("others").ok().into_iter().flatten();
    Ok(names.filter_map(|name| name.ok()?.as_str().map(str::to_owned)).collect())
}
