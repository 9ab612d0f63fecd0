//! Prepare keys in commits that have an append condition.

use annals_core::{Code, CommitError, ExpectedVersion, KeyValue, Release, Reserve};

use crate::Subject;
use crate::sample::{commit, open, order, pattern, refused, unless};

fn reserve(key: &str) -> Reserve {
    Reserve::new("user", key, KeyValue::new("u-1").expect("a value"))
}

fn taken(key: &str) -> CommitError {
    CommitError::KeyTaken { name: "user".into(), key: key.into() }
}

/// Keys are checked after the append condition and before the version.
pub async fn keys_are_judged_between_append_condition_and_version(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 1).reserve(reserve("eva"))).await;
    let wrong = |after| order("a", 2).reserve(reserve("eva")).fail_if(unless(&[pattern(&[], &[])], after));
    let wrong = |after| wrong(after).expect(ExpectedVersion::Empty);
    assert_eq!(refused(&log, wrong(None)).await.code(), Code::AppendConditionFailed);
    assert_eq!(refused(&log, wrong(Some(0))).await, taken("eva"));
}

/// A commit whose append condition fails takes no key and releases none.
pub async fn a_failed_append_condition_changes_no_key(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 1).reserve(reserve("held"))).await;
    let both = order("b", 1).release(Release::new("user", "held")).reserve(reserve("new"));
    let excluded = both.fail_if(unless(&[pattern(&[], &[])], None));
    assert_eq!(refused(&log, excluded).await.code(), Code::AppendConditionFailed);
    assert_eq!(refused(&log, order("c", 1).reserve(reserve("held"))).await, taken("held"));
    commit(&log, order("c", 1).reserve(reserve("new"))).await;
}
