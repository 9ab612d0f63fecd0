//! The service ends and starts again: nothing is lost, nothing is done twice.

use std::sync::Arc;

use annals::{Data, EventLog, LogQuery, NewCommit, NewEvent, limits};
use annals_example_execution::{AGGREGATE, COMPLETED, FAILED, REQUESTED, STARTED, TERMINAL, TIMEOUT};
use serde_json::{Value, json};

use crate::machine::{marker, until_running};
use crate::service::{Service, ended, history, log_of, memory, started};
use crate::several_processes::shared_memory;

fn request(id: &str, script: &str) -> NewCommit {
    let data = json!({
        "execution_id": id, "script": script, "language": "sh", "language_version": "any", "timeout_seconds": 10,
        "runtime_image": "local", "runtime_command": ["sh"], "runtime_filename": "main.sh",
        "cpu_limit": "1", "memory_limit": "128Mi", "cpu_request": "1", "memory_request": "128Mi"
    });
    first_event(id, &data)
}

fn first_event(id: &str, data: &Value) -> NewCommit {
    let data = Data::from_value(data).expect("an object");
    NewCommit::new(AGGREGATE, id).event(NewEvent::new(REQUESTED, data))
}

async fn commit(log: &Arc<dyn EventLog>, commit: NewCommit) {
    log.commit(commit).await.expect("is taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_running_when_the_service_crashed_is_interrupted_and_gone() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let marker = marker();
    let id = service.submit("sh", &format!("sleep {marker} & setsid sleep {marker} & sleep {marker}")).await;
    until_running(&marker, 3).await;
    service.crash().await;
    let service = Service::start(&store).await;
    let end = ended(&service.log, &id).await;
    assert_eq!((end.event_type.as_str(), end.text("reason")), (FAILED, "interrupted"));
    assert_eq!(end.text("error_type"), "system_error");
    until_running(&marker, 0).await;
    assert_eq!(history(&service.log, &id).await, [REQUESTED, STARTED, FAILED]);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_requested_while_no_service_ran_is_run_by_the_next() {
    let store = memory().await;
    let log = log_of(&store);
    for n in 0..5 {
        commit(&log, request(&format!("waiting-{n}"), &format!("echo {n}"))).await;
    }
    let service = Service::start(&store).await;
    for n in 0..5 {
        let end = ended(&log, &format!("waiting-{n}")).await;
        assert_eq!((end.event_type.as_str(), end.text("stdout")), (COMPLETED, format!("{n}\n").as_str()));
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graceful_stop_interrupts_what_runs_and_leaves_what_waits_to_the_next_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("embedded:{}", folder.path().join("store").display());
    let store = annals::open(&url).await.expect("opens");
    let service = Service::start_with(&store, |settings| settings.at_once = 1).await;
    let marker = marker();
    let running = service.submit("sh", &format!("sleep {marker}")).await;
    let waiting = service.submit("sh", "echo patience").await;
    until_running(&marker, 1).await;
    service.stop().await;
    until_running(&marker, 0).await;
    drop(store);
    let store = annals::open(&url).await.expect("was closed, so it opens again");
    let log = log_of(&store);
    assert_eq!(history(&log, &running).await, [REQUESTED, STARTED, FAILED], "before the service was started again");
    assert_eq!(ended(&log, &running).await.text("reason"), "interrupted");
    assert_eq!(history(&log, &waiting).await, [REQUESTED]);
    let service = Service::start(&store).await;
    assert_eq!(ended(&log, &waiting).await.text("stdout"), "patience\n");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_are_submitted_once_however_often_the_service_starts() {
    let store = memory().await;
    let log = log_of(&store);
    let query = LogQuery { limit: limits::PAGE_MAX, ..LogQuery::default() };
    let count = async |event_type: &str| {
        let page = log.read(query.clone()).await.expect("can be read");
        page.events.iter().filter(|event| *event.event_type == *event_type).count()
    };
    for _ in 0..2 {
        let service = Service::start_with(&store, |settings| settings.submit_samples = true).await;
        // A program of our own comes after the samples, so they have been submitted when it ends.
        assert_eq!(service.result_of("sh", "echo after the samples").await.event_type, COMPLETED);
        assert_eq!(count(REQUESTED).await - count_of_ours(&log).await, 7);
        service.crash().await;
    }
}

async fn count_of_ours(log: &Arc<dyn EventLog>) -> usize {
    let page = log.read(LogQuery { limit: limits::PAGE_MAX, ..LogQuery::default() }).await.expect("can be read");
    let ours = |data: &Data| data.decode::<Value>().is_ok_and(|data| data["script"] == "echo after the samples");
    page.events.iter().filter(|event| *event.event_type == *REQUESTED && ours(&event.data)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_services_on_one_log_run_each_program_once() {
    let store = shared_memory().await;
    let log = log_of(&store);
    let (one, other) = (Service::start(&store).await, Service::start(&store).await);
    let mut ids = Vec::new();
    for n in 0..12 {
        let service = if n % 2 == 0 { &one } else { &other };
        ids.push(service.submit("sh", "echo once").await);
    }
    for id in &ids {
        assert_eq!(ended(&log, id).await.event_type, COMPLETED);
        assert_eq!(history(&log, id).await, [REQUESTED, STARTED, COMPLETED]);
    }
    one.crash().await;
    other.crash().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_starts_leaves_the_programs_of_a_living_one_alone() {
    let store = shared_memory().await;
    let log = log_of(&store);
    let service = Service::start(&store).await;
    let marker = marker();
    let script = format!("until [ -e /tmp/{marker} ]; do sleep 0.01; done; rm /tmp/{marker}");
    let id = service.submit_with(json!({ "language": "sh", "script": script, "timeout_seconds": 60 })).await;
    started(&log, &id).await;
    let other = Service::start(&store).await;
    std::fs::write(format!("/tmp/{marker}"), "").expect("can be written");
    assert_eq!(ended(&log, &id).await.event_type, COMPLETED);
    assert_eq!(history(&log, &id).await, [REQUESTED, STARTED, COMPLETED]);
    service.crash().await;
    other.crash().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_programs_of_a_service_that_died_are_ended_by_another_once_its_lease_is_over() {
    let store = shared_memory().await;
    let log = log_of(&store);
    let short = |settings: &mut annals_example_execution::Settings| settings.lease = std::time::Duration::from_secs(2);
    let service = Service::start_with(&store, short).await;
    let marker = marker();
    let body = json!({ "language": "sh", "script": format!("exec sleep {marker}"), "timeout_seconds": 60 });
    let id = service.submit_with(body).await;
    started(&log, &id).await;
    service.crash().await;
    let other = Service::start_with(&store, short).await;
    let end = ended(&log, &id).await;
    assert_eq!((end.event_type.as_str(), end.text("reason")), (FAILED, "interrupted"));
    until_running(&marker, 0).await;
    assert_eq!(other.result_of("sh", "echo goes on").await.event_type, COMPLETED);
    other.crash().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_makes_no_sense_fails_with_a_sentence_and_holds_nobody_up() {
    let store = memory().await;
    let log = log_of(&store);
    let good = json!({ "script": "echo", "language": "sh", "timeout_seconds": 10, "memory_limit": "128Mi" });
    let changed = |field: &str, value: Value| {
        let mut data = good.clone();
        data["execution_id"] = "x".into();
        data[field] = value;
        data
    };
    let cases = [
        (json!({}), "cannot be read"),
        (changed("language", "cobol".into()), "cobol"),
        (changed("timeout_seconds", 301.into()), "301"),
        (changed("memory_limit", "lots".into()), "128Mi"),
        (changed("script", " ".into()), "empty"),
    ];
    for (n, (data, _)) in cases.iter().enumerate() {
        commit(&log, first_event(&format!("odd-{n}"), data)).await;
    }
    commit(&log, request("good", "echo fine")).await;
    let service = Service::start(&store).await;
    assert_eq!(ended(&log, "good").await.text("stdout"), "fine\n");
    for (n, (_, says)) in cases.iter().enumerate() {
        let end = ended(&log, &format!("odd-{n}")).await;
        assert_eq!((end.event_type.as_str(), end.text("error_type")), (FAILED, "system_error"));
        assert!(end.text("reason").contains(says), "{end:?}");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_others_in_an_execution_neither_stop_it_nor_make_it_run_again() {
    let store = memory().await;
    let log = log_of(&store);
    let note = |id: &str| NewCommit::new(AGGREGATE, id).event(NewEvent::new("note_added", Data::empty()));
    // A note before the request, one behind it, and the request a second time.
    commit(&log, note("noted")).await;
    commit(&log, request("noted", "echo once")).await;
    commit(&log, note("noted")).await;
    commit(&log, request("noted", "echo once")).await;
    // An execution that somebody has already ended by hand.
    let mut done = request("done", "echo never");
    done.events.push(NewEvent::new(TIMEOUT, Data::empty()));
    commit(&log, done).await;
    let service = Service::start(&store).await;
    commit(&log, request("noted", "echo once more")).await;
    assert_eq!(service.result_of("sh", "echo behind it").await.event_type, COMPLETED);
    // Executions run side by side, so the one before may end later.
    ended(&log, "noted").await;
    let count = async |id: &str| {
        let history = history(&log, id).await;
        let started = history.iter().filter(|event_type| *event_type == STARTED).count();
        (started, history.iter().filter(|event_type| TERMINAL.contains(&event_type.as_str())).count())
    };
    assert_eq!(count("noted").await, (1, 1));
    assert_eq!(count("done").await, (0, 1));
    service.stop().await;
}
