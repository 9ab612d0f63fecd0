//! The task of a relay: it holds the lease, opens the broker, and reopens it after every failure.

use std::sync::Arc;
use std::time::Duration;

use annals_core::relay::{Relay, RelayRefusal, RelayState};
use annals_core::types::TypeError;
use annals_core::{BrokerError, ReadError, RecordError};

use super::TenantRelay;
use super::session::Session;
use crate::host::{Asked, Ended, Held, Leases, Supervised, is_set};

/// How often to ask for a lease that another process holds. Together with the time of a lease, this bounds the time of a takeover.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// The first and the longest pause before the broker is reopened.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How long a batch in flight may take once the host is drained. Whatever it did not publish is published after the next start.
const FINISH_MAX: Duration = Duration::from_secs(2);

/// The state of a tenant's relay that survives restarts of its task.
pub(super) struct Task {
    relay: Arc<TenantRelay>,
}

/// Why a relay stops publishing.
pub(super) enum Stop {
    /// The host is drained, or there is nothing to publish.
    Done,
    /// Another process has the lease.
    Lost,
    /// The broker could not be reached.
    Retry(BrokerError),
    /// A batch failed, its outcome is unknown, or the publisher was fenced: by another relay, or because its transaction took too long. The
    /// state at that time shows which of the last two it was.
    Reopen(BrokerError, Box<Relay>),
    /// An operator has to intervene.
    Refused(RelayRefusal),
    /// The store failed.
    Failed(String),
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<RecordError> for Stop {
    fn from(error: RecordError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<TypeError> for Stop {
    fn from(error: TypeError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<RelayRefusal> for Stop {
    fn from(refusal: RelayRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Supervised for Task {
    async fn run(&mut self) -> Ended {
        loop {
            match self.own().await {
                Stop::Lost => tracing::info!(tenant = self.relay.tenant, "another process took over publishing"),
                Stop::Failed(error) => {
                    self.relay.is_now(RelayState::Retrying, Some(error.clone()));
                    return Ended::Failed(error);
                }
                _ => return Ended::Done,
            }
        }
    }
}

impl Task {
    pub fn new(relay: Arc<TenantRelay>) -> Self {
        Self { relay }
    }

    /// Takes the lease, publishes, and releases the lease.
    async fn own(&self) -> Stop {
        let relay = &*self.relay;
        if let Err(error) = relay.declare().await {
            return error.into();
        }
        let leases = Leases::new(&relay.shared, &relay.tenant, Arc::clone(&relay.records), "relay".to_owned());
        let held = match self.until_taken(&leases).await {
            Ok(held) => held,
            Err(stop) => return stop,
        };
        let mut draining = relay.shared.stop.subscribe();
        let ends = async {
            is_set(&mut draining).await;
            relay.shared.options.clock.sleep(FINISH_MAX).await;
        };
        let creates = async {
            relay.create_missing().await;
            std::future::pending().await
        };
        let stop = tokio::select! {
            stop = self.publish() => stop,
            stop = creates => stop,
            () = leases.until_called_off(&held) => Stop::Lost,
            () = ends => Stop::Done,
        };
        if !matches!(stop, Stop::Lost) {
            leases.release(&held).await;
        }
        stop
    }

    async fn until_taken(&self, leases: &Leases) -> Result<Held, Stop> {
        let relay = &*self.relay;
        let mut draining = relay.shared.stop.subscribe();
        loop {
            if let Asked::Taken(held) = leases.ask().await? {
                return Ok(held);
            }
            relay.is_now(RelayState::Standby, None);
            tokio::select! {
                biased;
                () = is_set(&mut draining) => return Err(Stop::Done),
                () = relay.shared.options.clock.sleep(ASK_EVERY) => {}
            }
        }
    }

    /// Publishes until the host is drained, and reopens the broker after each failure with increasing pauses.
    async fn publish(&self) -> Stop {
        let relay = &*self.relay;
        if let Err(error) = relay.count_held().await {
            return error.into();
        }
        relay.is_now(RelayState::Starting, None);
        let mut draining = relay.shared.stop.subscribe();
        let (mut pause, mut known) = (PAUSES.0, None::<Box<Relay>>);
        loop {
            let before = relay.status.borrow().position;
            let error = match Session::run(&self.relay, known.as_deref()).await {
                Stop::Retry(error) => error,
                Stop::Reopen(error, state) => {
                    known = Some(state);
                    error
                }
                Stop::Refused(refusal) => {
                    tracing::error!(tenant = relay.tenant, "the relay has stopped publishing: {refusal}");
                    relay.is_now(RelayState::Stopped, Some(refusal.to_string()));
                    is_set(&mut draining).await;
                    return Stop::Done;
                }
                stop => return stop,
            };
            if relay.status.borrow().position > before {
                pause = PAUSES.0;
            }
            tracing::warn!(tenant = relay.tenant, %error, "the relay is reconnecting to the broker");
            relay.is_now(RelayState::Retrying, Some(error.to_string()));
            tokio::select! {
                biased;
                () = is_set(&mut draining) => return Stop::Done,
                () = relay.shared.options.clock.sleep(pause) => {}
            }
            pause = (pause * 2).min(PAUSES.1);
        }
    }
}
