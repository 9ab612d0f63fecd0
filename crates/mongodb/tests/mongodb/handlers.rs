//! The suite of handlers.

use crate::records::MongoRecords;

mod replica_set {
    use super::*;
    annals_conformance::handlers!(MongoRecords::new());
    annals_conformance::handlers_of_processes!(MongoRecords::new());
}
