//! A receiving port in front of another.

use std::sync::Arc;

use annals_core::{ReceiveError, Received, ReceivedBatch, Receiving, Subscription, SubscriptionState};
use async_trait::async_trait;

/// Intercepts the calls between a caller and a receiving port.
#[async_trait]
pub trait TapReceiving: Send + Sync + 'static {
    /// Forwards a batch.
    ///
    /// # Errors
    /// Those of the store, or of the tap.
    async fn receive(&self, receiving: &dyn Receiving, batch: ReceivedBatch) -> Result<Received, ReceiveError>;
}

/// A receiving port behind a tap. Calls that the tap does not intercept are forwarded.
pub struct TappedReceiving<T> {
    inner: Arc<dyn Receiving>,
    tap: Arc<T>,
}

impl<T: TapReceiving> TappedReceiving<T> {
    /// Puts `tap` in front of `receiving`.
    pub fn new(receiving: Arc<dyn Receiving>, tap: Arc<T>) -> Arc<Self> {
        Arc::new(Self { inner: receiving, tap })
    }
}

#[async_trait]
impl<T: TapReceiving> Receiving for TappedReceiving<T> {
    async fn receive(&self, batch: ReceivedBatch) -> Result<Received, ReceiveError> {
        self.tap.receive(&*self.inner, batch).await
    }

    async fn state(&self, subscription: &Subscription) -> Result<SubscriptionState, ReceiveError> {
        self.inner.state(subscription).await
    }
}
