//! Deletion and restoration of single events.

use annals_core::archive::{ArchiveError, ArchiveTarget};
use annals_core::browse::{BrowseQuery, EVENTS, ViewBody};
use annals_core::handlers::Reason;
use annals_core::replays::{ReplayAct, ReplayBody, ReplayState, ReplayTarget};
use annals_core::{Code, Uuid};

use crate::Subject;
use crate::archive::opened::{Archived, date, days_of, is_there};
use crate::browse::opened::{Sample, of_type, sample};

fn reason() -> Reason {
    Reason { reason: "a mistake".to_owned(), by: Some("eva".to_owned()) }
}

/// The copy also has the date at which the event would have expired, and when, by whom and why it was deleted.
pub async fn a_deleted_event_is_in_the_archive_with_every_field(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    it.rule("placed", 30, ArchiveTarget::None).await;
    let id = it.commit("placed").await;
    let before = it.in_view(&id).await.expect("in the view");
    assert_eq!(days_of(&before), Some(30));
    let deleted = it.archive.delete(&id, reason()).await.expect("deleted");
    assert!(deleted.deleted && deleted.event_id == id);
    assert_eq!(it.look().await, 0);
    let archived = it.archived().await;
    let copy = &archived[0];
    for (name, value) in before.iter().filter(|(name, _)| !["annals", "_annals", "deleted_by"].contains(&name.as_str()))
    {
        assert_eq!(copy.get(name), Some(value), "{name}");
    }
    assert_eq!(days_of(copy), Some(30));
    assert_eq!(copy.get_str("deletion_reason").ok(), Some("a mistake"));
    assert_eq!(copy.get_str("deleted_by").ok(), Some("eva"));
    assert_eq!(date(copy, "deleted_at"), Some(deleted.deleted_at.as_millis()));
    // The log still has it.
    assert_eq!(it.it.it.log.head().await, Ok(1));
}

/// Both deletions are refused with 404.
pub async fn an_unknown_event_is_not_deleted_and_none_is_deleted_twice(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    let unknown = it.archive.delete("nothing", reason()).await;
    assert_eq!(unknown, Err(ArchiveError::UnknownEvent("nothing".to_owned())));
    let id = it.commit("placed").await;
    it.archive.delete(&id, reason()).await.expect("deleted");
    assert_eq!(it.archive.delete(&id, reason()).await, Err(ArchiveError::UnknownEvent(id.clone())));
    let empty = it.archive.delete(&id, Reason::from("")).await.expect_err("no reason");
    assert_eq!(empty.code(), Code::InvalidBody);
}

/// The document is unchanged.
pub async fn a_restored_event_is_in_the_view_again_and_in_the_archive_no_more(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    let id = it.commit("placed").await;
    let before = it.in_view(&id).await.expect("in the view");
    it.archive.delete(&id, reason()).await.expect("deleted");
    let shown = it.archive.restore(&id, reason()).await.expect("restored");
    assert_eq!((shown["event_id"].as_str(), shown["deleted_by"].as_str()), (Some(&*id), Some("ada")));
    let after = it.in_view(&id).await.expect("in the view");
    for (name, value) in before.iter().filter(|(name, _)| !["annals", "_annals"].contains(&name.as_str())) {
        assert_eq!(after.get(name), Some(value), "{name}");
    }
    assert!(!is_there(&after, "deleted_at") && !is_there(&after, "deletion_reason"));
    assert!(it.archived().await.is_empty());
    let again = it.archive.restore(&id, reason()).await.expect_err("it is there");
    assert_eq!(again.code(), Code::StateConflict);
    let unknown = it.archive.restore("nothing", reason()).await;
    assert_eq!(unknown, Err(ArchiveError::NotArchived("nothing".to_owned())));
}

/// A rebuild from the log does not bring it back to the view; its restoration does.
pub async fn a_deleted_event_stays_deleted_when_the_view_is_rebuilt(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    let ids = [it.commit("placed").await, it.commit("placed").await, it.commit("paid").await];
    it.archive.delete(&ids[1], reason()).await.expect("deleted");
    it.it.browse.rebuild("a test".into()).await.expect("begun");
    while it.it.browse.view().await.expect("defined").collection.as_deref() == Some(EVENTS) {
        assert_eq!(it.look().await, 2);
    }
    assert_eq!(it.look().await, 2);
    it.archive.restore(&ids[1], reason()).await.expect("restored");
    assert_eq!(it.look().await, 3);
}

/// Of several events with one id the first counts, even while it is deleted: it is the one that a restoration brings back.
pub async fn a_deleted_event_that_is_committed_again_is_neither_shown_nor_archived_again(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    let id = it.commit("placed").await;
    it.archive.delete(&id, reason()).await.expect("deleted");
    let again = async || {
        let uuid = Uuid::parse_str(&id).expect("the id of an event");
        it.it.commit(Sample { id: Some(uuid), ..sample() }).await;
    };
    again().await;
    assert_eq!(it.look().await, 0);
    assert_eq!(it.archive.delete(&id, reason()).await, Err(ArchiveError::UnknownEvent(id.clone())));
    let other = it.commit("paid").await;
    it.it.browse.rebuild("a test".into()).await.expect("begun");
    while it.it.browse.view().await.expect("defined").collection.as_deref() == Some(EVENTS) {
        assert_eq!(it.look().await, 1);
    }
    assert_eq!(it.look().await, 1);
    assert_eq!(it.archived().await.len(), 1);
    it.archive.restore(&id, reason()).await.expect("restored");
    let page = it.it.browse.page(BrowseQuery { filter: of_type("placed"), ..BrowseQuery::default() }).await;
    let items = page.expect("a page").items;
    assert_eq!((items.len(), items[0]["event_id"].as_str()), (1, Some(&*id)));
    assert_eq!(items[0]["total"], 7, "it is the first one, which has data");
    again().await;
    assert_eq!(it.look().await, 2, "it and {other}");
    assert_eq!(it.it.it.log.head().await, Ok(4), "the log has all of them");
}

/// The replay completes without it.
pub async fn a_replay_passes_over_an_event_that_was_deleted_before_it_came(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(it.commit("placed").await);
    }
    let body =
        ReplayBody { batch_size: 1, rate: Some(1.0), ..ReplayBody::new(of_type("placed"), ReplayTarget::Test {}) };
    let id = it.it.begin(body).await;
    it.it.until_replay(&id, |status| status.replayed == 1).await;
    it.it.act(&id, ReplayAct::Pause).await;
    it.archive.delete(&ids[2], reason()).await.expect("deleted");
    it.it.act(&id, ReplayAct::Resume).await;
    let over = loop {
        it.it.it.clock.advance_millis(1_000);
        let status = it.it.replays.get(&id).await.expect("known");
        if status.status.is_terminal() {
            break status;
        }
        crate::between_looks().await;
    };
    assert_eq!((over.status, over.replayed, over.failed), (ReplayState::Completed, 3, 0));
}

/// The total is exact.
pub async fn the_archive_is_read_by_page_and_filter(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    assert_eq!(it.archive.page(BrowseQuery::default()).await.expect("a page").total, 0);
    for event_type in ["placed", "paid", "placed", "placed"] {
        let id = it.commit(event_type).await;
        it.archive.delete(&id, reason()).await.expect("deleted");
    }
    let query = BrowseQuery { filter: of_type("placed"), limit: 2, ..BrowseQuery::default() };
    let page = it.archive.page(query.clone()).await.expect("a page");
    assert_eq!((page.items.len(), page.total, page.has_more), (2, 3, true));
    assert!(page.items[0]["deleted_at"].is_string(), "{}", page.items[0]);
    let next = BrowseQuery { cursor: page.cursor, ..query.clone() };
    assert_eq!(it.archive.page(next).await.expect("a page").items.len(), 1);
    let skipped = BrowseQuery { skip: 2, ..query };
    assert_eq!(it.archive.page(skipped).await.expect("a page").items.len(), 1);
    let searching = BrowseQuery { search: Some("ada".to_owned()), ..BrowseQuery::default() };
    assert_eq!(it.archive.page(searching).await.expect_err("refused").code(), Code::InvalidQuery);
    assert!(it.documents(EVENTS).await.is_empty());
}

/// It is counted as in the view.
pub async fn the_total_of_the_archive_is_counted_as_far_as_it_is_asked_for(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    for _ in 0..4 {
        let id = it.commit("placed").await;
        it.archive.delete(&id, reason()).await.expect("deleted");
    }
    let counted = async |event_type: &str, count_up_to: Option<u64>| {
        let query = BrowseQuery { filter: of_type(event_type), limit: 2, count_up_to, ..BrowseQuery::default() };
        let page = it.archive.page(query).await.expect("a page");
        (page.items.len(), page.total, page.total_is_bound)
    };
    assert_eq!(counted("placed", Some(3)).await, (2, 3, true));
    assert_eq!(counted("placed", Some(5)).await, (2, 4, false));
    assert_eq!(counted("placed", None).await, (2, 4, false));
    assert_eq!(counted("placed", Some(0)).await, (2, 2, true));
    assert_eq!(counted("paid", Some(3)).await, (0, 0, false));
}

/// A restoration would be removed from the view at once.
pub async fn an_event_of_a_type_that_is_off_stays_in_the_archive(subject: &dyn Subject) {
    let it = Archived::of(subject).await;
    let id = it.commit("placed").await;
    it.archive.delete(&id, reason()).await.expect("deleted");
    let off = |types: &[&str]| {
        let off_types = Some(types.iter().map(|it| (*it).to_owned()).collect());
        ViewBody { off_types, ..ViewBody::switched(None, "a test") }
    };
    it.it.browse.set_view(off(&["placed"])).await.expect("set");
    let refused = it.archive.restore(&id, reason()).await.expect_err("its type is off");
    assert_eq!(refused.code(), Code::StateConflict);
    assert!(refused.to_string().contains("off_types"), "{refused}");
    assert_eq!(it.archived().await.len(), 1);
    it.it.browse.set_view(off(&[])).await.expect("set");
    it.archive.restore(&id, reason()).await.expect("restored");
    assert!(it.in_view(&id).await.is_some());
}
