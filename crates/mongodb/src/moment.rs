//! One moment of a database: reads of several collections that belong together.

use std::time::Duration;

use annals_system::sleep;
use mongodb::error::{Error, Result};
use mongodb::options::{DatabaseOptions, ReadConcern};
use mongodb::{ClientSession, Database};

use crate::refused::code_of;

/// A snapshot at majority, from the primary.
pub(crate) struct Moment {
    /// For finds and aggregations within the session. The read concern stands on it, because the driver leaves one that is configured as
    /// it is: with the client's own (majority) the first answer would name no time, and each read be of another moment.
    pub(crate) database: Database,
    pub(crate) session: ClientSession,
}

impl Moment {
    /// The present one, which the first read fixes.
    pub(crate) async fn of(database: &Database) -> Result<Self> {
        let client = database.client();
        let options = DatabaseOptions::builder().read_concern(ReadConcern::snapshot()).build();
        let session = client.start_session().snapshot(true).await?;
        Ok(Self { database: client.database_with_options(database.name(), options), session })
    }
}

/// How often a moment that could not be read is followed by another, with a pause before each.
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(50);

/// Tries so far to read a moment.
#[derive(Default)]
pub(crate) struct Tries(usize);

impl Tries {
    /// Whether to try again: a collection or an index that was made a moment ago is in no snapshot yet. Waits before that.
    pub(crate) async fn again(&mut self, error: &Error) -> bool {
        const SNAPSHOT_UNAVAILABLE: i32 = 246;
        self.0 += 1;
        let again = self.0 < TRIES && code_of(error) == Some(SNAPSHOT_UNAVAILABLE);
        if again {
            sleep(PAUSE).await;
        }
        again
    }
}
