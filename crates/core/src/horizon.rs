//! The event horizon: a producer offers its public streams to consumers that have its consent, and a consumer stores each of their events
//! exactly once in the log of a scope.
//!
//! ```text
//!  producer                                                     consumer
//!  public stream ─▶ Offering::offer ── page, at most `credits` ─▶ Intake ─▶ Receiving::receive ─▶ log of the scope
//!                      ▲ consent?                                   │        events and position in one write
//!                      └────────── from, credits, incarnation ──────┘
//! ```

mod consent;
mod error;
mod intake;
mod offer;
mod status;
mod stored;
mod subscription;
mod wire;

use std::sync::Arc;

use async_trait::async_trait;

use crate::handlers::Reason;

pub use consent::{Consent, ConsentPage};
pub use error::HorizonError;
pub use intake::{Intake, IntakeState, Next, Origin, Progress, Refusal, batches, check_last};
pub use offer::{CREDITS_MAX, OFFER_WAIT_MAX_MS, OfferRequest, Offered};
pub use status::{SubscriptionPage, SubscriptionStatus};
pub use stored::{
    CONSENTS, ConsentRecord, CredentialRecord, OriginRecord, ProgressRecord, SUBSCRIPTION_CREDENTIALS, SUBSCRIPTIONS,
    SubscriptionRecord,
};
pub use subscription::{LOCAL_PRODUCER, SubscriptionDefinition};
pub use wire::{OfferedView, read_offered, write_offered};

/// The event horizon of one tenant: the consents that it gives as a producer, and its subscriptions as a consumer.
///
/// - **Consent.** No event leaves a tenant unless one of its consents names the consumer's microservice and tenant, the stream and the
///   partition. If a consent is revoked, a request that is being served under it ends within one second.
/// - **Exactly once.** INVARIANT: the events of a page and the position after them are stored by one write, and a page is stored only if it
///   begins at the stored position. A crash of either side and a repeated page change nothing.
/// - **One producer.** A subscription remembers the store that its events came from. Events from another store are never stored, nor are
///   those from a store that was restored to a number below the last received event.
/// - **One owner.** If several processes share a store, only one of them at a time follows a subscription.
#[async_trait]
pub trait Horizon: Send + Sync + 'static {
    /// Gives a consent, or changes it. Returns true if it did not exist before.
    ///
    /// # Errors
    /// See [`HorizonError`].
    async fn put_consent(&self, consent: Consent) -> Result<bool, HorizonError>;

    /// Lists consents by id: at most `limit` of those after `after`.
    ///
    /// # Errors
    /// See [`HorizonError`].
    async fn consents(&self, after: Option<&str>, limit: usize) -> Result<ConsentPage, HorizonError>;

    /// Returns a consent.
    ///
    /// # Errors
    /// See [`HorizonError`].
    async fn consent(&self, id: &str) -> Result<Consent, HorizonError>;

    /// Revokes a consent. Events that were sent under it stay with the consumer.
    ///
    /// # Errors
    /// See [`HorizonError`].
    async fn revoke_consent(&self, id: &str, reason: Reason) -> Result<(), HorizonError>;

    /// Defines a subscription, or changes it. Returns true if it did not exist before.
    ///
    /// # Errors
    /// See [`HorizonError`].
    async fn put_subscription(&self, definition: SubscriptionDefinition) -> Result<bool, HorizonError>;

    /// Lists subscriptions by name: at most `limit` of those after `after`.
    ///
    /// # Errors
    /// See [`HorizonError`].
    async fn subscriptions(&self, after: Option<&str>, limit: usize) -> Result<SubscriptionPage, HorizonError>;

    /// Returns the state of a subscription.
    ///
    /// # Errors
    /// See [`HorizonError`].
    async fn subscription(&self, name: &str) -> Result<SubscriptionStatus, HorizonError>;

    /// Deletes a subscription. The received events and the position stay: if the same subscription is defined again, it continues there.
    ///
    /// # Errors
    /// See [`HorizonError`].
    async fn delete_subscription(&self, name: &str, reason: Reason) -> Result<(), HorizonError>;
}

/// What a producer's tenant offers to consumers.
#[async_trait]
pub trait Offering: Send + Sync + 'static {
    /// Returns the next page of a partition of a public stream, with at most as many events as the consumer has credits for. If there are
    /// none, it waits for the first one as long as the request says, and then returns an empty page.
    ///
    /// # Errors
    /// [`HorizonError::MissingConsent`], [`HorizonError::NotPublic`]; otherwise see [`HorizonError`].
    async fn offer(&self, request: OfferRequest) -> Result<Offered, HorizonError>;
}

/// Finds the producers that subscriptions name. Implementations may use the network, which this crate does not.
pub trait Producers: Send + Sync + 'static {
    /// Returns what this tenant of the producer at `url` offers. `credential` is sent with each request.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the URL, or that this process cannot reach producers at such URLs.
    fn producer(&self, url: &str, tenant: &str, credential: Option<&str>) -> Result<Arc<dyn Offering>, String>;
}

/// Finds no producers other than the tenants of the same store.
pub struct NoProducers;

impl Producers for NoProducers {
    fn producer(&self, url: &str, _: &str, _: Option<&str>) -> Result<Arc<dyn Offering>, String> {
        Err(format!(
            "{url:?} cannot be reached from this program; give its task host the producers of `annals::HttpProducers`"
        ))
    }
}
