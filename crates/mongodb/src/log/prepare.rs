//! Prepare keys as a service: each change except a move is one compare-and-set of one document, with Wow's filters, at majority. A move is
//! a transaction (`keyed.rs`).
//!
//! Refusals rely on majority-committed data as well: a write that changes nothing is acknowledged only once a majority has what it found.

use annals_core::{
    CommitError, FoundKey, KeyChange, KeyError, KeyHolder, KeyPage, KeysQuery, ListedKey, PrepareKeys, Release,
    Reserve, StoreError, Timestamp, limits, valid_key,
};
use async_trait::async_trait;
use mongodb::Collection;
use mongodb::bson::{RawDocumentBuf, doc};
use mongodb::error::{Error, ErrorKind, WriteFailure};
use tokio::sync::{SemaphorePermit, TryAcquireError};

use super::Log;
use super::batch::Outcome;
use super::keyed::{self, Keyed, Task};
use crate::answers::no_answer;
use crate::layout::fields::text;
use crate::layout::prepare;
use crate::patience::given_up;
use crate::refused::{code_of, is_garbled, malformed, message_of, reading, unready};

const DUPLICATE_KEY: i32 = 11000;

#[async_trait]
impl PrepareKeys for Log {
    async fn change(&self, change: KeyChange) -> Result<bool, KeyError> {
        change.validate()?;
        let name = prepare::collection(change.subject().0, || "name".to_owned())?;
        self.means.answers.expected().await?;
        let _place = self.place()?;
        let changing = async {
            self.keys_schema.ensure(&name).await.map_err(unready)?;
            let keys = self.keys.collection::<RawDocumentBuf>(&name);
            let now = self.clock.now();
            match &change {
                KeyChange::Prepare(new) => take(self, &keys, new, now).await,
                KeyChange::Rollback(old) => give_back(&keys, old, now).await,
                KeyChange::Reprepare { old, new } => {
                    let filter = match old {
                        Some(old) => prepare::with_value(&new.key, old).map_err(Error::custom)?,
                        None => doc! { "_id": &*new.key },
                    };
                    let changed = keys.replace_one(filter, document(new)?).await?;
                    Ok(changed.matched_count == 1)
                }
                KeyChange::Move { .. } => exchange(self, &change, now).await,
            }
        };
        // A transaction that moves a key ends by itself, slightly earlier.
        let changing = tokio::time::timeout(self.outcome_time * 2, changing);
        let changed = self.patience.during(changing).await.ok_or_else(given_up)?;
        let changed = changed.map_err(|_| StoreError::Unreachable(no_answer(self.outcome_time * 2)))?;
        changed.map_err(|fault| match fault {
            Fault::Told(error) => error,
            Fault::Server(error) => writing(&error).into(),
        })
    }

    async fn look(&self, name: &str, key: &str) -> Result<Option<FoundKey>, KeyError> {
        valid_key(name, key)?;
        if self.is_closed() {
            return Err(StoreError::Closed.into());
        }
        let collection = prepare::collection(name, || "name".to_owned())?;
        let keys = self.keys.collection::<RawDocumentBuf>(&collection);
        let find = async { keys.find_one(doc! { "_id": key }).await.map_err(|error| reading(&error)) };
        let Some(found) = self.means.answers.of(find).await? else { return Ok(None) };
        let holder = prepare::read(&found).map_err(|why| malformed(&self.keys, &collection, &found, why))?;
        Ok(Some(holder.found(self.clock.now())))
    }

    async fn list(&self, query: KeysQuery) -> Result<KeyPage, KeyError> {
        query.validate()?;
        if self.is_closed() {
            return Err(StoreError::Closed.into());
        }
        let collection = prepare::collection(&query.name, || "name".to_owned())?;
        self.means.answers.of(listed(self, &collection, &query)).await
    }
}

/// Reads a page of keys from the index of `_id`. Expired keys that were not removed yet are excluded.
async fn listed(log: &Log, collection: &str, query: &KeysQuery) -> Result<KeyPage, KeyError> {
    let keys = log.keys.collection::<RawDocumentBuf>(collection);
    let find = keys.find(prepare::held_after(query.after.as_deref(), log.clock.now())).sort(doc! { "_id": 1 });
    let mut found = find.limit(query.limit as i64).await.map_err(|error| reading(&error))?;
    let (mut page, mut bytes) = (KeyPage::default(), 0);
    while bytes < limits::PAGE_BYTES_MAX && found.advance().await.map_err(|error| reading(&error))? {
        let document = found.current();
        bytes += document.as_bytes().len();
        let broken = |why: String| malformed(&log.keys, collection, document, why);
        let key = text(document, "_id").ok_or_else(|| broken("_id is no text".to_owned()))?.into();
        page.keys.push(ListedKey { key, holder: prepare::read(document).map_err(broken)? });
    }
    Ok(page)
}

impl Log {
    /// Acquires one of the limited places for requests that wait for MongoDB.
    fn place(&self) -> Result<SemaphorePermit<'_>, StoreError> {
        if self.is_closed() {
            return Err(StoreError::Closed);
        }
        self.places.try_acquire().map_err(|error| match error {
            TryAcquireError::Closed => StoreError::Closed,
            TryAcquireError::NoPermits => StoreError::Overloaded,
        })
    }
}

enum Fault {
    Told(KeyError),
    Server(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Server(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Told(error.into())
    }
}

fn document(new: &Reserve) -> Result<RawDocumentBuf, Error> {
    prepare::write(&new.key, &KeyHolder::from(new.clone())).map_err(Error::custom)
}

/// Replaces an expired key or inserts a new one; the unique index refuses a key that is held.
async fn take(log: &Log, keys: &Collection<RawDocumentBuf>, new: &Reserve, now: Timestamp) -> Result<bool, Fault> {
    let expired = prepare::with_time(&new.key, "$lt", now);
    match keys.replace_one(expired, document(new)?).upsert(true).await {
        Ok(_) => Ok(true),
        Err(error) if code_of(&error) == Some(DUPLICATE_KEY) => Ok(false),
        // The server's refusal cannot be parsed, as happens with long keys.
        Err(error) if is_garbled(&error) => match log.look(&new.name, &new.key).await {
            Ok(Some(found)) if !found.expired => Ok(false),
            Ok(_) => Err(error.into()),
            Err(other) => Err(Fault::Told(other)),
        },
        Err(error) => Err(error.into()),
    }
}

async fn give_back(keys: &Collection<RawDocumentBuf>, old: &Release, now: Timestamp) -> Result<bool, Fault> {
    let filter = match &old.value {
        Some(value) => prepare::with_value(&old.key, value).map_err(Error::custom)?,
        None => prepare::with_time(&old.key, "$gt", now),
    };
    Ok(keys.delete_one(filter).await?.deleted_count == 1)
}

/// Takes one key and releases another, in one transaction.
async fn exchange(log: &Log, change: &KeyChange, now: Timestamp) -> Result<bool, Fault> {
    let keys = change.made();
    match keyed::carry_out(log, Task { keys: &keys, commit: None, now }).await {
        Ok(Keyed::Outcome(Outcome::Stored)) => Ok(true),
        Ok(Keyed::Refused(CommitError::KeyTaken { .. })) => Ok(false),
        Ok(Keyed::Refused(CommitError::KeyNotHeld { .. })) => Err(Fault::Told(change.not_held())),
        Ok(Keyed::Outcome(Outcome::Refused(why))) => Err(StoreError::ReadOnly(refused(&why)).into()),
        Ok(Keyed::Outcome(Outcome::Unknown(why))) => Err(StoreError::Unreachable(why).into()),
        Ok(Keyed::Outcome(Outcome::NotSent | Outcome::Duplicate(_) | Outcome::Replaced)) => {
            Err(StoreError::Overloaded.into())
        }
        Err(CommitError::Store(error)) => Err(error.into()),
        Ok(Keyed::Refused(other)) | Err(other) => Err(StoreError::Failed(other.to_string()).into()),
    }
}

fn refused(why: &str) -> String {
    format!("MongoDB refuses the change of a key: {why}")
}

/// Classifies the error of a write that the server refused or whose outcome is unknown.
fn writing(error: &Error) -> StoreError {
    let why = message_of(error);
    match &*error.kind {
        ErrorKind::Command(_) | ErrorKind::Write(WriteFailure::WriteError(_)) if error.labels().is_empty() => {
            StoreError::ReadOnly(refused(&why))
        }
        _ => StoreError::Unreachable(why),
    }
}
