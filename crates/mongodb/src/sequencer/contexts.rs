//! Commits of contexts other than the log's. They get numbers like all others: Wow's reader does not check the context of a commit, and
//! the log must contain what it reads. Each such context is reported, because two applications may be writing to one database by mistake.
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
/// Maximum number of contexts that are recorded, and of bytes of a name. These are enough to show a mistake.
const NOTED_MAX: usize = 50;
const NAME_BYTES_MAX: usize = 200;

/// The other contexts that this process has met as leader.
#[derive(Default)]
pub(super) struct Contexts(BTreeSet<String>);

impl Contexts {
    /// Records the contexts of these commits, and warns about each new one.
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
                "commits of another context are in this database; they get numbers like all others"
            );
            let state = log.database.collection::<Document>(SEQUENCER);
            let noted = doc! { "$addToSet": { "others": other } };
            state.update_one(doc! { "_id": ID }, noted).upsert(true).await?;
        }
        Ok(())
    }
}

/// Returns the other contexts that any leader of this log has met, oldest first.
///
/// # Errors
/// The driver's.
pub(crate) async fn others(database: &Database) -> mongodb::error::Result<Vec<String>> {
    let state = database.collection::<RawDocumentBuf>(SEQUENCER);
    let Some(found) = state.find_one(doc! { "_id": ID }).await? else { return Ok(Vec::new()) };
    let names = found.get_array("others").ok().into_iter().flatten();
    Ok(names.filter_map(|name| name.ok()?.as_str().map(str::to_owned)).collect())
}
