//! Runs one transaction, on a session that other processes can end if this one is killed. Its commit is sent until its outcome is known.
//!
//! ```text
//! session ─▶ fill ─┬─▶ commit, majority and journaled ─▶ stored
//!                  │      └ outcome unknown: the commit is sent again; the server knows which of its transactions happened
//!                  └─▶ abort: nothing is to be stored, or the server gave it up
//! ```

use std::time::Duration;

use annals_core::bson::raw::{RawArrayBuf, RawDocumentBuf, cstr};
use annals_system::{Instant, sleep};
use async_trait::async_trait;
use mongodb::bson::Document;
use mongodb::error::{Error, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use mongodb::options::ReadConcern;
use mongodb::{ClientSession, Database};

use crate::connect::strict;
use crate::log::Means;
use crate::refused::{code_of, message_of};
use crate::sessions::was_ended;

/// Retry limit for transactions that were aborted or whose outcome is unknown.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(30);
/// Pause between two attempts, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));
/// Approximate limit of the bytes of one command; a larger document is sent alone. The server accepts 16 MiB.
const COMMAND_BYTES_MAX: usize = 12 * 1024 * 1024;

/// The content of a transaction.
#[async_trait]
pub(crate) trait Fill: Send + Sync {
    /// Why nothing is to be stored after all.
    type Left;

    /// Writes everything, or returns why nothing is to be stored.
    async fn fill(&self, session: &mut ClientSession) -> mongodb::error::Result<Result<(), Self::Left>>;
}

/// The outcome of an attempt.
pub(crate) enum Ended<L> {
    /// It is stored, at majority and journaled.
    Stored,
    /// Nothing was to be stored.
    Left(L),
    /// The server aborted it: nothing was stored, and a later attempt may succeed.
    Again(Error),
    /// The server refused it, and nothing was stored.
    Refused(Error),
    /// The commit was sent, and its outcome could not be determined in time.
    Unknown(Error),
}

/// Makes one attempt. A commit whose outcome is unknown is sent again until `ends`.
pub(crate) async fn attempt<F: Fill>(means: &Means, filling: &F, ends: Instant) -> Ended<F::Left> {
    let filled = async {
        let mut taken = means.sessions.take().await?;
        let session = &mut taken.session;
        session.start_transaction().read_concern(ReadConcern::snapshot()).write_concern(strict()).await?;
        match filling.fill(session).await {
            Ok(Ok(())) => Ok(Ok(taken)),
            Ok(Err(left)) => {
                taken.abort().await;
                Ok(Err(left))
            }
            Err(error) => {
                taken.abort().await;
                Err(error)
            }
        }
    };
    match filled.await {
        Ok(Ok(mut taken)) => {
            let ended = commit(&mut taken.session, ends).await;
            taken.done();
            ended
        }
        Ok(Err(left)) => Ended::Left(left),
        Err(error) => aborted(error),
    }
}

/// Classifies an error from before the commit: nothing was stored.
fn aborted<L>(error: Error) -> Ended<L> {
    if error.contains_label(TRANSIENT_TRANSACTION_ERROR) || was_ended(&error) || code_of(&error).is_none() {
        return Ended::Again(error);
    }
    Ended::Refused(error)
}

async fn commit<L>(session: &mut ClientSession, ends: Instant) -> Ended<L> {
    loop {
        let error = match session.commit_transaction().await {
            Ok(()) => return Ended::Stored,
            Err(error) => error,
        };
        if !error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT) && !was_ended(&error) {
            return aborted(error);
        }
        tracing::warn!(error = message_of(&error), "the outcome of a transaction is unknown; asking again");
        if Instant::now() >= ends {
            return Ended::Unknown(error);
        }
        sleep(PAUSES.1).await;
    }
}

/// The pauses between attempts.
pub(crate) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(PAUSES.0)
    }
}

impl Backoff {
    /// Waits for a random time between half and all of the pause, so that two conflicting writers do not conflict again after the same
    /// pause.
    pub(crate) async fn pause(&mut self, bits: u128) {
        let half = self.0 / 2;
        sleep(half + half.mul_f64(f64::from(bits as u32) / f64::from(u32::MAX))).await;
        self.0 = (self.0 * 2).min(PAUSES.1);
    }
}

/// Inserts documents in as many commands as needed. Returns the first error of a document, which ends the transaction. It uses a command
/// of its own, because the driver's insert omits which index a duplicate violates.
///
/// # Errors
/// Errors of the driver.
pub(crate) async fn insert(
    database: &Database,
    session: &mut ClientSession,
    collection: &str,
    documents: &[RawDocumentBuf],
) -> mongodb::error::Result<Option<Document>> {
    for part in parts(documents) {
        let mut array = RawArrayBuf::new();
        part.iter().for_each(|document| array.push(&**document));
        let mut command = RawDocumentBuf::new();
        command.append(cstr!("insert"), collection);
        command.append(cstr!("ordered"), true);
        command.append(cstr!("documents"), array);
        let answer = database.run_raw_command(command).session(&mut *session).await?;
        let error = answer.get_array("writeErrors").ok().and_then(|errors| errors.first()?.as_document());
        if let Some(error) = error {
            return Ok(Some(error.clone()));
        }
    }
    Ok(None)
}

/// Splits documents into parts that fit into one command each.
fn parts(documents: &[RawDocumentBuf]) -> Vec<&[RawDocumentBuf]> {
    let mut parts = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (at, document) in documents.iter().enumerate() {
        let size = document.as_bytes().len() + 16;
        if at > start && bytes + size > COMMAND_BYTES_MAX {
            parts.push(&documents[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += size;
    }
    parts.push(&documents[start..]);
    parts
}

/// The error of one document of [`insert`].
pub(crate) struct NotInserted {
    /// The server's message.
    pub(crate) message: String,
    /// For a duplicate: the fields of the unique index, and the values.
    pub(crate) duplicate: Option<(Vec<String>, String)>,
}

impl From<Document> for NotInserted {
    fn from(error: Document) -> Self {
        const DUPLICATE_KEY: i32 = 11000;
        let message = error.get_str("errmsg").unwrap_or("the server gave no reason").to_owned();
        let is_duplicate = error.get_i32("code").is_ok_and(|code| code == DUPLICATE_KEY);
        let duplicate = is_duplicate.then(|| {
            let keys = error.get_document("keyPattern").map(|keys| keys.keys().cloned().collect()).unwrap_or_default();
            (keys, error.get_document("keyValue").map(ToString::to_string).unwrap_or_default())
        });
        Self { message, duplicate }
    }
}

impl NotInserted {
    /// Returns whether a document with the same `_id` exists.
    pub(crate) fn has_same_id(&self) -> bool {
        self.duplicate.as_ref().is_some_and(|(keys, _)| keys.iter().any(|key| key == "_id"))
    }
}
