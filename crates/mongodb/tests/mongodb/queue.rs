//! The suite of work queues.

use crate::records::MongoRecords;

mod replica_set {
    use super::*;
    annals_conformance::queue!(MongoRecords::new());
}
