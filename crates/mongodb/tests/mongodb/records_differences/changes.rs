//! Random changes, those of fields and checks among them: the embedded store and a real mongod take and refuse the same, and hold the same.

use annals_conformance::records::RecordOperations;
use annals_core::{Record, RecordQuery};

use super::pair::Pair;

/// Batches of one run.
const BATCHES: usize = 400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_changes_leave_the_same_records_as_on_mongodb() {
    let pair = Pair::open().await;
    let loaded = pair.load("changed", &[], &[]).await.expect("loaded");
    let collection = loaded.collection();
    let records = [loaded.embedded(), loaded.mongodb()];
    let mut operations = RecordOperations::new(7);
    let (mut taken, mut refused) = (0, 0);
    for batch in 0..BATCHES {
        let changes = [operations.any_change(&collection), operations.any_change(&collection)];
        let changes = &changes[..1 + batch % 2];
        let answers = [records[0].write(changes.to_vec()).await, records[1].write(changes.to_vec()).await];
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
    }
    assert!(taken > BATCHES / 4 && refused > BATCHES / 10, "{taken} taken, {refused} refused");
    pair.close().await;
}
