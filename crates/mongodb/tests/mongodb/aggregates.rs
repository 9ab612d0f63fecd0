//! The suite of aggregates.

use crate::records::MongoRecords;

mod replica_set {
    use super::*;
    annals_conformance::aggregates!(MongoRecords::new());
}
