//! The port of prepare keys as a service: names with at most one holder at a time, reserved and released without a commit.
//!
//! They are the same keys that commits reserve and release (see [`KeyChanges`]): a key that is taken one way is also taken for the other.

mod typed;

use async_trait::async_trait;

use crate::commit::{valid_id, valid_name, valid_time};
use crate::query::valid_limit;
use crate::{
    ByteString, Code, Invalid, KeyChanges, KeyHolder, KeyValue, Release, Reserve, SequenceNumber, StoreError,
    Timestamp, limits,
};

pub use typed::{PrepareKey, Prepared};

/// The prepare keys of a tenant.
///
/// # Contract
/// - Each change is one compare-and-set. Concurrent changes have the outcome of some serial order, and a key has at most one holder at any
///   time, including holders from commits that reserve and release it.
/// - A change that was answered with `true` survives `kill -9` and power loss, and so does the state that an answer `false` depends on.
///   After a crash at any point a change has been applied completely or not at all; a move to another key is one change.
/// - Time is the store's clock. A key has *expired* when its `ttl_at` is before now: it can then be taken as if it were free, while
///   [`look`](Self::look) still returns it. At exactly `ttl_at` a key is neither free ([`prepare`](Self::prepare) is refused) nor released
///   without its value ([`rollback`](Self::rollback) is refused). An expired key may be removed at any time. A change may name a `ttl_at`
///   in the past: the key has then expired at once.
/// - Values are compared as BSON values: the order of fields matters, the type of a number does not.
///
/// Each change has the semantics of Wow's `PrepareKey`; a key without `ttl_at` never expires.
#[async_trait]
pub trait PrepareKeys: Send + Sync + 'static {
    /// Applies a change. Returns false, and changes nothing, if the key is not in the state that the change requires.
    ///
    /// # Errors
    /// [`KeyError::Invalid`] for a change that breaks a rule, before the store is accessed. [`KeyError::NotHeld`] for [`KeyChange::Move`]
    /// only. Failures of the store; after [`StoreError::Failed`] and [`StoreError::Unreachable`] the outcome of the change is unknown.
    async fn change(&self, change: KeyChange) -> Result<bool, KeyError>;

    /// Returns the holder of a key, even if it has expired and was not removed yet. Returns `None` if the key was never taken, was
    /// released, or was removed.
    ///
    /// # Errors
    /// [`KeyError::Invalid`] for an invalid name or key; failures of the store.
    async fn look(&self, name: &str, key: &str) -> Result<Option<FoundKey>, KeyError>;

    /// Lists the keys of a name that are held and have not expired, in ascending byte order.
    ///
    /// The cost depends on the backend: the embedded store reads its log, because the last commit or change determines the state of a key.
    ///
    /// # Errors
    /// `invalid_keys` or `invalid_query` for a query that breaks a rule; failures of the store; [`StoreError::NotSupported`] if a backend
    /// does not list keys.
    async fn list(&self, query: KeysQuery) -> Result<KeyPage, KeyError> {
        query.validate()?;
        Err(StoreError::NotSupported("listing prepare keys".to_owned()).into())
    }

    /// Returns the holder of a key, unless it has expired.
    ///
    /// # Errors
    /// As [`look`](Self::look).
    async fn get(&self, name: &str, key: &str) -> Result<Option<KeyHolder>, KeyError> {
        Ok(self.look(name, key).await?.filter(|found| !found.expired).map(|found| found.holder))
    }

    /// Takes a key that is free or has expired.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    async fn prepare(&self, new: Reserve) -> Result<bool, KeyError> {
        self.change(KeyChange::Prepare(new)).await
    }

    /// Releases a key: given a value, if the key has that value, expired or not; without one, if the key has not expired.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    async fn rollback(&self, held: Release) -> Result<bool, KeyError> {
        self.change(KeyChange::Rollback(held)).await
    }

    /// Gives an existing key another value and `ttl_at`, expired or not; given `old`, only if the key has that value. Returns false for a
    /// key that does not exist.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    async fn reprepare(&self, old: Option<KeyValue>, new: Reserve) -> Result<bool, KeyError> {
        self.change(KeyChange::Reprepare { old, new }).await
    }

    /// Takes one key and releases another of the same name, which must have the given value. Returns false if the new one is taken.
    ///
    /// # Errors
    /// As [`change`](Self::change); [`KeyError::NotHeld`] if the old key does not exist or has another value: then the new one was not
    /// taken.
    async fn reprepare_as(&self, old: Release, new: Reserve) -> Result<bool, KeyError> {
        self.change(KeyChange::Move { old, new }).await
    }

    /// Returns the keys, by name and key, whose state at event `to` differs from what the commits before it alone would have made it,
    /// because of changes without a commit. Copies of commits lack these (see [`EventLog::read_copies`](crate::EventLog::read_copies)).
    /// This may read the whole log.
    ///
    /// # Errors
    /// Failures of the store; [`StoreError::NotSupported`] if a log cannot be copied.
    async fn beside_commits(&self, to: SequenceNumber) -> Result<Vec<KeyState>, KeyError> {
        let _ = to;
        Err(StoreError::NotSupported("copying the prepare keys of this store".to_owned()).into())
    }
}

/// A change of a prepare key.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyChange {
    /// Takes a key that is free or expired.
    Prepare(Reserve),
    /// Releases a key.
    Rollback(Release),
    /// Replaces the value of a key.
    Reprepare {
        /// The value that the key must have; any value when absent.
        old: Option<KeyValue>,
        /// The key with its new value.
        new: Reserve,
    },
    /// Takes one key and releases another of the same name, or does neither.
    Move {
        /// The key that is released, with its value.
        old: Release,
        /// The key that is taken.
        new: Reserve,
    },
}

/// Lists the keys of one name, in ascending byte order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeysQuery {
    /// The name of this kind of keys.
    pub name: ByteString,
    /// Lists only keys after this one, which need not be held.
    pub after: Option<ByteString>,
    /// The most keys to return, 1–1,000.
    pub limit: usize,
}

impl KeysQuery {
    /// Lists the first keys of this name.
    pub fn new(name: impl Into<ByteString>) -> Self {
        Self { name: name.into(), after: None, limit: limits::PAGE_DEFAULT }
    }

    /// Checks the name and the limit. `after` is only compared, so any string is valid.
    ///
    /// # Errors
    /// `invalid_keys` at `name`, `invalid_query` at `limit`.
    pub fn validate(&self) -> Result<(), Invalid> {
        valid_name("name", &self.name).map_err(as_key)?;
        valid_limit(self.limit)
    }
}

/// A page of a [`KeysQuery`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KeyPage {
    /// The keys. There may be fewer than the limit, because values may be large; only an empty page is the end.
    pub keys: Vec<ListedKey>,
}

impl KeyPage {
    /// Takes keys in ascending order until the page has `limit` of them, or about 16 MiB of values.
    pub fn of(keys: impl IntoIterator<Item = ListedKey>, limit: usize) -> Self {
        let mut page = Self::default();
        let mut bytes = 0;
        for key in keys {
            if page.keys.len() == limit || bytes >= limits::PAGE_BYTES_MAX {
                break;
            }
            bytes += key.holder.value.data().as_bytes().len();
            page.keys.push(key);
        }
        page
    }
}

/// A key that is held.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedKey {
    /// The key.
    pub key: ByteString,
    /// Its holder.
    pub holder: KeyHolder,
}

/// A key with its holder at the time.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyState {
    /// The name of its kind of keys.
    pub name: ByteString,
    /// The key.
    pub key: ByteString,
    /// The holder, even if it had expired; `None` if the key was free.
    pub holder: Option<KeyHolder>,
}

/// A key that was found, expired or not.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundKey {
    /// Its holder.
    pub holder: KeyHolder,
    /// Whether it had expired when it was read, so that others may take it.
    pub expired: bool,
}

/// Why a request about prepare keys failed. Except after [`StoreError::Failed`] and [`StoreError::Unreachable`], nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// It breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The key to be released for another does not exist or has another value.
    #[error("key {key:?} of {name} is not held, or has another value; look it up and retry")]
    NotHeld {
        /// The name of this kind of keys.
        name: String,
        /// The key.
        key: String,
    },
    /// The value of the key is not of the requested type.
    #[error("the value of the key {key:?} of {name} does not decode as the requested type: {why}")]
    OtherType {
        /// The name of this kind of keys.
        name: String,
        /// The key.
        key: String,
        /// The mismatch.
        why: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl KeyError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::NotHeld { .. } => Code::KeyNotHeld,
            Self::OtherType { .. } => Code::InvalidKeys,
            Self::Store(error) => error.code(),
        }
    }
}

impl KeyHolder {
    /// Returns whether [`KeyChange::Rollback`] releases the key: always by its value, without it only before `ttl_at`.
    pub fn rolls_back(&self, value: Option<&KeyValue>, now: Timestamp) -> bool {
        value.map_or_else(|| self.ttl_at.is_none_or(|ttl_at| ttl_at > now), |value| *value == self.value)
    }

    /// Returns this key as a look-up finds it.
    pub fn found(self, now: Timestamp) -> FoundKey {
        FoundKey { expired: !self.lives(now), holder: self }
    }
}

impl KeyChange {
    /// Returns the name and key that it changes or releases.
    pub fn subject(&self) -> (&ByteString, &ByteString) {
        match self {
            Self::Prepare(it) | Self::Reprepare { new: it, .. } => (&it.name, &it.key),
            Self::Rollback(it) | Self::Move { old: it, .. } => (&it.name, &it.key),
        }
    }

    /// Returns the change of keys that a commit would make.
    pub fn made(&self) -> KeyChanges {
        match self {
            Self::Prepare(new) | Self::Reprepare { new, .. } => {
                KeyChanges { release: Vec::new(), reserve: vec![new.clone()] }
            }
            Self::Rollback(old) => KeyChanges { release: vec![old.clone()], reserve: Vec::new() },
            Self::Move { old, new } => KeyChanges { release: vec![old.clone()], reserve: vec![new.clone()] },
        }
    }

    /// Returns whether the change applies, given the holder of each key by `of`.
    ///
    /// # Errors
    /// [`KeyError::NotHeld`].
    pub fn judge(&self, of: impl Fn(&str, &str) -> Option<KeyHolder>, now: Timestamp) -> Result<bool, KeyError> {
        let free = |it: &Reserve| !of(&it.name, &it.key).is_some_and(|holder| holder.lives(now));
        let rolls_back =
            |it: &Release| of(&it.name, &it.key).is_some_and(|holder| holder.rolls_back(it.value.as_ref(), now));
        match self {
            Self::Prepare(new) => Ok(free(new)),
            Self::Rollback(old) => Ok(rolls_back(old)),
            Self::Reprepare { old, new } => {
                Ok(of(&new.name, &new.key).is_some_and(|holder| old.as_ref().is_none_or(|old| *old == holder.value)))
            }
            Self::Move { new, .. } if !free(new) => Ok(false),
            Self::Move { old, .. } if !rolls_back(old) => Err(self.not_held()),
            Self::Move { .. } => Ok(true),
        }
    }

    /// Returns the refusal of a move whose old key is not as required.
    pub fn not_held(&self) -> KeyError {
        let (name, key) = self.subject();
        KeyError::NotHeld { name: name.to_string(), key: key.to_string() }
    }

    /// Checks names, keys, values and times.
    ///
    /// # Errors
    /// `invalid_keys`, at `name`, `key`, `value`, `old_value`, `ttl_at` or `new_key`.
    pub fn validate(&self) -> Result<(), Invalid> {
        let (name, key) = self.subject();
        valid_key(name, key)?;
        match self {
            Self::Prepare(new) => valid_reserve(new),
            Self::Rollback(old) => valid_value("value", old.value.as_ref()),
            Self::Reprepare { old, new } => {
                valid_value("old_value", old.as_ref())?;
                valid_reserve(new)
            }
            Self::Move { old, new } => {
                let invalid = |path: &str, message: &str| Err(Invalid::new(Code::InvalidKeys, path, message));
                if old.name != new.name {
                    return invalid(
                        "name",
                        "a key can move only to a key of the same name; prepare the new key and roll back the old one instead",
                    );
                }
                valid_id("new_key", &new.key).map_err(as_key)?;
                if old.key == new.key {
                    return invalid("new_key", "is also the old key; reprepare it to change its value");
                }
                if old.value.is_none() {
                    return invalid("old_value", "is missing; a move must give the current value of the old key");
                }
                valid_value("old_value", old.value.as_ref())?;
                valid_reserve(new)
            }
        }
    }
}

/// Checks a name and a key.
///
/// # Errors
/// `invalid_keys` at `name` or `key`.
pub fn valid_key(name: &str, key: &str) -> Result<(), Invalid> {
    valid_name("name", name).and_then(|()| valid_id("key", key)).map_err(as_key)
}

fn valid_reserve(new: &Reserve) -> Result<(), Invalid> {
    valid_value("value", Some(&new.value))?;
    new.ttl_at.map_or(Ok(()), |ttl_at| valid_time("ttl_at", ttl_at)).map_err(as_key)
}

fn valid_value(path: &str, value: Option<&KeyValue>) -> Result<(), Invalid> {
    let bytes = value.map_or(0, |value| value.data().as_bytes().len());
    if bytes > limits::KEY_VALUE_BYTES_MAX {
        let message = format!("{bytes} bytes as BSON; at most {} are allowed", limits::KEY_VALUE_BYTES_MAX);
        return Err(Invalid::new(Code::InvalidKeys, path, message));
    }
    Ok(())
}

fn as_key(fault: Invalid) -> Invalid {
    Invalid { code: Code::InvalidKeys, ..fault }
}
