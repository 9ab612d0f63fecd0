//! The commands that create collections and indexes, for the layouts of commits and streams and for records.
//!
//! The server lists an index as soon as a process begins to build it. The build may still fail, and a majority does not have the index yet.
//! So a process that relies on an index sends it again, also if it is listed: for `createIndexes`, the server waits until it is built or
//! builds it itself, and for the majority also if there is nothing to do.

use std::time::Duration;

use annals_system::sleep;
use mongodb::Database;
use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind};

use crate::refused::{WriteRefused, code_of, passes};

/// How often a command is sent again while another primary is elected, which takes seconds, and the pause before that.
const TRIES: u32 = 60;
const PAUSE: Duration = Duration::from_millis(250);

/// The server's error code for a document that violates a unique index.
pub(crate) const DUPLICATE_KEY: i32 = 11000;
/// The server's error codes for an index that exists with another definition or under another name.
pub(crate) const CONFLICTS: [i32; 2] = [85, 86];
/// The server's error code for a collection that exists.
pub(crate) const NAMESPACE_EXISTS: i32 = 48;

/// Returns the command that lists the indexes of a collection.
pub(crate) fn list_indexes(collection: &str) -> Document {
    doc! { "listIndexes": collection, "cursor": { "batchSize": 200 } }
}

/// Returns the indexes in the answer to [`list_indexes`], also those that the server is still building; `None` if there is no such
/// collection.
///
/// # Errors
/// The driver's.
pub(crate) fn listed(answer: mongodb::error::Result<Document>) -> mongodb::error::Result<Option<Vec<Document>>> {
    const NAMESPACE_NOT_FOUND: i32 = 26;
    match answer {
        Ok(answer) => {
            let batch = answer.get_document("cursor").ok().and_then(|cursor| cursor.get_array("firstBatch").ok());
            Ok(Some(batch.into_iter().flatten().filter_map(|index| index.as_document().cloned()).collect()))
        }
        Err(error) if code_of(&error) == Some(NAMESPACE_NOT_FOUND) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the command that creates these indexes, and the collection if it is missing. In a single command, the server creates all or none
/// of them and keeps their order. Existing ones belong into it too.
pub(crate) fn create_indexes(collection: &str, indexes: Vec<Document>) -> Document {
    doc! { "createIndexes": collection, "indexes": indexes, "writeConcern": { "w": "majority" } }
}

/// Returns the command that creates a collection.
pub(crate) fn create(collection: &str) -> Document {
    doc! { "create": collection, "writeConcern": { "w": "majority" } }
}

/// Sends a command. It fails also if the server has done its part, but no majority confirms that: the driver checks this only for the
/// commands that it knows.
///
/// # Errors
/// The driver's, and the server's.
pub(crate) async fn send(database: &Database, command: Document) -> mongodb::error::Result<Document> {
    let answer = database.run_command(command).await?;
    if let Ok(unconfirmed) = answer.get_document("writeConcernError") {
        let code = unconfirmed.get_i32("code").unwrap_or(0);
        let why = unconfirmed.get_str("errmsg").unwrap_or("the server gave no reason");
        return Err(WriteRefused { code, message: format!("no majority has confirmed it: {why}") }.into());
    }
    Ok(answer)
}

/// Sends a command that may be repeated. The driver does not repeat it by itself, and a first write waits for an election like any other.
///
/// # Errors
/// As for [`send`], after 15 s of errors that pass.
pub(crate) async fn send_again(database: &Database, command: Document) -> mongodb::error::Result<Document> {
    let is_passing = |error: &Error| {
        let is_cut = matches!(&*error.kind, ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. });
        // Also if a majority has not confirmed it, for whatever reason.
        passes(error) || is_cut || error.get_custom::<WriteRefused>().is_some()
    };
    let mut tries = 0;
    loop {
        match send(database, command.clone()).await {
            Err(error) if is_passing(&error) && tries < TRIES => tries += 1,
            answer => return answer,
        }
        sleep(PAUSE).await;
    }
}
