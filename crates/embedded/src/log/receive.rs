//! Receiving events over the event horizon.
//!
//! INVARIANT: the state of a subscription is what the last frame of its events records; it is written nowhere else. One sync therefore
//! makes the events and the position durable, and no crash can separate them.
//!
//! Each received event is a frame of its own. The index files it under an aggregate that represents the subscription
//! ([`Record::filed_under`](crate::record::Record::filed_under)), with the producer's number as its request id. Versions then decide
//! which of several racing batches gets the position, and request ids keep the producer's numbers unique, forever. The frames of one
//! batch are a transaction, which recovery keeps as a whole or not at all.

use annals_core::{
    Aggregate, AggregateQuery, DEFAULT_TENANT_ID, ExpectedVersion, IncomingEvent, NewCommit, ReceiveError, Received,
    ReceivedBatch, ReceivedFrom, Receiving, StoreError, Subscription, SubscriptionState, TransactionPlace, Uuid,
    Version, new_uuid,
};
use async_trait::async_trait;

use super::Log;
use super::commit::{encode_as, judged, room_for};
use super::core::Core;
use super::queue::{Encoded, Request, Verdict};
use super::{lookup, read};
use crate::record::{Stamp, aggregate_of};

/// The progress of a subscription.
struct Stand {
    state: SubscriptionState,
    /// The number of its events that were received.
    count: Version,
}

#[async_trait]
impl Receiving for Log {
    async fn receive(&self, batch: ReceivedBatch) -> Result<Received, ReceiveError> {
        batch.validate()?;
        let core = &self.core;
        let aggregate = aggregate_of(&batch.subscription);
        let mut before = None;
        loop {
            let stand = stand(core, &aggregate).await?;
            if before == Some(stand.count) {
                let why = "the log writer refused the events after the subscription's last event".to_owned();
                return Err(StoreError::Failed(why).into());
            }
            before = Some(stand.count);
            if batch.from < stand.state.position && batch.next() <= stand.state.position {
                return repeat(core, &aggregate, &batch, stand.state);
            }
            if batch.from != stand.state.position {
                return Err(ReceiveError::Moved { from: batch.from, stored: stand.state });
            }
            let first = &batch.events[0];
            if stand.state.sequence_number.is_some_and(|last| first.sequence_number <= last) {
                return Err(other_events(first));
            }
            match judged(core, request(core, &aggregate, &batch, stand.count).await?).await? {
                Verdict::Committed { sequence_number, .. } => {
                    return Ok(Received { first: sequence_number, state: batch.state(), duplicate: false });
                }
                // Another batch of the subscription was received meanwhile, so its state is read again.
                Verdict::Repeat(_) | Verdict::Refused(..) => {}
            }
        }
    }

    async fn state(&self, subscription: &Subscription) -> Result<SubscriptionState, ReceiveError> {
        subscription.validate()?;
        Ok(stand(&self.core, &aggregate_of(subscription)).await?.state)
    }
}

async fn stand(core: &Core, aggregate: &Aggregate) -> Result<Stand, StoreError> {
    let found = core.noticed(read::aggregate(core, &AggregateQuery::last(aggregate.clone())).await)?;
    // Nobody knows what was received after the damage.
    let found = core.unless_about_the_end(found, true)?;
    let last = found.commits.last().and_then(|commit| commit.info.received.as_deref());
    let state = last.map_or_else(SubscriptionState::default, |last| SubscriptionState {
        position: last.position + 1,
        sequence_number: Some(last.sequence_number),
    });
    Ok(Stand { state, count: found.version })
}

/// Returns the answer to a batch that ends at or before the position of the subscription.
fn repeat(
    core: &Core,
    aggregate: &Aggregate,
    batch: &ReceivedBatch,
    state: SubscriptionState,
) -> Result<Received, ReceiveError> {
    let view = core.view();
    let mut first = None;
    for event in &batch.events {
        let request_id = event.sequence_number.to_string();
        let term = core.key.request(aggregate, &request_id);
        let found = core.noticed(lookup::request(&view, .., aggregate, &request_id, term))?;
        let record = found.map(|found| core.noticed(found.record())).transpose()?;
        let same = |from: &ReceivedFrom| from.position == event.position;
        let record = record.filter(|record| record.commit.info.received.as_deref().is_some_and(same));
        let record = record.ok_or_else(|| other_events(event))?;
        first.get_or_insert(record.first);
    }
    Ok(Received { first: first.unwrap_or_default(), state, duplicate: true })
}

fn other_events(event: &IncomingEvent) -> ReceiveError {
    ReceiveError::OtherEvents { position: event.position, sequence_number: event.sequence_number }
}

/// Creates the request for a batch. The writer accepts it only if the subscription has still received `count` events.
async fn request(
    core: &Core,
    aggregate: &Aggregate,
    batch: &ReceivedBatch,
    count: Version,
) -> Result<Box<Request>, StoreError> {
    let now = core.options.clock.now().nearest_writable();
    let ids: Vec<Uuid> = batch.events.iter().map(|_| new_uuid(now, &*core.options.random)).collect();
    let place = |place| TransactionPlace { id: ids[0], place, count: ids.len() as u32 };
    let mut encoded = Vec::with_capacity(ids.len());
    for (n, event) in (0..).zip(&batch.events) {
        let stamp = Stamp {
            commit_id: ids[n as usize],
            digest: 0,
            now,
            transaction: (ids.len() > 1).then(|| place(n)),
            received: Some(batch.received_from(event, now)),
        };
        let expected = if n == 0 { ExpectedVersion::Exact(count) } else { ExpectedVersion::Any };
        encoded.push(received(core, aggregate, event, &stamp, expected)?);
    }
    let room = room_for(core, encoded.iter().map(|commit| commit.payload.len()).sum()).await?;
    let first = encoded.remove(0);
    let request_id = batch.events[0].sequence_number.to_string();
    let mut request = Request::commit_of(first, Some(request_id.into()), now, room);
    request.others = encoded;
    Ok(request)
}

fn received(
    core: &Core,
    aggregate: &Aggregate,
    event: &IncomingEvent,
    stamp: &Stamp,
    expected: ExpectedVersion,
) -> Result<Encoded, StoreError> {
    let commit = NewCommit {
        aggregate: Aggregate::of_source(event.source.clone()),
        correlation_id: event.correlation_id.clone(),
        expected_version: expected,
        ..NewCommit::new("", "").event(event.as_new())
    };
    let request = event.sequence_number.to_string();
    encode_as(core, commit, stamp, &DEFAULT_TENANT_ID.into(), aggregate.clone(), &request)
}
