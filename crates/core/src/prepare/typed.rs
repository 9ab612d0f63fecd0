//! The prepare keys of one name, with values of a type that the caller chooses.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{FoundKey, KeyError, PrepareKeys};
use crate::{ByteString, Code, Invalid, KeyValue, Release, Reserve, Timestamp, valid_name};

/// The prepare keys of one name, for example `user_name`, with values of one type, for example the id of the holder.
pub struct PrepareKey<T> {
    name: ByteString,
    keys: Arc<dyn PrepareKeys>,
    of: PhantomData<fn(T) -> T>,
}

/// A value with its expiry.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared<T> {
    /// The value of the key.
    pub value: T,
    /// The time from which others may take the key; `None` if it never expires.
    pub ttl_at: Option<Timestamp>,
}

impl<T> Prepared<T> {
    /// Creates a value that is held until it is released.
    pub fn for_ever(value: T) -> Self {
        Self { value, ttl_at: None }
    }

    /// Creates a value that expires at this time.
    pub fn until(value: T, ttl_at: Timestamp) -> Self {
        Self { value, ttl_at: Some(ttl_at) }
    }
}

impl<T: Serialize + DeserializeOwned> PrepareKey<T> {
    /// Creates access to the keys of this name.
    ///
    /// # Errors
    /// `invalid_keys` for an invalid name.
    pub fn new(keys: Arc<dyn PrepareKeys>, name: impl Into<ByteString>) -> Result<Self, Invalid> {
        let name = name.into();
        valid_name("name", &name).map_err(|fault| Invalid { code: Code::InvalidKeys, ..fault })?;
        Ok(Self { name, keys, of: PhantomData })
    }

    /// Returns the name of these keys.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes a key; returns false if it is held. See [`PrepareKeys::prepare`].
    ///
    /// # Errors
    /// As [`PrepareKeys::change`].
    pub async fn prepare(&self, key: impl Into<ByteString>, new: &Prepared<T>) -> Result<bool, KeyError> {
        self.keys.prepare(self.reserve(key, new)?).await
    }

    /// Returns the value of a key that has not expired. See [`PrepareKeys::get`].
    ///
    /// # Errors
    /// As [`PrepareKeys::look`]; [`KeyError::OtherType`].
    pub async fn get(&self, key: &str) -> Result<Option<T>, KeyError> {
        match self.keys.get(&self.name, key).await? {
            Some(holder) => self.read(key, &holder.value).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the value of a key, expired or not, with its expiry. See [`PrepareKeys::look`].
    ///
    /// # Errors
    /// As [`PrepareKeys::look`]; [`KeyError::OtherType`].
    pub async fn look(&self, key: &str) -> Result<Option<Prepared<T>>, KeyError> {
        match self.keys.look(&self.name, key).await? {
            Some(FoundKey { holder, .. }) => {
                Ok(Some(Prepared { value: self.read(key, &holder.value)?, ttl_at: holder.ttl_at }))
            }
            None => Ok(None),
        }
    }

    /// Releases a key that has not expired, whatever its value. See [`PrepareKeys::rollback`].
    ///
    /// # Errors
    /// As [`PrepareKeys::change`].
    pub async fn rollback(&self, key: impl Into<ByteString>) -> Result<bool, KeyError> {
        self.keys.rollback(Release::new(self.name.clone(), key)).await
    }

    /// Releases a key that has this value, expired or not. See [`PrepareKeys::rollback`].
    ///
    /// # Errors
    /// As [`PrepareKeys::change`].
    pub async fn rollback_value(&self, key: impl Into<ByteString>, value: &T) -> Result<bool, KeyError> {
        self.keys.rollback(Release::new(self.name.clone(), key).of_value(value_of(value)?)).await
    }

    /// Gives an existing key another value. See [`PrepareKeys::reprepare`].
    ///
    /// # Errors
    /// As [`PrepareKeys::change`].
    pub async fn reprepare(&self, key: impl Into<ByteString>, new: &Prepared<T>) -> Result<bool, KeyError> {
        self.keys.reprepare(None, self.reserve(key, new)?).await
    }

    /// Gives a key that has the value `old` another one. See [`PrepareKeys::reprepare`].
    ///
    /// # Errors
    /// As [`PrepareKeys::change`].
    pub async fn reprepare_value(
        &self,
        key: impl Into<ByteString>,
        old: &T,
        new: &Prepared<T>,
    ) -> Result<bool, KeyError> {
        self.keys.reprepare(Some(value_of(old)?), self.reserve(key, new)?).await
    }

    /// Takes the key `new_key` and releases `old_key`, which has the value `old`: both or neither. Returns false if the new one is held.
    /// See [`PrepareKeys::reprepare_as`].
    ///
    /// # Errors
    /// As [`PrepareKeys::change`]; [`KeyError::NotHeld`] if the old key does not exist or has another value.
    pub async fn reprepare_as(
        &self,
        (old_key, old): (impl Into<ByteString>, &T),
        (new_key, new): (impl Into<ByteString>, &Prepared<T>),
    ) -> Result<bool, KeyError> {
        let old = Release::new(self.name.clone(), old_key).of_value(value_of(old)?);
        self.keys.reprepare_as(old, self.reserve(new_key, new)?).await
    }

    /// Takes a key and calls `action`, passing whether the key was taken. If the action fails or panics, a key that was taken is released
    /// before the action's outcome is returned.
    ///
    /// The key is not released if this future is dropped, the process ends, or the store becomes unreachable. Take the key for such an
    /// action with a `ttl_at`; a commit that reserves the key has no such gap.
    ///
    /// # Errors
    /// Those of the action; before it is called, those of [`PrepareKeys::change`].
    pub async fn using<R, E: From<KeyError>, F: Future<Output = Result<R, E>>>(
        &self,
        key: impl Into<ByteString>,
        new: &Prepared<T>,
        action: impl FnOnce(bool) -> F,
    ) -> Result<R, E> {
        let reserve = self.reserve(key, new)?;
        let held = Release::new(reserve.name.clone(), reserve.key.clone()).of_value(reserve.value.clone());
        let taken = self.keys.prepare(reserve).await?;
        let outcome = ended(async { action(taken).await }).await;
        if taken && !matches!(outcome, Ok(Ok(_))) {
            // If the release fails too, its error is dropped: the caller must see the first failure.
            let _ = self.keys.rollback(held).await;
        }
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn reserve(&self, key: impl Into<ByteString>, new: &Prepared<T>) -> Result<Reserve, KeyError> {
        let Prepared { value, ttl_at } = new;
        Ok(Reserve { ttl_at: *ttl_at, ..Reserve::new(self.name.clone(), key, value_of(value)?) })
    }

    fn read(&self, key: &str, value: &KeyValue) -> Result<T, KeyError> {
        let other = |why| KeyError::OtherType { name: self.name.to_string(), key: key.to_owned(), why };
        value.decode().map_err(other)
    }
}

fn value_of(value: &impl Serialize) -> Result<KeyValue, KeyError> {
    KeyValue::new(value).map_err(|why| Invalid::new(Code::InvalidKeys, "value", why).into())
}

/// Runs a future and returns its output, or the panic that ended it.
async fn ended<T>(future: impl Future<Output = T>) -> std::thread::Result<T> {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        // A future that panicked is not polled again.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}
