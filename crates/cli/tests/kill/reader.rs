//! A client that reads in every way there is.

use annals::{Aggregate, AggregateFilter, AggregateIdsQuery, AggregateQuery, EventLog, Filter, LogQuery, ReadError};
use fastrand::Rng;

use crate::meeting::{Guest, is_gone_reading};
use crate::writer::AGGREGATES;

/// Reads at each server until it is gone.
pub async fn run(mut guest: Guest, mut rng: Rng) {
    loop {
        let place = guest.next().await;
        if place.last {
            return;
        }
        let log = guest.log(&place);
        loop {
            match read(&*log, &mut rng).await {
                Ok(()) => guest.answered(),
                Err(error) => {
                    assert!(is_gone_reading(&error), "a read failed: {error}");
                    break;
                }
            }
        }
    }
}

async fn read(log: &dyn EventLog, rng: &mut Rng) -> Result<(), ReadError> {
    let aggregate = Aggregate::new("account", rng.u64(..AGGREGATES).to_string());
    match rng.u8(..6) {
        0 => {
            let from_version = rng.u64(1..100);
            log.read_aggregate(AggregateQuery { from_version, ..AggregateQuery::new(aggregate) }).await?;
        }
        1 => {
            log.read_aggregate(AggregateQuery::last(aggregate)).await?;
        }
        2 => {
            log.request_exists(&aggregate, &format!("shared-{}", rng.u8(..20))).await?;
        }
        3 => {
            let after = rng.bool().then(|| aggregate.id.clone());
            log.aggregate_ids(AggregateIdsQuery { name: aggregate.name, after, limit: 5 }).await?;
        }
        _ => {
            let head = log.head().await?;
            let (from, backwards) = (rng.u64(0..=head), rng.bool());
            log.read(LogQuery { from: Some(from), limit: 100, backwards, filter: filter(rng, aggregate) }).await?;
        }
    }
    Ok(())
}

fn filter(rng: &mut Rng, aggregate: Aggregate) -> Filter {
    match rng.u8(..4) {
        0 => Filter { types: vec!["kind_0".into(), "shared".into()], ..Filter::default() },
        1 => Filter { tags: vec!["tag-3".into()], ..Filter::default() },
        2 => {
            let aggregate = AggregateFilter { name: aggregate.name, id: Some(aggregate.id) };
            Filter { aggregate: Some(aggregate), ..Filter::default() }
        }
        _ => Filter::default(),
    }
}
