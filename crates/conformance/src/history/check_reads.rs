//! Checks reads: the result of each against what the log holds in the range that it covered.

use annals_core::{Aggregate, AggregateIdsQuery, AggregateQuery, KnownAggregate, LogQuery, SequenceNumber, Version};

use super::Broken;
use super::final_log::FinalLog;
use super::real_time::RealTime;
use super::record::{CommitsSeen, PageSeen, Record, What};

pub(super) fn check(record: &Record, log: &FinalLog<'_>, time: &RealTime<'_>, broken: &mut Broken) {
    for call in &record.calls {
        let known = time.known(call.began);
        let checked = match &call.what {
            What::Read { query, answer: Some(page) } => check_page(query, page, log),
            What::ReadAggregate { query, answer: Some(seen) } => check_aggregate(query, seen, log, known),
            What::RequestExists { aggregate, request_id, answer: Some(exists) } => {
                match (log.of_request(aggregate, request_id), *exists) {
                    (None, true) => Err("it is not there".into()),
                    (Some(stored), false) if stored.end() <= known => Err(format!("{stored} was known")),
                    _ => Ok(()),
                }
            }
            What::AggregateIds { query, answer: Some(ids) } => check_ids(query, ids, log, known),
            What::WaitPast { head, answer: Some(told) } if told <= head => Err("it ended too early".into()),
            _ => Ok(()),
        };
        if let Err(promise) = checked {
            broken.note(format!("{call}: {promise}"));
        }
    }
}

fn check_page(query: &LogQuery, page: &PageSeen, log: &FinalLog<'_>) -> Result<(), String> {
    let numbers = &page.numbers;
    let beginning = if query.backwards { page.head } else { 0 };
    let from = query.from.unwrap_or(beginning).min(page.head);
    let (low, high) = if query.backwards { (page.next, from) } else { (from, page.next) };
    if low > high || high > page.head {
        return Err(format!("next {} does not lie between {from} and the end", page.next));
    }
    let mut expected = log.matching(low, high, &query.filter);
    if query.backwards {
        expected.reverse();
    }
    if *numbers != expected {
        return Err(format!("from {from} to {} there are {expected:?}", page.next));
    }
    if numbers.len() > query.limit {
        return Err("the page is over its limit".into());
    }
    let end = if query.backwards { 0 } else { page.head };
    if numbers.is_empty() && page.next != end {
        return Err(format!("an empty page is the end, but next is not {end}"));
    }
    Ok(())
}

fn check_aggregate(
    query: &AggregateQuery,
    seen: &CommitsSeen,
    log: &FinalLog<'_>,
    known: SequenceNumber,
) -> Result<(), String> {
    let tenant = log.of_version(&query.aggregate, 1).map(|first| &first.info.tenant_id);
    if query.tenant_id.as_ref().is_some_and(|wanted| tenant.is_some_and(|tenant| tenant != wanted)) {
        let nothing = seen.version == 0 && seen.commits.is_empty();
        return if nothing { Ok(()) } else { Err("it belongs to another tenantId".into()) };
    }
    let least = log.version_at(&query.aggregate, known);
    if seen.version < least {
        return Err(format!("version {least} was known"));
    }
    if seen.version > 0 && log.of_version(&query.aggregate, seen.version).is_none() {
        return Err("the version is gone".into());
    }
    let in_range = |version: Version| (query.from_version..=query.to_version.min(seen.version)).contains(&version);
    let matching: Vec<_> = log
        .of_aggregate(&query.aggregate)
        .filter(|stored| in_range(stored.info.version))
        .filter(|stored| query.from_time.is_none_or(|from| stored.info.time >= from))
        .filter(|stored| query.to_time.is_none_or(|to| stored.info.time <= to))
        .map(|stored| (stored.info.version, stored.first(), stored.events.len()))
        .collect();
    let right = if query.last { matching.ends_with(&seen.commits) } else { matching.starts_with(&seen.commits) };
    if !right || seen.commits.len() > query.limit || seen.commits.is_empty() != matching.is_empty() {
        return Err(format!("there are {matching:?}"));
    }
    Ok(())
}

fn check_ids(
    query: &AggregateIdsQuery,
    ids: &[KnownAggregate],
    log: &FinalLog<'_>,
    known: SequenceNumber,
) -> Result<(), String> {
    if ids.len() > query.limit {
        return Err("the list is over its limit".into());
    }
    if ids.windows(2).any(|pair| pair[0].id.as_bytes() >= pair[1].id.as_bytes()) {
        return Err("the list is out of order".into());
    }
    let after = |id: &str| query.after.as_ref().is_none_or(|after| id.as_bytes() > after.as_bytes());
    for listed in ids {
        let aggregate = Aggregate::new(query.name.clone(), listed.id.clone());
        let tenant = log.of_version(&aggregate, 1).map(|first| &first.info.tenant_id);
        if tenant != Some(&listed.tenant_id) || !after(&listed.id) {
            return Err(format!("{:?} should not be listed, or with tenantId {tenant:?}", listed.id));
        }
    }
    // A full list covers up to its last id, a shorter one everything.
    let last = ids.last().filter(|_| ids.len() == query.limit).map(|last| &last.id);
    let missing = log.aggregates().find(|(aggregate, first)| {
        aggregate.name == query.name
            && first.end() <= known
            && after(&aggregate.id)
            && last.is_none_or(|last| aggregate.id.as_bytes() <= last.as_bytes())
            && !ids.iter().any(|listed| listed.id == aggregate.id)
    });
    missing.map_or(Ok(()), |(aggregate, _)| Err(format!("{aggregate} was known and is left out")))
}
