//! What a producer offers: pages of its public streams, under consent.
//!
//! INVARIANT: the consent is read after the events, so no event is sent if the consent was revoked before the event was read.

use std::time::Duration;

use annals_core::horizon::{Consent, HorizonError, OfferRequest, Offered, Offering};
use annals_core::names::is_public_stream;
use annals_core::{
    ByteString, DEFAULT_SCOPE, IncomingEvent, StoreError, StreamEvent, StreamEvents, Timestamp, UnknownLog,
};
use async_trait::async_trait;

use super::TenantHorizon;
use crate::host::is_set;

/// How often a waiting request checks for consents that another process revoked. This bounds how long events flow after a revocation.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[async_trait]
impl Offering for TenantHorizon {
    async fn offer(&self, request: OfferRequest) -> Result<Offered, HorizonError> {
        self.open()?;
        request.validate()?;
        self.consent_for(&request).await?;
        if !self.is_public(&request.stream).await? {
            return Err(HorizonError::NotPublic(request.stream.to_string()));
        }
        let ends = self.clock().now().plus(Duration::from_millis(request.wait_ms));
        let mut from = request.from;
        loop {
            let mut consented = self.consented.subscribe();
            let found = self.read(&OfferRequest { from, ..request.clone() }).await?;
            let consent = self.consent_for(&request).await?;
            let (head, next) = (found.head, found.next.max(from));
            let events: Vec<_> = found.events.into_iter().filter_map(sent).collect();
            if !events.is_empty() || request.credits == 0 || self.clock().now() >= ends {
                return self.page(&request, &consent, (events, next, head));
            }
            if next > from {
                from = next;
                continue;
            }
            self.wait(&request, head, ends, &mut consented).await?;
        }
    }
}

impl TenantHorizon {
    /// Returns whether partners may see the stream.
    async fn is_public(&self, stream: &str) -> Result<bool, HorizonError> {
        if is_public_stream(stream) {
            return Ok(true);
        }
        let definitions = self.store().stream_definitions(&self.tenant, DEFAULT_SCOPE)?;
        Ok(definitions.get(stream).await?.is_some_and(|definition| definition.public))
    }

    async fn read(&self, request: &OfferRequest) -> Result<StreamEvents, HorizonError> {
        let streams = self.store().streams(&self.tenant, DEFAULT_SCOPE)?;
        if request.credits == 0 {
            let head = streams.stream(&request.stream).await?.head;
            return Ok(StreamEvents { events: Vec::new(), next: request.from, head });
        }
        Ok(streams.read_events(request.query()).await?)
    }

    /// Waits until the stream has more entries, the consents change, or the time is up, whichever comes first.
    async fn wait(
        &self,
        request: &OfferRequest,
        head: u64,
        ends: Timestamp,
        consented: &mut tokio::sync::watch::Receiver<u64>,
    ) -> Result<(), HorizonError> {
        let streams = self.store().streams(&self.tenant, DEFAULT_SCOPE)?;
        let clock = self.clock();
        let until = if self.shared.may_share() { ends.min(clock.now().plus(LOOK_EVERY)) } else { ends };
        let mut stop = self.shared.stop.subscribe();
        tokio::select! {
            biased;
            () = is_set(&mut stop) => Err(StoreError::Closed.into()),
            _ = consented.changed() => Ok(()),
            past = streams.wait_past(&request.stream, head.max(request.from)) => Ok(past.map(drop)?),
            () = clock.sleep_until(until) => Ok(()),
        }
    }

    fn page(
        &self,
        request: &OfferRequest,
        consent: &Consent,
        (events, next, head): (Vec<IncomingEvent>, u64, u64),
    ) -> Result<Offered, HorizonError> {
        let seen = request.incarnation.unwrap_or(u32::MAX);
        let identity = self.store().identity_since(&self.tenant, DEFAULT_SCOPE, seen);
        let identity = identity.ok_or_else(|| UnknownLog::Tenant(self.tenant.clone()))?;
        let microservice = ByteString::from(self.shared.options.microservice.as_str());
        Ok(Offered { consent: consent.uuid(), microservice, identity, events, next, head })
    }
}

/// Returns the part of an event that is sent: without its header, request id, owner and tags. An event that is not public is never sent,
/// whatever the stream contains.
fn sent(entry: StreamEvent) -> Option<IncomingEvent> {
    let StreamEvent { position, event, .. } = entry;
    if !event.public {
        return None;
    }
    let aggregate = &event.commit.aggregate;
    let source = aggregate.event_source().map_or_else(|| aggregate.id.clone(), ByteString::from);
    Some(IncomingEvent {
        position,
        sequence_number: event.sequence_number,
        event_type: event.event_type,
        generation: event.generation,
        data: event.data,
        time: event.time,
        source,
        correlation_id: event.commit.correlation_id.clone(),
    })
}
