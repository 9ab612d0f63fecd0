//! Prepare keys.

use annals_core::{KeyValue, Release, Reserve};

use super::*;

fn value(text: &str) -> KeyValue {
    KeyValue::new(text).expect("a value")
}

fn take(id: &str, key: &str) -> NewCommit {
    order(id, 1).reserve(Reserve::new("user", key, value(id)))
}

fn give_back(id: &str, key: &str) -> NewCommit {
    order(id, 2).release(Release::new("user", key).of_value(value(id)))
}

fn until(id: &str, key: &str, millis: i64) -> NewCommit {
    order(id, 3).reserve(Reserve::new("user", key, value(id)).until(Timestamp::from_millis(millis)))
}

fn taken(key: &str) -> Answer {
    Err(CommitError::KeyTaken { name: "user".into(), key: key.into() })
}

fn not_held(key: &str) -> Answer {
    Err(CommitError::KeyNotHeld { name: "user".into(), key: key.into() })
}

/// Stores the events of a commit without its keys, and tells its sender that all went well.
fn stored_against_the_rules(scene: &mut Scene, commit: &NewCommit) {
    let call = scene.send(commit);
    let outcome = scene.store(&NewCommit { keys: Default::default(), ..commit.clone() });
    scene.answer(call, Ok(outcome));
}

#[test]
fn a_plain_history_with_keys_is_good() {
    let mut scene = Scene::default();
    let outcome = scene.stored(&take("a", "eva").request_id("r"));
    scene.told(&take("b", "eva"), taken("eva"));
    scene.told(&give_back("b", "eva"), not_held("eva"));
    scene.told(&take("a", "eva").request_id("r"), Ok(CommitOutcome { duplicate: true, ..outcome }));
    let reused = CommitError::RequestIdReused { request_id: "r".into() };
    scene.told(&take("a", "eve").request_id("r"), Err(reused));
    scene.stored(&give_back("a", "eva"));
    scene.stored(&take("b", "eva"));
    scene.stored(&until("c", "eve", 999));
    scene.stored(&take("d", "eve"));
    scene.is_good();
}

#[test]
fn a_key_that_two_commits_hold_is_noticed() {
    let mut scene = Scene::default();
    scene.stored(&take("a", "eva"));
    stored_against_the_rules(&mut scene, &take("b", "eva"));
    scene.is_bad("although it was held by Reserve");
}

#[test]
fn a_reservation_that_is_taken_over_before_it_expires_is_noticed() {
    let mut scene = Scene::default();
    scene.stored(&until("a", "eva", 1_000));
    stored_against_the_rules(&mut scene, &take("b", "eva"));
    scene.is_bad("although it was held by Reserve");
}

#[test]
fn a_key_that_is_given_back_by_who_does_not_hold_it_is_noticed() {
    let mut scene = Scene::default();
    stored_against_the_rules(&mut scene, &give_back("a", "eva"));
    scene.is_bad("although it was held by nobody");
    let mut scene = Scene::default();
    scene.stored(&take("a", "eva"));
    stored_against_the_rules(&mut scene, &give_back("b", "eva"));
    scene.is_bad("although it was held by Reserve");
}

#[test]
fn a_key_refused_without_a_holder_is_noticed() {
    let scene = Scene::default();
    scene.told(&take("a", "eva"), taken("eva"));
    scene.is_bad("never said so");
    let mut scene = Scene::default();
    scene.stored(&take("a", "eva"));
    scene.stored(&give_back("a", "eva"));
    scene.head(2);
    scene.told(&take("b", "eva"), taken("eva"));
    scene.is_bad("never said so");
    let mut scene = Scene::default();
    scene.stored(&take("a", "eva"));
    scene.told(&take("b", "eva"), taken("eve"));
    scene.is_bad("never said so");
}

#[test]
fn a_key_refused_because_of_a_holder_to_come_is_noticed() {
    let mut scene = Scene::default();
    scene.told(&take("b", "eva"), taken("eva"));
    scene.stored(&take("a", "eva"));
    scene.is_bad("never said so");
    // While both were under way, either can have come first.
    let mut scene = Scene::default();
    let (first, second) = (scene.send(&take("b", "eva")), scene.send(&take("a", "eva")));
    scene.answer(first, taken("eva"));
    let outcome = scene.store(&take("a", "eva"));
    scene.answer(second, Ok(outcome));
    scene.is_good();
}

#[test]
fn a_key_given_back_that_is_held_and_refused_is_noticed() {
    let mut scene = Scene::default();
    scene.stored(&take("a", "eva"));
    scene.told(&give_back("a", "eva"), not_held("eva"));
    scene.is_bad("never said so");
}

#[test]
fn a_version_judged_before_a_key_is_noticed() {
    let mut scene = Scene::default();
    scene.stored(&take("a", "eva"));
    scene.told(&take("a", "eva").expect(ExpectedVersion::Empty), conflict(1));
    scene.is_bad("refused because of a key");
    let mut scene = Scene::default();
    scene.stored(&take("a", "eva"));
    scene.told(&take("a", "eve").expect(ExpectedVersion::Empty), conflict(1));
    scene.is_good();
}

#[test]
fn other_keys_taken_for_a_repeat_are_noticed() {
    let mut scene = Scene::default();
    let outcome = scene.stored(&take("a", "eva").request_id("r"));
    scene.told(&take("a", "eve").request_id("r"), Ok(CommitOutcome { duplicate: true, ..outcome }));
    scene.is_bad("the first had other content");
    let mut scene = Scene::default();
    scene.stored(&take("a", "eva").request_id("r"));
    let reused = CommitError::RequestIdReused { request_id: "r".into() };
    scene.told(&take("a", "eva").request_id("r"), Err(reused));
    scene.is_bad("it has the same content and is a repeat");
}

#[test]
fn keys_of_a_commit_whose_outcome_is_unknown_may_be_held_or_not() {
    let mut scene = Scene::default();
    scene.told(&take("a", "eva"), failed());
    scene.history.restarted();
    scene.is_good();
    scene.store(&take("a", "eva"));
    scene.told(&take("b", "eva"), taken("eva"));
    scene.is_good();
    // Which of both is stored cannot be told, so nobody knows who holds what.
    let mut scene = Scene::default();
    scene.told(&take("a", "eva"), failed());
    scene.told(&take("a", "eve"), failed());
    scene.history.restarted();
    scene.store(&take("a", "eva"));
    scene.told(&take("b", "eve"), taken("eve"));
    scene.told(&take("b", "eva"), taken("eva"));
    scene.is_good();
}
