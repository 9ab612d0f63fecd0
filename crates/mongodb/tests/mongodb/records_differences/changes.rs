//! Random changes, those of fields and checks among them: the embedded store and a real mongod take and refuse the same, hold the same, and
//! their feeds tell the same.

use std::collections::HashMap;

use annals_conformance::records::RecordOperations;
use annals_core::{Collection, Expected, Record, RecordChange, RecordQuery, RecordedChange, Records, Revision, limits};

use super::pair::Pair;

/// Batches of one run.
const BATCHES: usize = 400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_changes_leave_the_same_records_as_on_mongodb() {
    let pair = Pair::open().await;
    let loaded = pair.load("changed", &[], &[]).await.expect("loaded");
    let collection = loaded.collection();
    let records = [loaded.embedded(), loaded.mongodb()];
    for records in records {
        records.declare(Collection::new(&*collection).with_feed()).await.expect("declared");
    }
    let mut operations = RecordOperations::new(7);
    let (mut taken, mut refused) = (0, 0);
    // What a revision of the embedded store is on MongoDB.
    let mut revisions: HashMap<Revision, Revision> = HashMap::new();
    for batch in 0..BATCHES {
        let changes = [operations.any_change(&collection), operations.any_change(&collection)];
        let changes = &changes[..1 + batch % 2];
        let mut there = changes.to_vec();
        for revision in there.iter_mut().filter_map(expected_revision) {
            *revision = revisions.get(revision).copied().unwrap_or(*revision);
        }
        let answers = [records[0].write(changes.to_vec()).await, records[1].write(there).await];
        if let [Ok(embedded), Ok(mongodb)] = &answers {
            revisions.extend(embedded.iter().zip(mongodb).map(|(embedded, mongodb)| (*embedded, *mongodb)));
        }
        let [embedded, mongodb] = answers.map(|answer| answer.map(drop).map_err(|error| error.code()));
        assert_eq!(embedded, mongodb, "batch {batch}: {changes:?}");
        if mongodb.is_ok() {
            taken += 1;
        } else {
            refused += 1;
        }
        let mut found: Vec<Vec<Record>> = Vec::new();
        for records in records {
            found.push(records.find(RecordQuery::new(&*collection)).await.expect("found").records);
        }
        let documents = |found: &[Record]| found.iter().map(|record| record.document.clone()).collect::<Vec<_>>();
        assert_eq!(documents(&found[0]), documents(&found[1]), "batch {batch}: {changes:?}");
        for (embedded, mongodb) in found[0].iter().zip(&found[1]) {
            assert_eq!(revisions.get(&embedded.revision), Some(&mongodb.revision), "batch {batch}: {changes:?}");
        }
    }
    assert!(taken > BATCHES / 4 && refused > BATCHES / 10, "{taken} taken, {refused} refused");
    let told = async |records: &dyn Records| {
        let changes = records.changes(&collection, 0, limits::PAGE_MAX).await.expect("read");
        changes.into_iter().map(|RecordedChange { id, what, .. }| (id, what)).collect::<Vec<_>>()
    };
    let (embedded, mongodb) = (told(&**records[0]).await, told(&**records[1]).await);
    assert!(embedded.len() > BATCHES / 4, "{embedded:?}");
    assert_eq!(embedded, mongodb);
    pair.close().await;
}

fn expected_revision(change: &mut RecordChange) -> Option<&mut Revision> {
    match change {
        RecordChange::Insert { .. } => None,
        RecordChange::Replace { expected, .. }
        | RecordChange::Delete { expected, .. }
        | RecordChange::Set { expected, .. }
        | RecordChange::Check { expected, .. } => match expected {
            Expected::Revision(revision) => Some(revision),
            _ => None,
        },
    }
}
