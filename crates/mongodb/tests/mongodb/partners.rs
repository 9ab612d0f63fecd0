//! The suite of partner events.

use crate::records::MongoRecords;

mod replica_set {
    use super::*;
    annals_conformance::partners!(MongoRecords::new());
    annals_conformance::partners_of_processes!(MongoRecords::new());
}
