//! A store and its tenants.

use annals_core::{Code, DEFAULT_SCOPE, DEFAULT_TENANT};

use crate::sample::{commit, open, order, refused};
use crate::{OTHER_TENANT, Subject, WithOther};

/// A tenant that is not declared has no log: commits and reads fail, and the error says what to do.
pub async fn a_tenant_that_is_not_declared_has_no_log(subject: &dyn Subject) {
    let (store, _log) = open(subject).await;
    for tenant in ["nobody", "", "Default", "default/", "../default"] {
        let Err(error) = store.log(tenant, DEFAULT_SCOPE) else { panic!("{tenant:?} must be unknown") };
        assert_eq!(error.code(), Code::UnknownTenant);
        assert!(error.to_string().contains("not declared"));
        assert_eq!(store.identity(tenant), None);
    }
}

/// A scope that a tenant does not have has no log.
pub async fn a_scope_that_does_not_exist_has_no_log(subject: &dyn Subject) {
    let (store, _log) = open(subject).await;
    let Err(error) = store.log(DEFAULT_TENANT, "elsewhere") else { panic!("the scope must be unknown") };
    assert_eq!(error.code(), Code::UnknownScope);
}

/// The declared tenants are listed in order of their names.
pub async fn declared_tenants_are_listed_in_order(subject: &dyn Subject) {
    let subject = &WithOther(subject);
    let (store, _log) = open(subject).await;
    assert_eq!(store.tenants(), [DEFAULT_TENANT, OTHER_TENANT]);
}

/// The status of a log shows its head, that it accepts commits, and that ordinary opening recovered nothing.
pub async fn a_logs_status_says_how_it_is(subject: &dyn Subject) {
    let subject = &WithOther(subject);
    let (store, log) = open(subject).await;
    for n in 0..5 {
        commit(&log, order("a", n)).await;
    }
    refused(&log, order("a", 1).expect(annals_core::ExpectedVersion::Empty)).await;
    let status = store.status();
    let of = |tenant: &str| {
        let found = status.iter().find(|log| log.tenant == tenant && log.scope == DEFAULT_SCOPE);
        found.expect("each declared tenant's log has a status").clone()
    };
    let default = of(DEFAULT_TENANT);
    assert_eq!((default.head, default.refusing, default.commits), (5, None, 5));
    assert_eq!(default.recovery, Vec::<String>::new());
    assert!((1..=5).contains(&default.syncs), "commits were made durable");
    assert!((1..=5).contains(&default.sync_times.count), "the time that each sync took is counted");
    assert!(default.bytes > 0);
    let other = of(OTHER_TENANT);
    assert_eq!((other.head, other.refusing, other.commits), (0, None, 0));
    store.close().await;
}
