//! The suite of projections.

use crate::records::MongoRecords;

mod replica_set {
    use super::*;
    annals_conformance::projections!(MongoRecords::new());
    annals_conformance::projections_of_processes!(MongoRecords::new());
}
