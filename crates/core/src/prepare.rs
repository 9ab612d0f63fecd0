//! The port of prepare keys as a service of their own: names that one holder at a time may have, taken and given back without a commit.
//!
//! They are the same keys that commits reserve and release (see [`KeyChanges`]): what one of both holds is taken for the other.

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
/// - Each change is one compare-and-set: of many at once that cannot all happen, those happen that could one after the other, and a key
///   has at most one holder at any time, also beside commits that reserve and release it.
/// - A change that was answered with `true` survives `kill -9` and power loss, and so does what an answer `false` rests on. After a crash
///   at any point a change has happened whole or not at all; a move to another key is one change.
/// - Time is the store's clock. A key has *expired* when its `ttl_at` is before now: then it is taken as if it were free, while looking
///   still shows it. At the very `ttl_at` a key is neither free ([`prepare`](Self::prepare) is refused) nor given back without its value
///   ([`rollback`](Self::rollback) is refused). What expired may be removed at any time. A change may name a `ttl_at` that is past: what
///   it leaves behind is expired at once.
/// - Values are equal as BSON values are: the order of fields counts, the type of a number does not.
///
/// The meaning of each change is that of Wow's `PrepareKey`; a key without `ttl_at` is held for ever.
#[async_trait]
pub trait PrepareKeys: Send + Sync + 'static {
    /// Makes a change; false when the key is not as the change wants it, and then nothing has changed.
    ///
    /// # Errors
    /// [`KeyError::Invalid`] for what breaks a rule, before anything is asked; [`KeyError::NotHeld`] for [`KeyChange::Move`] only; what the
    /// store cannot do. With [`StoreError::Failed`] and [`StoreError::Unreachable`] it is unknown whether the change has happened.
    async fn change(&self, change: KeyChange) -> Result<bool, KeyError>;

    /// Who holds a key, also when it has expired and was not removed yet; nobody when it was never taken, given back, or removed.
    ///
    /// # Errors
    /// [`KeyError::Invalid`] for a name or key that is not allowed; what the store cannot do.
    async fn look(&self, name: &str, key: &str) -> Result<Option<FoundKey>, KeyError>;

    /// Lists the keys of a name that are held and have not expired, in ascending order of their bytes.
    ///
    /// The cost depends on the store: the embedded one reads its log, because a key is what the last commit or change says of it.
    ///
    /// # Errors
    /// `invalid_keys` or `invalid_query` for what breaks a rule; what the store cannot do; [`StoreError::NotSupported`] where a backend
    /// does not list keys.
    async fn list(&self, query: KeysQuery) -> Result<KeyPage, KeyError> {
        query.validate()?;
        Err(StoreError::NotSupported("listing prepare keys".to_owned()).into())
    }

    /// Who holds a key, unless it has expired.
    ///
    /// # Errors
    /// As [`look`](Self::look).
    async fn get(&self, name: &str, key: &str) -> Result<Option<KeyHolder>, KeyError> {
        Ok(self.look(name, key).await?.filter(|found| !found.expired).map(|found| found.holder))
    }

    /// Takes a key that nobody holds, or whose holder has expired.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    async fn prepare(&self, new: Reserve) -> Result<bool, KeyError> {
        self.change(KeyChange::Prepare(new)).await
    }

    /// Gives a key back: with a value whoever has that value, expired or not; without one whoever has it and has not expired.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    async fn rollback(&self, held: Release) -> Result<bool, KeyError> {
        self.change(KeyChange::Rollback(held)).await
    }

    /// Gives a key that is there another value and `ttl_at`, expired or not; with `old` only when it has that value. False for a key that
    /// is not there.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    async fn reprepare(&self, old: Option<KeyValue>, new: Reserve) -> Result<bool, KeyError> {
        self.change(KeyChange::Reprepare { old, new }).await
    }

    /// Takes one key and gives another of the same name back, which must have the value that is named; false when the new one is taken.
    ///
    /// # Errors
    /// As [`change`](Self::change); [`KeyError::NotHeld`] when the old key is not there or has another value: then the new one was not
    /// taken.
    async fn reprepare_as(&self, old: Release, new: Reserve) -> Result<bool, KeyError> {
        self.change(KeyChange::Move { old, new }).await
    }

    /// The keys that changes without a commit had left otherwise than commits alone would have, when the event `to` came, by name and
    /// key: what copies of the commits before it do not say (see [`EventLog::read_copies`](crate::EventLog::read_copies)). It may read
    /// the whole log.
    ///
    /// # Errors
    /// What the store cannot do; [`StoreError::NotSupported`] where a log cannot be copied.
    async fn beside_commits(&self, to: SequenceNumber) -> Result<Vec<KeyState>, KeyError> {
        let _ = to;
        Err(StoreError::NotSupported("copying prepare keys from here".to_owned()).into())
    }
}

/// A change of a prepare key.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyChange {
    /// Takes a key that is free or expired.
    Prepare(Reserve),
    /// Gives a key back.
    Rollback(Release),
    /// Puts another value in the place of any, or of this one.
    Reprepare {
        /// The value that it must have; any when absent.
        old: Option<KeyValue>,
        /// The key, with what it is to have.
        new: Reserve,
    },
    /// Takes one key and gives another of the same name back, or neither.
    Move {
        /// The key that is given back. It names its value.
        old: Release,
        /// The key that is taken.
        new: Reserve,
    },
}

/// Keys of one name, in ascending order of their bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeysQuery {
    /// What the keys of this kind are called.
    pub name: ByteString,
    /// Only keys after this one; it need not be held.
    pub after: Option<ByteString>,
    /// Most keys wanted, 1–1,000.
    pub limit: usize,
}

impl KeysQuery {
    /// Asks for the first keys of this name.
    pub fn new(name: impl Into<ByteString>) -> Self {
        Self { name: name.into(), after: None, limit: limits::PAGE_DEFAULT }
    }

    /// Checks the name and the limit. `after` is only compared, so any text will do.
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
    /// The keys. It may hold fewer than the limit, because values are large; only an empty page is the end.
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
    /// Who holds it.
    pub holder: KeyHolder,
}

/// A key, with who held it.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyState {
    /// What the keys of its kind are called.
    pub name: ByteString,
    /// The key.
    pub key: ByteString,
    /// Who held it, also when it had expired; none when nobody did.
    pub holder: Option<KeyHolder>,
}

/// A key that is there.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundKey {
    /// Who holds it.
    pub holder: KeyHolder,
    /// Whether its time was over when it was looked at, so that others may take it.
    pub expired: bool,
}

/// Why a change of a prepare key has no answer. Except for [`StoreError::Failed`] and [`StoreError::Unreachable`], nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// It breaks a rule of the API.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The key that was to be given up for another is not there, or has another value.
    #[error("the key {key:?} of {name} is not held, or not with this value; read again and decide anew")]
    NotHeld {
        /// What the keys of this kind are called.
        name: String,
        /// The key.
        key: String,
    },
    /// The value that is kept with a key is none of the type that was asked for.
    #[error("the value of the key {key:?} of {name} is of another type: {why}")]
    OtherType {
        /// What the keys of this kind are called.
        name: String,
        /// The key.
        key: String,
        /// What does not fit.
        why: String,
    },
    /// The store cannot do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl KeyError {
    /// The stable code of this error.
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
    /// Whether [`KeyChange::Rollback`] gives the key back: by its value always, without it only before the very `ttl_at`.
    pub fn rolls_back(&self, value: Option<&KeyValue>, now: Timestamp) -> bool {
        value.map_or_else(|| self.ttl_at.is_none_or(|ttl_at| ttl_at > now), |value| *value == self.value)
    }

    /// This key as somebody found it.
    pub fn found(self, now: Timestamp) -> FoundKey {
        FoundKey { expired: !self.lives(now), holder: self }
    }
}

impl KeyChange {
    /// What is called so: the name and key that it is about, or gives back.
    pub fn subject(&self) -> (&ByteString, &ByteString) {
        match self {
            Self::Prepare(it) | Self::Reprepare { new: it, .. } => (&it.name, &it.key),
            Self::Rollback(it) | Self::Move { old: it, .. } => (&it.name, &it.key),
        }
    }

    /// What it makes of the keys, as a commit would do it.
    pub fn made(&self) -> KeyChanges {
        match self {
            Self::Prepare(new) | Self::Reprepare { new, .. } => {
                KeyChanges { release: Vec::new(), reserve: vec![new.clone()] }
            }
            Self::Rollback(old) => KeyChanges { release: vec![old.clone()], reserve: Vec::new() },
            Self::Move { old, new } => KeyChanges { release: vec![old.clone()], reserve: vec![new.clone()] },
        }
    }

    /// Whether it happens, where `of` tells who holds a key.
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

    /// The refusal of a move whose old key is not as it must be.
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
                    return invalid("name", "a key moves among keys of one name; prepare and roll back one each");
                }
                valid_id("new_key", &new.key).map_err(as_key)?;
                if old.key == new.key {
                    return invalid("new_key", "it is the old key; reprepare that one to change its value");
                }
                if old.value.is_none() {
                    return invalid("old_value", "a key that moves names the value that it has");
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
