//! The suite of sagas.

use crate::records::MongoRecords;

mod replica_set {
    use super::*;
    annals_conformance::sagas!(MongoRecords::new());
    annals_conformance::sagas_of_processes!(MongoRecords::new());
}
