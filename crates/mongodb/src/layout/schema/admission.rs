//! Decides whether commits may be inserted into a collection. The first collection of a name is registered. One that replaced another is
//! admitted once the sequencer has processed everything stored in the old one (`layout/register.rs`).

use std::time::Duration;

use annals_system::{Instant, sleep};
use uuid::Uuid;

use super::{Ready, Schema};
use crate::layout::register;
use crate::reach;
use crate::refused::{Code, OpenError, asking};

/// How long a caller waits for the admission of a collection, the interval between two checks, and the interval between two requests.
/// Requests are repeated because a leader may die after it has seen one.
const ADMISSION_TIME: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(25);
const ASK_EVERY: Duration = Duration::from_millis(500);

impl Schema {
    /// Registers the collection, or waits until it is admitted in place of the registered one. Returns `None` if another one is registered
    /// in the meantime.
    pub(super) async fn admitted(
        &self,
        collection: &str,
        uuid: Uuid,
        mut registered: Option<register::Registered>,
    ) -> Result<Option<Ready>, OpenError> {
        let database = &self.database;
        let place = format!("{}.{collection}", database.name());
        let failed = |error: mongodb::error::Error| asking(&place, &error);
        let ends = Instant::now() + ADMISSION_TIME;
        let mut last: Option<Instant> = None;
        loop {
            let Some(found) = &registered else {
                let begun = register::begin(database, collection, uuid).await.map_err(failed)?;
                return Ok(begun.then_some(Ready { uuid, replaced: false }));
            };
            if found.admits(uuid) {
                return Ok(Some(Ready { uuid, replaced: found.replaced }));
            }
            if last.is_some() && found.uuid != Some(uuid) {
                return Ok(None);
            }
            if last.is_none_or(|last| last.elapsed() >= ASK_EVERY) {
                let asked = register::ask(database, collection, found, uuid).await.map_err(failed)?;
                if last.is_none() && asked {
                    tracing::warn!(
                        database = database.name(),
                        collection,
                        "the collection is another one than before; commits wait until the log has everything of that one"
                    );
                }
                // The registration is read again in any case: another process's request for this collection serves as well.
                last = Some(Instant::now());
            } else if Instant::now() >= ends {
                let message = format!(
                    "{place} was dropped or renamed by other software, and commits that were stored in it may have no sequence numbers \
                     yet; commits to it are refused until they have; retry"
                );
                return Err(OpenError::new(Code::NotReady, message));
            }
            sleep(LOOK_EVERY).await;
            registered = register::read(database, collection).await.map_err(failed)?;
        }
    }

    /// Checks that the log exists and is the one that was opened: no collection is created in a database that was dropped.
    pub(super) async fn log_is_there(&self) -> Result<(), OpenError> {
        let Some((store, _)) = &self.log else { return Ok(()) };
        let name = self.database.name();
        let reach = reach::read(&self.database).await.map_err(|error| asking(name, &error))?;
        if let Some(fault) = reach::fault_of_open(name, &reach) {
            return Err(fault);
        }
        if reach.store == Some(*store) {
            return Ok(());
        }
        let message = format!(
            "database {name}: it was dropped by other software, and another store was begun in it; open the store again"
        );
        Err(OpenError::new(Code::StoreDamaged, message))
    }
}
