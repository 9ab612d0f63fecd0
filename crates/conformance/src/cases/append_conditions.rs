//! A commit fails if the log has, after the position that the commit names, an event that its append condition excludes.

use std::sync::Arc;

use annals_core::{
    Code, CommitError, CommitOutcome, EventLog, EventPattern, ExpectedVersion, Filter, LogQuery, NewCommit, NewEvent,
    SequenceNumber,
};

use crate::Subject;
use crate::sample::{
    assert_in_order, commit, event, open, order, order_aggregate, pages, pattern, refused, reopen, unless, version_of,
    whole_log,
};
use crate::words::{IDS, NAMES, TAGS, TYPES, pick, some_of};

fn tagged(event_type: &str, tags: &[&str]) -> NewEvent {
    tags.iter().fold(event(event_type, 0), |event, tag| event.tag(*tag))
}

/// Asserts that the refusal names this pattern, and one of these events.
#[track_caller]
fn assert_excluded(result: Result<CommitOutcome, CommitError>, at: usize, events: &[SequenceNumber]) {
    match result {
        Err(CommitError::AppendConditionFailed { pattern, sequence_number }) => {
            assert_eq!(pattern, at);
            assert!(events.contains(&sequence_number), "event {sequence_number} does not match, {events:?} do");
        }
        other => panic!("a failed append condition was due, not {other:?}"),
    }
}

/// Commits three events, of the types placed, paid and shipped.
async fn three_events(log: &Arc<dyn EventLog>) {
    for event_type in ["placed", "paid", "shipped"] {
        commit(log, NewCommit::new("order", "a").event(event(event_type, 0))).await;
    }
}

/// The commit fails on a matching event after the position, and on none at or before it.
pub async fn only_events_after_the_position_count(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    three_events(&log).await;
    let paid = |after| unless(&[pattern(&["paid"], &[])], after);
    assert_excluded(log.commit(order("b", 1).fail_if(paid(None))).await, 0, &[1]);
    assert_excluded(log.commit(order("b", 1).fail_if(paid(Some(0)))).await, 0, &[1]);
    commit(&log, order("b", 1).fail_if(paid(Some(1)))).await;
    commit(&log, order("b", 1).fail_if(paid(Some(2)))).await;
    commit(&log, order("b", 1).fail_if(unless(&[pattern(&["lost"], &[])], None))).await;
}

/// A position in the future excludes no event, however far ahead it is.
pub async fn a_position_may_be_ahead_of_the_log(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for after in [0, 1_000_000, i64::MAX as u64, u64::MAX - 1, u64::MAX] {
        commit(&log, order("b", 1).fail_if(unless(&[pattern(&[], &[])], Some(after)))).await;
    }
    assert_excluded(log.commit(order("b", 1).fail_if(unless(&[pattern(&[], &[])], Some(3)))).await, 0, &[4]);
}

/// A match of any of the types is enough.
pub async fn a_pattern_takes_any_of_its_types(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    three_events(&log).await;
    let types = |types: &[&str]| order("b", 1).fail_if(unless(&[pattern(types, &[])], None));
    assert_excluded(log.commit(types(&["lost", "shipped"])).await, 0, &[2]);
    assert_excluded(log.commit(types(&["placed", "paid"])).await, 0, &[0, 1]);
    commit(&log, types(&["lost", "place", "shippe", "order"])).await;
}

/// All tags, and one of the types, must be on the same event. Other events of the commit do not contribute.
pub async fn a_pattern_wants_all_its_tags_on_one_event(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let spread = NewCommit::new("order", "a").event(tagged("placed", &["x"])).event(tagged("paid", &["y", "z"]));
    commit(&log, spread).await;
    let condition = |types: &[&str], tags: &[&str]| order("b", 1).fail_if(unless(&[pattern(types, tags)], Some(0)));
    let whole = |types: &[&str], tags: &[&str]| order("b", 1).fail_if(unless(&[pattern(types, tags)], None));
    commit(&log, whole(&[], &["x", "y"])).await;
    commit(&log, whole(&["placed"], &["y"])).await;
    commit(&log, whole(&["placed"], &["x", "z"])).await;
    commit(&log, whole(&["x"], &[])).await;
    assert_excluded(log.commit(whole(&[], &["z", "y"])).await, 0, &[1]);
    assert_excluded(log.commit(whole(&["lost", "paid"], &["y"])).await, 0, &[1]);
    // The position may be inside a commit.
    commit(&log, condition(&[], &["x"])).await;
    assert_excluded(log.commit(condition(&[], &["y"])).await, 0, &[1]);
}

/// One of several patterns is enough, and the refusal names it.
pub async fn one_pattern_of_several_is_enough_and_named(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    three_events(&log).await;
    commit(&log, NewCommit::new("door", "a").event(tagged("opened", &["front"]))).await;
    let never = || pattern(&["never"], &["front"]);
    let condition = |patterns: &[_]| order("b", 1).fail_if(unless(patterns, None));
    assert_excluded(log.commit(condition(&[never(), pattern(&["paid"], &[])])).await, 1, &[1]);
    assert_excluded(log.commit(condition(&[never(), never(), pattern(&[], &["front"])])).await, 2, &[3]);
    assert_excluded(log.commit(condition(&[pattern(&["opened"], &[]), never()])).await, 0, &[3]);
    commit(&log, condition(&vec![never(); 64])).await;
}

/// A pattern without types and tags matches any event: nothing may have been committed since.
pub async fn an_empty_pattern_is_any_event(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let nothing_since = |after| order("b", 1).fail_if(unless(&[pattern(&[], &[])], after));
    assert_eq!(commit(&log, nothing_since(None)).await.first_sequence_number, Some(0));
    assert_excluded(log.commit(nothing_since(None)).await, 0, &[0]);
    assert_eq!(commit(&log, nothing_since(Some(0))).await.first_sequence_number, Some(1));
    assert_excluded(log.commit(nothing_since(Some(0))).await, 0, &[1]);
}

/// Events of every aggregate count; those of the commit itself do not.
pub async fn other_aggregates_count_and_the_commit_itself_does_not(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let only_one = |id| order(id, 1).fail_if(unless(&[pattern(&["order_changed"], &[])], None));
    commit(&log, only_one("a").event(event("order_changed", 2))).await;
    for id in ["a", "b"] {
        assert_excluded(log.commit(only_one(id)).await, 0, &[0, 1]);
    }
}

/// Commits that do not match never conflict, however many are committed at the same time.
pub async fn commits_that_do_not_match_never_conflict(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let tasks: Vec<_> = (0..16)
        .map(|writer| {
            let log = log.clone();
            tokio::spawn(async move {
                let tag = format!("writer:{writer}");
                let mut after = None;
                for n in 0..20 {
                    let made = NewCommit::new("order", format!("{writer}-{n}")).event(tagged("placed", &[&tag]));
                    let condition = unless(&[pattern(&["placed"], &[&tag])], after);
                    after = commit(&log, made.fail_if(condition)).await.first_sequence_number;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task ends well");
    }
    assert_in_order(&whole_log(&log).await);
    assert_eq!(log.head().await.expect("the head is read"), 320);
}

/// Of many concurrent commits that exclude each other, one wins. The others are refused with its event.
pub async fn of_many_racing_commits_with_one_condition_one_wins(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    for round in 0..20_u64 {
        let tag = format!("seat:{round}");
        let tasks: Vec<_> = (0..16)
            .map(|n| {
                let taken = NewCommit::new("guest", format!("{round}-{n}")).event(tagged("seated", &[&tag]));
                let (log, taken) = (log.clone(), taken.fail_if(unless(&[pattern(&["seated"], &[&tag])], None)));
                tokio::spawn(async move { log.commit(taken).await })
            })
            .collect();
        let mut winners = 0;
        for task in tasks {
            match task.await.expect("the task ends well") {
                Ok(outcome) => {
                    assert_eq!(outcome.first_sequence_number, Some(round));
                    winners += 1;
                }
                refused => assert_excluded(refused, 0, &[round]),
            }
        }
        assert_eq!(winners, 1);
    }
    assert_eq!(log.head().await.expect("the head is read"), 20);
}

/// A name is unique through its tag. It can be taken once, and again after a later event that returns it and says where.
pub async fn a_name_is_unique_through_its_tag(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let take = |id: &str, name: &str, after| {
        let taken = NewCommit::new("account", id).event(tagged("name_taken", &[name]));
        taken.fail_if(unless(&[pattern(&["name_taken"], &[name])], after))
    };
    commit(&log, take("1", "name:eva", None)).await;
    commit(&log, take("2", "name:eve", None)).await;
    assert_excluded(log.commit(take("3", "name:eva", None)).await, 0, &[0]);
    let given_back = commit(&log, NewCommit::new("account", "1").event(tagged("name_given_back", &["name:eva"]))).await;
    commit(&log, take("3", "name:eva", given_back.first_sequence_number)).await;
    assert_excluded(log.commit(take("4", "name:eva", given_back.first_sequence_number)).await, 0, &[3]);
}

/// Decisions based on a filtered read keep their rule if they are repeated after a conflict: no course gets more than its five students,
/// and every course gets five.
pub async fn decisions_on_a_filtered_read_keep_their_rule(subject: &dyn Subject) {
    const PLACES: usize = 5;
    let (_store, log) = open(subject).await;
    let tasks: Vec<_> = (0..24)
        .map(|student| {
            let log = log.clone();
            tokio::spawn(async move { subscribe(&log, student, &format!("course:{}", student % 3), PLACES).await })
        })
        .collect();
    let mut subscribed = 0;
    for task in tasks {
        subscribed += usize::from(task.await.expect("the task ends well"));
    }
    assert_eq!(subscribed, 3 * PLACES);
    assert_eq!(whole_log(&log).await.len(), 3 * PLACES);
}

/// Reads the course's events, and subscribes unless it is full. Returns whether there was a place.
async fn subscribe(log: &Arc<dyn EventLog>, student: u64, course: &str, places: usize) -> bool {
    loop {
        let filter = Filter { types: vec!["subscribed".into()], tags: vec![course.into()], ..Filter::default() };
        let page = log.read(LogQuery { filter, ..LogQuery::default() }).await.expect("the page is read");
        if page.events.len() >= places {
            return false;
        }
        let new = NewCommit::new("student", student.to_string()).event(tagged("subscribed", &[course]));
        let condition = unless(&[pattern(&["subscribed"], &[course])], page.next.checked_sub(1));
        match log.commit(new.fail_if(condition)).await {
            Ok(_) => return true,
            Err(error) => assert_eq!(error.code(), Code::AppendConditionFailed),
        }
    }
}

/// Tenant and request id are checked before the append condition: a repeat succeeds although its condition would fail now.
pub async fn tenant_and_request_id_are_judged_first(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let request = order("a", 1).request_id("r").fail_if(unless(&[pattern(&["order_changed"], &[])], None));
    let first = commit(&log, request.clone()).await;
    let again = log.commit(request.clone()).await.expect("it is a repeat");
    assert_eq!(again, CommitOutcome { duplicate: true, ..first });
    let other_content = NewCommit { append_condition: request.append_condition.clone(), ..order("a", 2) };
    let error = refused(&log, other_content.clone().request_id("r")).await;
    assert_eq!(error, CommitError::RequestIdReused { request_id: "r".into() });
    let foreign = NewCommit { tenant_id: Some("t".into()), ..other_content };
    assert_eq!(refused(&log, foreign).await.code(), Code::AggregateOfOtherTenant);
    // A condition is not content: without it, or with another one, it is the same request.
    assert!(log.commit(order("a", 1).request_id("r")).await.expect("it is a repeat").duplicate);
}

/// The version is checked after the append condition.
pub async fn the_version_is_judged_last(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 1)).await;
    let wrong_version = order("a", 2).expect(ExpectedVersion::Empty);
    let excluded = wrong_version.clone().fail_if(unless(&[pattern(&[], &[])], None));
    assert_excluded(log.commit(excluded).await, 0, &[0]);
    let not_excluded = wrong_version.fail_if(unless(&[pattern(&[], &[])], Some(0)));
    assert_eq!(refused(&log, not_excluded).await.code(), Code::VersionConflict);
}

/// A commit that fails its append condition leaves nothing, and its request may be sent again.
pub async fn a_failed_append_condition_leaves_nothing(subject: &dyn Subject) {
    let (store, log) = open(subject).await;
    commit(&log, order("a", 1)).await;
    let request = |after| order("b", 1).request_id("r").fail_if(unless(&[pattern(&["order_changed"], &[])], after));
    assert_excluded(log.commit(request(None)).await, 0, &[0]);
    assert_eq!(version_of(&log, order_aggregate("b")).await, 0);
    assert_eq!(log.request_exists(&order_aggregate("b"), "r").await, Ok(false));
    let (_store, log) = reopen(subject, store, log).await;
    assert_eq!(log.head().await.expect("the head is read"), 1);
    assert_eq!(commit(&log, request(Some(0))).await.version, 1);
}

/// The condition finds an event exactly where a read finds it, however many segments lie between, and after reopening.
pub async fn conditions_reach_through_everything_stored(subject: &dyn Subject) {
    const EVENTS: u64 = 400;
    let (store, log) = open(subject).await;
    for n in 0..EVENTS {
        let rare = if n % 50 == 7 { vec!["rare"] } else { vec![] };
        let numbered =
            NewCommit::new("order", format!("a-{}", n % 9)).event(tagged("placed", &rare).tag(format!("n:{n}")));
        commit(&log, numbered).await;
    }
    let check = async |log: &Arc<dyn EventLog>| {
        for n in [0, 1, 7, 57, 200, 307, 357, EVENTS - 1] {
            let numbered = |after| order("b", 1).fail_if(unless(&[pattern(&["placed"], &[&format!("n:{n}")])], after));
            assert_excluded(log.commit(numbered(n.checked_sub(1))).await, 0, &[n]);
            let rare = order("b", 1).fail_if(unless(&[pattern(&[], &["rare"])], n.checked_sub(1)));
            let after: Vec<_> = (n..EVENTS).filter(|n| n % 50 == 7).collect();
            if !after.is_empty() {
                assert_excluded(log.commit(rare).await, 0, &after);
            }
            commit(log, numbered(Some(n))).await;
        }
    };
    check(&log).await;
    let (_store, log) = reopen(subject, store, log).await;
    check(&log).await;
}

/// For random commits and conditions, the answer equals that of filtering the log by hand.
pub async fn any_condition_fails_on_what_filtering_by_hand_finds(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    let random = &mut fastrand::Rng::with_seed(29);
    let (mut accepted, mut failed) = (0, 0);
    for _ in 0..400 {
        let mut made = NewCommit::new(pick(random, NAMES), pick(random, IDS));
        for n in 0..random.u64(1..4) {
            made.events.push(NewEvent { tags: some_of(random, TAGS, 5), ..event(pick(random, TYPES), n) });
        }
        let head = log.head().await.expect("the head is read");
        let patterns =
            [3, 2].map(|odds| EventPattern { types: some_of(random, TYPES, 3), tags: some_of(random, TAGS, odds) });
        let condition = unless(&patterns, random.u64(0..=head + 2).checked_sub(1));
        let stored = pages(&log, LogQuery { from: Some(condition.from()), limit: 1_000, ..LogQuery::default() }).await;
        let matching: Vec<_> =
            stored.iter().filter_map(|event| Some((condition.failed_by(event)?, event.sequence_number))).collect();
        match log.commit(made.fail_if(condition)).await {
            Ok(_) => {
                assert_eq!(matching, [], "a commit was accepted");
                accepted += 1;
            }
            Err(CommitError::AppendConditionFailed { pattern, sequence_number }) => {
                let named = stored.iter().find(|event| event.sequence_number == sequence_number);
                let named = named.expect("the event is one that counts");
                assert!(patterns[pattern].matches(&named.event_type, &named.tags), "{named:?} does not match");
                failed += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(accepted > 50 && failed > 50, "{accepted} were accepted, {failed} failed");
}

/// A condition that breaks a rule is refused with the path of the value, before everything else.
pub async fn a_condition_that_breaks_a_rule_is_refused_with_its_path(subject: &dyn Subject) {
    let (_store, log) = open(subject).await;
    commit(&log, order("a", 1).request_id("r")).await;
    for (patterns, path) in [
        (vec![], "append_condition.fail_if"),
        (vec![pattern(&["x"], &[]); 65], "append_condition.fail_if"),
        (vec![pattern(&[], &[]), pattern(&["a b"], &[])], "append_condition.fail_if[1].types"),
        (vec![pattern(&[], &["\n"])], "append_condition.fail_if[0].tags"),
        (vec![pattern(&[], &["t"; 65])], "append_condition.fail_if[0].tags"),
    ] {
        let bad = order("a", 1).request_id("r").fail_if(unless(&patterns, None));
        match refused(&log, bad).await {
            CommitError::Invalid(invalid) => {
                assert_eq!((invalid.code, &*invalid.path), (Code::InvalidAppendCondition, path));
            }
            other => panic!("{path} must be invalid, not {other}"),
        }
    }
    assert_eq!(log.head().await.expect("the head is read"), 1);
}
