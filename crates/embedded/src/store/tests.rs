use annals_core::{Aggregate, AggregateQuery, DEFAULT_TENANT, Data, ExpectedVersion, LogQuery, NewCommit, NewEvent};
use tokio::runtime::Builder;

use super::*;
use crate::disk::MemoryDisk;

fn commit(id: &str, n: u64) -> NewCommit {
    let data = Data::from_json(&format!(r#"{{"n":{n},"text":"{}"}}"#, "x".repeat(200))).expect("valid");
    NewCommit::new("order", id).event(NewEvent::new("placed", data).tag(format!("t{}", n % 3)))
}

#[test]
fn commits_survive_reopening_across_many_segments() {
    let disk = Arc::new(MemoryDisk::default());
    let options = Options { segment_bytes_first: 2_000, segment_bytes_max: 4_000, ..Options::default() };
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        for round in 0..4u64 {
            let store = EmbeddedStore::open(disk.clone(), options.clone()).expect("opens");
            assert_eq!(store.status()[0].refusing, None);
            assert!(store.status()[0].recovery.is_empty(), "{:?}", store.status()[0].recovery);
            let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("there");
            for n in 0..50 {
                let given =
                    commit("o-1", n).expect(ExpectedVersion::Exact(round * 50 + n)).request_id(format!("{round}/{n}"));
                let first = log.commit(given.clone()).await.expect("commits");
                assert_eq!((first.version, first.first_sequence_number), (round * 50 + n + 1, Some(round * 50 + n)));
                let again = log.commit(given).await.expect("a repeat");
                assert_eq!(again, annals_core::CommitOutcome { duplicate: true, ..first });
            }
            let query = LogQuery { limit: 1_000, ..LogQuery::default() };
            let page = log.read(query.clone()).await.expect("reads");
            let numbers: Vec<u64> = page.events.iter().map(|event| event.sequence_number).collect();
            assert_eq!(numbers, (0..(round + 1) * 50).collect::<Vec<_>>());
            let back = log.read(LogQuery { backwards: true, ..query }).await.expect("reads");
            assert_eq!(back.events.into_iter().rev().collect::<Vec<_>>(), page.events);
            let mut middle = AggregateQuery::new(Aggregate::new("order", "o-1"));
            (middle.from_version, middle.to_version) = (20, 29);
            let versions = log.read_aggregate(middle).await.expect("reads").commits;
            assert_eq!(versions.iter().map(|c| c.info.version).collect::<Vec<_>>(), (20..30).collect::<Vec<_>>());
            store.close().await;
        }
    });
    let names = disk.list("tenants/default/default").expect("lists");
    assert!(names.iter().filter(|name| name.ends_with(".index")).count() > 3, "{names:?}");
}
