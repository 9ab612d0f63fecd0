//! The prepare keys of one name, with values of a type of one's own.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{FoundKey, KeyError, PrepareKeys};
use crate::{ByteString, Code, Invalid, KeyValue, Release, Reserve, Timestamp, valid_name};

/// The prepare keys of one name, for example `user_name`, with values of one type, for example who holds them.
pub struct PrepareKey<T> {
    name: ByteString,
    keys: Arc<dyn PrepareKeys>,
    of: PhantomData<fn(T) -> T>,
}

/// A value with the time until which it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared<T> {
    /// What is kept with the key.
    pub value: T,
    /// From when on others may take the key; never when absent.
    pub ttl_at: Option<Timestamp>,
}

impl<T> Prepared<T> {
    /// A value that is kept until it is given back.
    pub fn for_ever(value: T) -> Self {
        Self { value, ttl_at: None }
    }

    /// A value that others may take the key from when this time has passed.
    pub fn until(value: T, ttl_at: Timestamp) -> Self {
        Self { value, ttl_at: Some(ttl_at) }
    }
}

impl<T: Serialize + DeserializeOwned> PrepareKey<T> {
    /// The keys of this name.
    ///
    /// # Errors
    /// `invalid_keys` for what is no name.
    pub fn new(keys: Arc<dyn PrepareKeys>, name: impl Into<ByteString>) -> Result<Self, Invalid> {
        let name = name.into();
        valid_name("name", &name).map_err(|fault| Invalid { code: Code::InvalidKeys, ..fault })?;
        Ok(Self { name, keys, of: PhantomData })
    }

    /// What these keys are called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes a key; false when it is held. See [`PrepareKeys::prepare`].
    ///
    /// # Errors
    /// As [`PrepareKeys::change`].
    pub async fn prepare(&self, key: impl Into<ByteString>, new: &Prepared<T>) -> Result<bool, KeyError> {
        self.keys.prepare(self.reserve(key, new)?).await
    }

    /// The value that is kept with a key which has not expired. See [`PrepareKeys::get`].
    ///
    /// # Errors
    /// As [`PrepareKeys::look`]; [`KeyError::OtherType`].
    pub async fn get(&self, key: &str) -> Result<Option<T>, KeyError> {
        match self.keys.get(&self.name, key).await? {
            Some(holder) => self.read(key, &holder.value).map(Some),
            None => Ok(None),
        }
    }

    /// The value that is kept with a key, expired or not, and its time. See [`PrepareKeys::look`].
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

    /// Gives a key back that has not expired, whatever its value. See [`PrepareKeys::rollback`].
    ///
    /// # Errors
    /// As [`PrepareKeys::change`].
    pub async fn rollback(&self, key: impl Into<ByteString>) -> Result<bool, KeyError> {
        self.keys.rollback(Release::new(self.name.clone(), key)).await
    }

    /// Gives a key back that has this value, expired or not. See [`PrepareKeys::rollback`].
    ///
    /// # Errors
    /// As [`PrepareKeys::change`].
    pub async fn rollback_value(&self, key: impl Into<ByteString>, value: &T) -> Result<bool, KeyError> {
        self.keys.rollback(Release::new(self.name.clone(), key).of_value(value_of(value)?)).await
    }

    /// Gives a key that is there another value. See [`PrepareKeys::reprepare`].
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

    /// Takes the key `new_key` and gives `old_key` back, which has the value `old`: both or neither. False when the new one is held. See
    /// [`PrepareKeys::reprepare_as`].
    ///
    /// # Errors
    /// As [`PrepareKeys::change`]; [`KeyError::NotHeld`] when the old key is not there or has another value.
    pub async fn reprepare_as(
        &self,
        (old_key, old): (impl Into<ByteString>, &T),
        (new_key, new): (impl Into<ByteString>, &Prepared<T>),
    ) -> Result<bool, KeyError> {
        let old = Release::new(self.name.clone(), old_key).of_value(value_of(old)?);
        self.keys.reprepare_as(old, self.reserve(new_key, new)?).await
    }

    /// Takes a key and calls `action` with whether it was taken. When the action fails or panics, a key that was taken is given back, and
    /// then the action's outcome passed on.
    ///
    /// The key is not given back where nobody is left to do it: when this future is dropped, the process ends, or the store cannot be
    /// asked any more. A key for an action that may end so is best taken with a `ttl_at`; a commit that reserves it has no such gap.
    ///
    /// # Errors
    /// The action's; and, before it is called, as [`PrepareKeys::change`].
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
            // What went wrong first is what the caller must know of.
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

/// What becomes of a future: its output, or the panic that ended it.
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
