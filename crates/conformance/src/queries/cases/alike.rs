//! Cases for both snapshots and commits.

use annals_core::{
    Code, Condition, DEFAULT_TENANT, DocumentQuery, Pagination, Projection, QuerySource, Snapshot, SnapshotQueryService,
};
use serde_json::{Value, json};

use super::{Asked, commits, snapshot, snapshots, texts};
use crate::sample::{log_of, order};
use crate::{OTHER_TENANT, Subject, WithOther};

async fn with_some(subject: &dyn Subject, number: u64) -> Asked {
    let asked = Asked::open(subject).await;
    for n in 0..number {
        let id = format!("o-{n:02}");
        asked.save(snapshot(&id, n + 1, json!({ "n": n }))).await;
        asked.commit(order(&id, n)).await;
    }
    asked
}

fn both() -> [QuerySource; 2] {
    [snapshots(), commits()]
}

/// By default it is the first ten. A page past the last one is empty, and the total stays.
pub async fn pages_have_their_part_and_the_total(subject: &dyn Subject) {
    let asked = with_some(subject, 25).await;
    for source in both() {
        let page = async |index, size| {
            let query =
                DocumentQuery::default().descending("aggregateId").projection(Projection::only(["aggregateId"]));
            let paged = asked.queries.paged(&source, query, Pagination { index, size }).await.expect("it is answered");
            let found = texts(&paged.list, "aggregateId");
            (paged.total, found.len(), found.first().cloned().unwrap_or_default())
        };
        assert_eq!(page(1, 10).await, (25, 10, "o-24".to_owned()));
        assert_eq!(page(2, 10).await, (25, 10, "o-14".to_owned()));
        assert_eq!(page(3, 10).await, (25, 5, "o-04".to_owned()));
        assert_eq!(page(4, 10).await, (25, 0, String::new()));
        assert_eq!(page(5, 5).await, (25, 5, "o-04".to_owned()));
        assert_eq!(page(1, 0).await, (25, 25, "o-24".to_owned()));
        assert_eq!(page(2, 0).await, (25, 0, String::new()));
        let first = asked.queries.paged(&source, DocumentQuery::default(), Pagination::default()).await;
        assert_eq!(first.map(|first| first.list.len()), Ok(10));
        assert_eq!(asked.list(&source, Condition::All, 7).await.len(), 7);
    }
    asked.store.close().await;
}

/// The list is longer than a page of records.
pub async fn a_list_without_a_limit_has_all(subject: &dyn Subject) {
    const ALL: u64 = 1_050;
    let asked = Asked::open(subject).await;
    let kept = asked.store.snapshots(DEFAULT_TENANT).expect("the tenant is declared");
    kept.declare("order", Vec::new()).await.expect("declared");
    let saving: Vec<_> = (0..ALL)
        .map(|n| {
            let kept = kept.clone();
            tokio::spawn(async move { kept.save(&snapshot(&format!("o-{n:04}"), 1, json!({ "n": n }))).await })
        })
        .collect();
    for task in saving {
        assert_eq!(task.await.expect("it ends"), Ok(true));
    }
    let all = texts(&asked.list(&snapshots(), Condition::All, 0).await, "aggregateId");
    assert!(all.len() as u64 == ALL && all.is_sorted_by(|a, b| a < b));
    let last = Pagination { index: 206, size: 5 };
    let query = DocumentQuery::new(Condition::gte("state.n", 10)).ascending("state.n");
    let paged = asked.queries.paged(&snapshots(), query, last).await.expect("it is answered");
    let due: Vec<_> = (1_035..1_040).map(|n| format!("o-{n:04}")).collect();
    assert_eq!((paged.total, texts(&paged.list, "aggregateId")), (ALL - 10, due));
    asked.store.close().await;
}

/// Nothing was saved or committed under the name.
pub async fn where_nothing_is_nothing_is_found(subject: &dyn Subject) {
    let asked = with_some(subject, 1).await;
    for source in [QuerySource::Snapshots("door".into()), QuerySource::Commits("door".into())] {
        assert_eq!(asked.queries.single(&source, Condition::All.into()).await, Ok(None));
        assert!(asked.list(&source, Condition::All, 0).await.is_empty());
        let paged = asked.queries.paged(&source, Condition::All.into(), Pagination::default()).await;
        assert_eq!(paged.map(|paged| (paged.total, paged.list.len())), Ok((0, 0)));
        assert_eq!(asked.count(&source, &Condition::All).await, 0);
        assert_eq!(asked.queries.explain(&source, Condition::All.into(), 0).await.map(|how| how.found), Ok(0));
    }
    asked.store.close().await;
}

/// It is refused before anything is read.
pub async fn what_cannot_be_asked_is_refused_with_its_place(subject: &dyn Subject) {
    let asked = with_some(subject, 1).await;
    let refused = |refused: annals_core::ReadError| match refused {
        annals_core::ReadError::Invalid(invalid) => (invalid.code, invalid.path),
        other => panic!("{other}"),
    };
    for source in both() {
        for (query, code, path) in [
            (DocumentQuery::new(Condition::And(vec![])), Code::InvalidCondition, "condition"),
            (DocumentQuery::new(Condition::eq("a..b", 1)), Code::InvalidCondition, "condition"),
            (DocumentQuery::default().ascending("a").descending("a"), Code::InvalidQuery, "sort"),
            (DocumentQuery::default().projection(Projection::only(["a", "a.b"])), Code::InvalidQuery, "projection"),
        ] {
            let listed = asked.queries.list(&source, query.clone(), 0).await.expect_err("it is refused");
            assert_eq!(refused(listed), (code, path.to_owned()), "{query:?}");
        }
        let none = Pagination { index: 0, size: 10 };
        let paged = asked.queries.paged(&source, Condition::All.into(), none).await.expect_err("it is refused");
        assert_eq!(refused(paged), (Code::InvalidQuery, "pagination.index".to_owned()));
    }
    for source in [QuerySource::Snapshots("".into()), QuerySource::Commits("no name!".into())] {
        let counted = asked.queries.count(&source, &Condition::All).await.expect_err("it is refused");
        assert_eq!(counted.code(), Code::InvalidName);
    }
    assert!(SnapshotQueryService::<Value>::new(asked.queries.clone(), " ").is_err());
    asked.store.close().await;
}

/// A part is never returned as the whole.
pub async fn an_answer_is_refused_that_would_be_too_large(subject: &dyn Subject) {
    let asked = with_some(subject, 20).await;
    for source in both() {
        let query = DocumentQuery::default().bytes_max(4_000);
        let refused = asked.queries.list(&source, query.clone(), 0).await.expect_err("it is too large");
        assert_eq!(refused.code(), Code::QueryAnswerTooLarge);
        let small = query.projection(Projection::only(["aggregateId"]));
        assert_eq!(asked.queries.list(&source, small, 0).await.map(|found| found.len()), Ok(20));
    }
    asked.store.close().await;
}

/// A look-up does not examine everything.
pub async fn it_is_told_how_documents_are_found(subject: &dyn Subject) {
    let asked = with_some(subject, 30).await;
    for source in both() {
        let one = asked.queries.explain(&source, Condition::aggregate_id("o-07").into(), 0).await.expect("explained");
        // A query without an index examines everything.
        let looked_up = one.index.is_none() || one.documents_examined == 1;
        assert!(one.found == 1 && looked_up, "{one:?}");
        let all = asked.queries.explain(&source, Condition::gte("version", 0).into(), 10).await.expect("explained");
        assert!(all.found == 10 && all.documents_examined >= 10, "{all:?}");
    }
    assert!(!asked.queries.reads_every_commit(&commits(), &Condition::aggregate_id("o-07")));
    asked.store.close().await;
}

/// Nor do they count them.
pub async fn tenants_do_not_find_each_other_s_documents(subject: &dyn Subject) {
    let subject = &WithOther(subject);
    let asked = with_some(subject, 2).await;
    let other = Asked::of(asked.store.clone(), OTHER_TENANT);
    for source in both() {
        assert_eq!((asked.count(&source, &Condition::All).await, other.count(&source, &Condition::All).await), (2, 0));
    }
    let theirs: Snapshot = snapshot("o-00", 9, json!({ "n": 9 }));
    let kept = other.store.snapshots(OTHER_TENANT).expect("the tenant is declared");
    assert_eq!(kept.save(&theirs).await, Ok(true));
    log_of(&other.store, OTHER_TENANT).commit(order("o-00", 9)).await.expect("it is taken");
    for source in both() {
        assert_eq!((asked.count(&source, &Condition::All).await, other.count(&source, &Condition::All).await), (2, 1));
    }
    asked.store.close().await;
}
