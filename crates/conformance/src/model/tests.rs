use std::sync::Arc;

use annals_core::{Clock, CommitError, EventLog};

use super::{Answer, Model, Operation, Operations, Shape};
use crate::Subject;
use crate::history::History;
use crate::reference::ReferenceSubject;
use crate::sample::open;

async fn compare(seed: u64, mut spoil: impl FnMut(u64, &mut Answer)) -> Result<(Model, Arc<dyn EventLog>), String> {
    let subject = ReferenceSubject::new();
    let (_store, log) = open(&subject).await;
    let mut model = Model::default();
    let mut operations = Operations::new(seed, Shape::default());
    for n in 0..400 {
        let operation = operations.next_operation();
        let mut answer = operation.run(&log).await;
        operations.learn(&operation, &answer);
        spoil(n, &mut answer);
        model.check(&operation, &answer, subject.clock().now())?;
        subject.clock().advance_millis(i64::from(n % 3 == 0));
    }
    Ok((model, log))
}

#[tokio::test]
async fn a_correct_log_agrees_with_the_model() {
    for seed in 0..20 {
        let (model, log) = compare(seed, |_, _| {}).await.expect("they agree");
        let events = crate::history::read_all(&log).await.expect("the log is read");
        model.check_log(&events).expect("they agree");
        assert!(events.len() > 100, "the operations do something");
        assert!(model.check_log(&events[1..]).is_err());
    }
}

#[tokio::test]
async fn a_wrong_answer_of_any_kind_is_found() {
    let spoils: [fn(&mut Answer) -> bool; 11] = [
        |answer| {
            if let Answer::Commit(Ok(outcome)) = answer {
                outcome.version += 1;
                true
            } else {
                false
            }
        },
        |answer| {
            if let Answer::Commit(Ok(outcome)) = answer {
                outcome.duplicate ^= true;
                true
            } else {
                false
            }
        },
        |answer| if let Answer::Transact(Ok(outcomes)) = answer { outcomes.pop().is_some() } else { false },
        |answer| {
            if let Answer::Transact(Err(refusal)) = answer {
                refusal.at.push('1');
                true
            } else {
                false
            }
        },
        |answer| {
            if let Answer::Commit(Err(CommitError::AppendConditionFailed { sequence_number, .. })) = answer {
                *sequence_number += 10_000;
                true
            } else {
                false
            }
        },
        |answer| if let Answer::Commits(Ok(read)) = answer { read.commits.drain(..).count() > 0 } else { false },
        |answer| {
            if let Answer::Exists(Ok(exists)) = answer {
                *exists ^= true;
                true
            } else {
                false
            }
        },
        |answer| if let Answer::Ids(Ok(ids)) = answer { ids.pop().is_some() } else { false },
        |answer| match answer {
            Answer::Page(Ok(page)) if page.events.len() > 1 => {
                page.events.swap(0, 1);
                true
            }
            _ => false,
        },
        |answer| {
            if let Answer::Page(Ok(page)) = answer {
                page.next = u64::MAX;
                true
            } else {
                false
            }
        },
        |answer| {
            if let Answer::Head(Ok(head)) = answer {
                *head += 1;
                true
            } else {
                false
            }
        },
    ];
    for (index, spoil) in spoils.into_iter().enumerate() {
        let mut spoilt = false;
        let result = compare(7, |n, answer| spoilt = spoilt || (n > 100 && spoil(answer))).await;
        assert!(result.is_err(), "change {index} was not noticed");
    }
}

#[tokio::test]
async fn the_same_seed_makes_the_same_operations() {
    let (first, _log) = compare(3, |_, _| {}).await.expect("they agree");
    let (second, _log) = compare(3, |_, _| {}).await.expect("they agree");
    let types = |model: &Model| model.events().iter().map(|event| event.event_type.clone()).collect::<Vec<_>>();
    assert_eq!(types(&first), types(&second));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_clients_of_a_correct_log_have_a_good_history() {
    let subject = ReferenceSubject::new();
    let (_store, log) = open(&subject).await;
    let history = History::new();
    let clients: Vec<_> = (0..4)
        .map(|seed| {
            let log = history.watch(&format!("client {seed}"), log.clone());
            tokio::spawn(async move {
                let mut operations = Operations::new(seed, Shape::default());
                for _ in 0..300 {
                    let operation: Operation = operations.next_operation();
                    let answer = operation.run(&log).await;
                    operations.learn(&operation, &answer);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for client in clients {
        client.await.expect("the client ends well");
    }
    let checked = history.check(&log).await.unwrap_or_else(|broken| panic!("{broken}"));
    assert!(
        checked.duplicates > 20 && checked.refusals > 50 && checked.reads > 300 && checked.transactions > 10,
        "{checked:?}"
    );
}
