//! The suite of dead letters.

use crate::records::MongoRecords;

mod replica_set {
    use super::*;
    annals_conformance::dead_letters!(MongoRecords::new());
}
