//! Consents and subscriptions.

use utoipa::ToSchema;

/// The definition of a consent.
#[derive(ToSchema)]
pub(crate) struct NewConsent {
    /// The consumer's microservice; `default` when absent.
    microservice: Option<String>,
    /// The consumer's tenant; `default` when absent.
    tenant: Option<String>,
    /// The public stream.
    stream: String,
    /// The partition of that stream; entries without a partition when absent.
    partition: Option<String>,
}

/// A consent.
#[derive(ToSchema)]
pub(crate) struct Consent {
    id: String,
    microservice: String,
    tenant: String,
    stream: String,
    partition: String,
}

/// A page of consents.
#[derive(ToSchema)]
pub(crate) struct ConsentPage {
    items: Vec<Consent>,
    cursor: Option<String>,
}

/// The definition of what a scope receives.
#[derive(ToSchema)]
pub(crate) struct NewSubscription {
    /// The URL of the producer's server, or `local:` for another tenant of this store.
    producer: String,
    /// The producer's tenant; `default` when absent.
    tenant: Option<String>,
    /// The producer's public stream.
    stream: String,
    /// The partition of that stream; entries without a partition when absent.
    partition: Option<String>,
    /// The scope that receives; not the default one.
    scope: String,
    /// The bearer token that is sent to the producer. It is never returned.
    credential: Option<String>,
}

/// The state of a subscription.
#[derive(ToSchema)]
pub(crate) struct SubscriptionStatus {
    name: String,
    producer: String,
    tenant: String,
    stream: String,
    partition: String,
    scope: String,
    /// Whether a credential is sent to the producer.
    credential: bool,
    /// `connecting`, `running`, `failing`, `refused`, `blocked` or `stopped`.
    state: String,
    /// The position in the producer's stream: everything of the partition below it is received.
    position: u64,
    /// The number of the last received event in the producer's log.
    sequence_number: Option<u64>,
    /// The number of entries of the producer's stream, as of its last response.
    head: u64,
    lag: u64,
    last_progress: Option<String>,
    seconds_since_progress: Option<u64>,
    /// The number of consecutive failures.
    attempts: Option<u32>,
    retry_at: Option<String>,
    last_reason: Option<String>,
    /// The consent under which the producer sends.
    consent: Option<String>,
    /// The name of the producer's microservice.
    microservice: Option<String>,
    /// What was noticed about the producer.
    notice: Option<String>,
    owner: Option<String>,
}

/// A page of subscriptions.
#[derive(ToSchema)]
pub(crate) struct SubscriptionPage {
    items: Vec<SubscriptionStatus>,
    cursor: Option<String>,
}
