//! The suite of event types.

use crate::records::MongoRecords;

mod replica_set {
    use super::*;
    annals_conformance::types!(MongoRecords::new());
    annals_conformance::types_of_processes!(MongoRecords::new());
}
