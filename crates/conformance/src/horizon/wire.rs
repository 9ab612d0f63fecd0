//! The network between a consumer and its producer, whose state a case controls.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals_core::horizon::{HorizonError, OfferRequest, Offered, Offering, Producers};
use annals_core::{Clock, StoreError};
use async_trait::async_trait;
use tokio::sync::watch;

use crate::ManualClock;

/// The address of every producer at the other end of a wire.
pub(super) const URL: &str = "http://producer.example";
/// The duration of a request on a slow network.
const SLOW: Duration = Duration::from_secs(2);

/// The state of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    /// Requests are answered.
    Whole,
    /// Requests do not reach the producer.
    Cut,
    /// Requests reach the producer, but its answers are lost.
    Deaf,
    /// Requests reach the producer late.
    Slow,
}

/// The connection from a consumer to one producer, which can be replaced.
#[derive(Clone)]
pub(super) struct Wire(Arc<State>);

struct State {
    network: watch::Sender<Network>,
    producer: Mutex<Option<Arc<dyn Offering>>>,
    clock: Arc<ManualClock>,
}

impl Wire {
    /// Returns a working network without a producer at the other end.
    pub fn new(clock: Arc<ManualClock>) -> Self {
        let network = watch::Sender::new(Network::Whole);
        Self(Arc::new(State { network, producer: Mutex::default(), clock }))
    }

    /// Puts a producer at the other end. `None` stands for one that died.
    pub fn lead_to(&self, producer: Option<Arc<dyn Offering>>) {
        *self.0.producer.lock().expect("sound") = producer;
    }

    /// Changes the network. Requests that are being answered are aborted.
    pub fn set(&self, network: Network) {
        self.0.network.send_replace(network);
    }

    async fn carry(&self, request: OfferRequest) -> Result<Offered, HorizonError> {
        let producer = self.0.producer.lock().expect("sound").clone();
        match producer {
            Some(producer) => producer.offer(request).await,
            None => Err(unreachable("nobody listens")),
        }
    }

    async fn transmit(&self, network: Network, request: OfferRequest) -> Result<Offered, HorizonError> {
        match network {
            Network::Whole => self.carry(request).await,
            Network::Cut => Err(unreachable("the network is cut")),
            Network::Deaf => {
                let _lost = self.carry(request).await;
                Err(unreachable("the answer is lost"))
            }
            Network::Slow => {
                self.0.clock.sleep(SLOW).await;
                self.carry(request).await
            }
        }
    }
}

#[async_trait]
impl Offering for Wire {
    async fn offer(&self, request: OfferRequest) -> Result<Offered, HorizonError> {
        let mut changes = self.0.network.subscribe();
        let network = *changes.borrow_and_update();
        let answered = tokio::select! {
            biased;
            _ = changes.changed() => Err(unreachable("the connection is broken")),
            answered = self.transmit(network, request) => answered,
        };
        // The answer may have events that were committed after the network changed.
        if changes.has_changed().unwrap_or(true) { Err(unreachable("the connection is broken")) } else { answered }
    }
}

impl Producers for Wire {
    fn producer(&self, _: &str, _: &str, _: Option<&str>) -> Result<Arc<dyn Offering>, String> {
        Ok(Arc::new(self.clone()))
    }
}

fn unreachable(why: &str) -> HorizonError {
    HorizonError::Store(StoreError::Unreachable(why.to_owned()))
}
