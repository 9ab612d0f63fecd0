//! The suites of the browse view and of replays.

use crate::records::MongoRecords;

mod replica_set {
    use super::*;
    annals_conformance::browse!(MongoRecords::new());
    annals_conformance::replays!(MongoRecords::new());
    annals_conformance::replays_of_processes!(MongoRecords::new());
}
