//! Definitions of streams in front of others.

use std::sync::Arc;

use annals_core::{ByteString, StoreError, StreamDefinition, StreamDefinitions, Uuid};
use async_trait::async_trait;

/// Intercepts the calls between a caller and definitions of streams.
#[async_trait]
pub trait TapDefinitions: Send + Sync + 'static {
    /// Forwards a definition.
    ///
    /// # Errors
    /// Those of the definitions, or of the tap.
    async fn put(
        &self,
        definitions: &dyn StreamDefinitions,
        stream: &str,
        definition: StreamDefinition,
    ) -> Result<(), StoreError>;
}

/// Definitions behind a tap. Calls that the tap does not intercept are forwarded.
pub struct TappedDefinitions<T> {
    inner: Arc<dyn StreamDefinitions>,
    tap: Arc<T>,
}

impl<T: TapDefinitions> TappedDefinitions<T> {
    /// Puts `tap` in front of `definitions`.
    pub fn new(definitions: Arc<dyn StreamDefinitions>, tap: Arc<T>) -> Arc<Self> {
        Arc::new(Self { inner: definitions, tap })
    }
}

#[async_trait]
impl<T: TapDefinitions> StreamDefinitions for TappedDefinitions<T> {
    async fn get(&self, stream: &str) -> Result<Option<StreamDefinition>, StoreError> {
        self.inner.get(stream).await
    }

    async fn put(&self, stream: &str, definition: StreamDefinition) -> Result<(), StoreError> {
        self.tap.put(&*self.inner, stream, definition).await
    }

    async fn delete(&self, stream: &str) -> Result<(), StoreError> {
        self.inner.delete(stream).await
    }

    fn type_id(&self, name: &str) -> Uuid {
        self.inner.type_id(name)
    }

    fn type_name(&self, id: Uuid) -> ByteString {
        self.inner.type_name(id)
    }
}
