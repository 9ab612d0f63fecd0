//! The suites of the browse view, its archive and replays.

use crate::records::MongoRecords;

mod replica_set {
    use super::*;
    annals_conformance::browse!(MongoRecords::new());
    annals_conformance::archive!(MongoRecords::new());
    annals_conformance::replays!(MongoRecords::new());
    annals_conformance::replays_of_processes!(MongoRecords::new());
}
