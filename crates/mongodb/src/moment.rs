//! Reads several collections of a database at one point in time.

use std::time::Duration;

use annals_system::sleep;
use mongodb::error::{Error, Result};
use mongodb::options::{DatabaseOptions, ReadConcern};
use mongodb::{ClientSession, Database};

use crate::refused::code_of;

/// A snapshot at majority, from the primary.
pub(crate) struct Moment {
    /// For finds and aggregations within the session. It carries the read concern explicitly, because the driver keeps a configured one.
    /// With the client's own (majority), the first response would have no timestamp, and each read would be of another point in time.
    pub(crate) database: Database,
    pub(crate) session: ClientSession,
}

impl Moment {
    /// Opens a snapshot of the present, which the first read fixes.
    pub(crate) async fn of(database: &Database) -> Result<Self> {
        let client = database.client();
        let options = DatabaseOptions::builder().read_concern(ReadConcern::snapshot()).build();
        let session = client.start_session().snapshot(true).await?;
        Ok(Self { database: client.database_with_options(database.name(), options), session })
    }
}

/// How often a snapshot that could not be read is retried, with a pause before each retry.
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(50);

/// The number of attempts to read a snapshot.
#[derive(Default)]
pub(crate) struct Tries(usize);

impl Tries {
    /// Returns whether to retry, after a pause: a collection or an index that was just created is in no snapshot yet.
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
