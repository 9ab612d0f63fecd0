//! Several hosts on one store: each task runs in one of them, and each host runs its share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use annals_core::filters::FilterDefinition;
use annals_core::handlers::HandlerDefinition;
use annals_core::processing::PartitionBy;
use annals_core::projections::ProjectionDefinition;
use annals_core::{DEFAULT_SCOPE, DEFAULT_TENANT, Lease, RecordQuery, RecordType, RecordedEvent, TypedRecords, limits};
use annals_runtime::{Effects, HandleFailure, Handler};
use async_trait::async_trait;

use crate::Subject;
use crate::handlers::opened::Opened;

/// The number of tasks of each kind: handlers in Rust, filters, projections.
const OF_EACH: usize = 4;
const COUNTS: &str = r#"{"on": {"placed": {"increment": {"n": 1}}}}"#;

/// The sequence numbers that each handler has handled, by partition, in any of the hosts.
type Seen = Arc<Mutex<BTreeMap<(usize, String), Vec<u64>>>>;

struct Noting {
    handler: usize,
    seen: Seen,
}

#[async_trait]
impl Handler for Noting {
    async fn handle(&self, events: &[RecordedEvent], _: &mut Effects) -> Result<(), HandleFailure> {
        let mut seen = self.seen.lock().expect("sound");
        for event in events {
            let partition = event.commit.aggregate.id.to_string();
            seen.entry((self.handler, partition)).or_default().push(event.sequence_number);
        }
        Ok(())
    }
}

fn handler(n: usize) -> HandlerDefinition {
    HandlerDefinition::new(format!("h-{n}")).partitioned(PartitionBy::Aggregate, 4)
}

/// Starts a host with the program's handlers, which runs all filters and projections.
async fn hosted(it: Opened, seen: &Seen) -> Opened {
    it.host.start_defined();
    for n in 0..OF_EACH {
        let noting = Noting { handler: n, seen: Arc::clone(seen) };
        it.host.handle(DEFAULT_TENANT, handler(n), noting).await.expect("defined");
    }
    it
}

async fn defined(it: &Opened) {
    let (filters, projections) = (it.host.filters(DEFAULT_TENANT), it.host.projections(DEFAULT_TENANT));
    let (filters, projections) = (filters.expect("declared"), projections.expect("declared"));
    for n in 0..OF_EACH {
        filters.put(FilterDefinition::new(format!("f-{n}")).types(["placed"])).await.expect("defined");
        let counts = ProjectionDefinition::read(&format!("p-{n}"), COUNTS.as_bytes()).expect("a definition");
        projections.put(counts).await.expect("defined");
    }
}

/// Returns how many leases each process holds.
async fn loads(it: &Opened) -> BTreeMap<String, usize> {
    let records = it.store.records(DEFAULT_TENANT).expect("declared");
    let query = RecordQuery::new(Lease::COLLECTION).limit(limits::PAGE_MAX);
    let leases = TypedRecords::<Lease>::declared(records).find(query).await.expect("reads").0;
    let mut loads = BTreeMap::new();
    for lease in leases.into_iter().map(|found| found.value).filter(|lease| !lease.is_released()) {
        *loads.entry(lease.holder).or_default() += 1;
    }
    loads
}

/// Lets time pass until the processes have these loads, in any order. The store does real work between two steps of the clock.
async fn until_spread(it: &Opened, wanted: &[usize]) -> BTreeMap<String, usize> {
    loop {
        let loads = loads(it).await;
        let mut counts: Vec<_> = loads.values().copied().collect();
        counts.sort_unstable();
        if counts == wanted {
            return loads;
        }
        it.advance(10);
    }
}

/// Commits an event to each of three aggregates, and lets time pass until everything has processed all events of the log.
async fn processed(it: &Opened) {
    it.commit("placed", &["a", "b", "c"]).await;
    let head = it.log.head().await.expect("reads");
    let streams = it.store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("declared");
    let projections = it.host.projections(DEFAULT_TENANT).expect("declared");
    for n in 0..OF_EACH {
        while it.handlers.get(&format!("h-{n}")).await.expect("defined").position < head {
            it.advance(10);
        }
        while streams.stream(&format!("f-{n}")).await.expect("reads").head < head {
            it.advance(10);
        }
        while projections.get(&format!("p-{n}")).await.expect("defined").position < head {
            it.advance(10);
        }
    }
}

/// No event is skipped or comes out of order meanwhile.
pub async fn work_spreads_evenly_over_processes_that_join_and_leave(subject: &dyn Subject) {
    let seen = Seen::default();
    let one = hosted(Opened::of(subject).await, &seen).await;
    defined(&one).await;
    let beside = async || {
        let store = subject.open_beside(&one.store).await;
        hosted(Opened::on(store, one.clock.clone()), &seen).await
    };
    let all = 3 * OF_EACH;
    let alone = until_spread(&one, &[all]).await;
    processed(&one).await;
    let two = beside().await;
    let both = until_spread(&one, &[all / 2, all / 2]).await;
    processed(&two).await;
    let three = beside().await;
    let spread = until_spread(&one, &[all / 3, all / 3, all / 3]).await;
    processed(&three).await;
    let names = |loads: &BTreeMap<String, usize>| loads.keys().cloned().collect::<BTreeSet<_>>();
    assert!(
        names(&alone).is_subset(&names(&both)) && names(&both).is_subset(&names(&spread)),
        "nobody lost everything"
    );
    // A process that leaves releases its leases at once: nothing waits for a lease to end.
    let joined = names(&spread).difference(&names(&both)).next().cloned().expect("the third one");
    three.host.drain().await;
    assert!(!loads(&one).await.contains_key(&joined));
    until_spread(&one, &[all / 2, all / 2]).await;
    processed(&one).await;
    two.host.drain().await;
    assert_eq!(names(&until_spread(&one, &[all]).await), names(&alone));
    processed(&one).await;
    check(&seen, one.log.head().await.expect("reads"));
}

/// Checks that every handler has handled every event, those of a partition in order. What was in flight in a process that left may have
/// come twice.
fn check(seen: &Seen, head: u64) {
    let seen = seen.lock().expect("sound");
    for n in 0..OF_EACH {
        let of_handler = seen.iter().filter(|((handler, _), _)| *handler == n);
        let all: BTreeSet<u64> = of_handler.flat_map(|(_, numbers)| numbers.iter().copied()).collect();
        assert_eq!(all, (0..head).collect(), "handler {n}");
    }
    for (of, numbers) in seen.iter() {
        let mut firsts: Vec<u64> = Vec::new();
        for number in numbers {
            if !firsts.contains(number) {
                firsts.push(*number);
            }
        }
        assert!(firsts.is_sorted(), "{of:?} came out of order: {numbers:?}");
    }
}
