//! The suites of topics and consumer groups.

use crate::records::MongoRecords;

mod replica_set {
    use super::*;

    mod topics {
        use super::*;
        annals_conformance::broker!(MongoRecords::new());
    }

    annals_conformance::groups!(MongoRecords::new());
}
