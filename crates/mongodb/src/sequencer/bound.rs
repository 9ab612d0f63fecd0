//! Binds the collections of a log to their UUIDs: a collection that other software dropped or renamed must not be recreated by an insert,
//! without its indexes and its documents.

use mongodb::bson::RawDocumentBuf;
use mongodb::{ClientSession, Database};
use uuid::Uuid;

use crate::layout::fields::{integer, text};
use crate::layout::index::uuid_of_collection;
use crate::layout::names::{ENTRIES, EVENT_LOG};
use crate::layout::writer::Writer;
use crate::refused::{COLLECTION_UUID_MISMATCH, WriteRefused, code_of, is_garbled};

/// Approximate limit of the bytes of one command; a single larger document is sent alone. The server accepts slightly more than 16 MiB.
const COMMAND_BYTES_MAX: usize = 12 * 1024 * 1024;
/// Maximum number of documents of one command.
const DOCUMENTS_MAX: usize = 10_000;

/// The UUIDs of a log's collections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub(super) events: Uuid,
    pub(super) entries: Uuid,
}

impl Bound {
    /// Reads the UUIDs; `None` if a collection is missing.
    ///
    /// # Errors
    /// The driver's.
    pub(super) async fn of(database: &Database) -> mongodb::error::Result<Option<Self>> {
        let events = uuid_of_collection(database, EVENT_LOG).await?;
        let entries = uuid_of_collection(database, ENTRIES).await?;
        Ok(events.zip(entries).map(|(events, entries)| Self { events, entries }))
    }
}

/// Inserts documents in the session's transaction. Returns false, without inserting anything more, if the collection has been replaced.
///
/// # Errors
/// Errors of the driver, and the server's error for the first document that it refuses.
pub(super) async fn insert(
    database: &Database,
    collection: &str,
    uuid: Uuid,
    documents: &[RawDocumentBuf],
    session: &mut ClientSession,
) -> mongodb::error::Result<bool> {
    let mut rest = documents;
    while !rest.is_empty() {
        let (some, behind) = rest.split_at(fitting(rest));
        rest = behind;
        match database.run_raw_command(command(collection, uuid, some)?).session(&mut *session).await {
            Err(error) if code_of(&error) == Some(COLLECTION_UUID_MISMATCH) => return Ok(false),
            // The message quotes a value of a unique index, and is cut within a character.
            Err(error) if is_garbled(&error) => return Err(WriteRefused::duplicate().into()),
            Err(error) => return Err(error),
            Ok(answer) => {
                let answer = RawDocumentBuf::try_from(&answer)?;
                let errors = answer.get_array("writeErrors").ok();
                let first =
                    errors.and_then(|errors| errors.into_iter().flatten().find_map(|error| error.as_document()));
                let Some(first) = first else { continue };
                let code = integer(first, "code").and_then(|code| i32::try_from(code).ok()).unwrap_or(0);
                if code == COLLECTION_UUID_MISMATCH {
                    return Ok(false);
                }
                let message = text(first, "errmsg").unwrap_or("the server gave no reason").to_owned();
                return Err(WriteRefused { code, message }.into());
            }
        }
    }
    Ok(true)
}

fn fitting(documents: &[RawDocumentBuf]) -> usize {
    let mut bytes = 0;
    let fits = |document: &&RawDocumentBuf| {
        bytes += document.as_bytes().len() + 8;
        bytes <= COMMAND_BYTES_MAX
    };
    documents.iter().take(DOCUMENTS_MAX).take_while(fits).count().max(1)
}

fn command(
    collection: &str,
    uuid: Uuid,
    documents: &[RawDocumentBuf],
) -> Result<RawDocumentBuf, mongodb::bson::error::Error> {
    let bytes: usize = documents.iter().map(|document| document.as_bytes().len() + 8).sum();
    let mut command = Writer::with_capacity(bytes + 200);
    command.text("insert", collection);
    command.array("documents", |array| {
        for (place, document) in documents.iter().enumerate() {
            array.whole(&place.to_string(), document.as_bytes());
        }
    });
    command.uuid("collectionUUID", uuid);
    command.raw()
}
