//! Consumers on a broker of its own, which here is a list of messages: how their dead letters are named.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals_conformance::ManualClock;
use annals_core::dead_letters::{DEAD_LETTERS, DeadLetters, LetterQuery, LetterStatus, LetterView};
use annals_core::groups::{Guard, GuardRecord};
use annals_core::processing::{ProcessingRetry, Then};
use annals_core::{
    Assigned, Broker, BrokerError, ByteString, Clock, Condition, Content, DEFAULT_SCOPE, DEFAULT_TENANT, Data,
    GroupMember, GroupOffset, GroupStep, GroupSubscription, Message, MessagePage, NewCommit, NewEvent, PartitionOffset,
    Publisher, PublisherIdentity, ReadMessages, RecordedEvent, Store, Timestamp, TopicDefinition, TopicGroup,
    TopicPartition, TopicSettings, TopicState, TypedRecords, Uuid,
};
use annals_embedded::{EmbeddedStore, Options, disk::MemoryDisk};
use annals_runtime::{HandleFailure, Host, HostOptions, consumer};
use async_trait::async_trait;
use tokio::sync::{Notify, watch};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A broker with these messages, all of which a member gets whenever it joins, as if no offset had ever been committed.
struct Listed {
    messages: Vec<Message>,
    /// What is on the topics when they are read outside a group.
    kept: Kept,
    /// How many memberships get them; those that follow get nothing.
    given_to: usize,
    turns: Turns,
    /// Ends the first membership.
    expelled: Arc<Notify>,
}

type Kept = Arc<Mutex<Vec<Message>>>;

/// How often each membership has waited for its next step, in the order in which they began. A member looks for letters before it does.
type Turns = Arc<Mutex<Vec<usize>>>;

struct Member {
    steps: Vec<GroupStep>,
    number: usize,
    turns: Turns,
    /// What ends the membership; nothing ends the last one.
    expelled: Option<Arc<Notify>>,
}

#[async_trait]
impl Broker for Listed {
    async fn create_topic(&self, _: &TopicDefinition) -> Result<bool, BrokerError> {
        Ok(false)
    }

    async fn topics(&self, _: Option<&[ByteString]>) -> Result<Vec<TopicState>, BrokerError> {
        Ok(Vec::new())
    }

    async fn alter_topic(&self, _: &TopicDefinition) -> Result<(), BrokerError> {
        Ok(())
    }

    async fn publisher(&self, _: &PublisherIdentity) -> Result<Option<Box<dyn Publisher>>, BrokerError> {
        Ok(None)
    }

    async fn join(&self, _: GroupSubscription) -> Result<Box<dyn GroupMember>, BrokerError> {
        let number = {
            let mut turns = self.turns.lock().expect("no panic");
            turns.push(0);
            turns.len() - 1
        };
        let messages = if number < self.given_to { self.messages.clone() } else { Vec::new() };
        let partitions: BTreeSet<_> = messages.iter().map(|message| message.at.clone()).collect();
        let assigned = partitions.into_iter().map(|at| Assigned { at, offset: 0 }).collect();
        // Taken from the end.
        let steps = vec![GroupStep::Messages(messages), GroupStep::Assigned(assigned)];
        let expelled = (number == 0).then(|| Arc::clone(&self.expelled));
        Ok(Box::new(Member { steps, number, turns: Arc::clone(&self.turns), expelled }))
    }

    async fn group_offsets(&self, _: &str) -> Result<Vec<GroupOffset>, BrokerError> {
        Ok(Vec::new())
    }

    async fn joined_groups(&self, _: &str) -> Result<Vec<TopicGroup>, BrokerError> {
        Ok(Vec::new())
    }

    async fn delete_group(&self, _: &str) -> Result<(), BrokerError> {
        Ok(())
    }

    async fn read(&self, query: ReadMessages) -> Result<MessagePage, BrokerError> {
        let is_asked = |message: &&Message| message.at == query.at && message.offset >= query.from;
        let kept = self.kept.lock().expect("no panic");
        let messages: Vec<_> = kept.iter().filter(is_asked).take(query.limit).cloned().collect();
        let next = messages.last().map_or(query.from, |message| message.offset + 1);
        Ok(MessagePage { messages, next, head: next })
    }
}

#[async_trait]
impl GroupMember for Member {
    async fn next(&mut self, _: usize) -> Result<GroupStep, BrokerError> {
        self.turns.lock().expect("no panic")[self.number] += 1;
        if let Some(step) = self.steps.pop() {
            return Ok(step);
        }
        match &self.expelled {
            Some(expelled) => expelled.notified().await,
            None => std::future::pending().await,
        }
        Err(BrokerError::Refused("the member was expelled".to_owned()))
    }

    async fn commit(&mut self, _: &[PartitionOffset]) -> Result<(), BrokerError> {
        Ok(())
    }

    async fn release(&mut self, _: &[TopicPartition]) -> Result<(), BrokerError> {
        Ok(())
    }

    async fn leave(self: Box<Self>) -> Result<(), BrokerError> {
        Ok(())
    }
}

/// A message whose producer gave it the number 41.
fn message(event_type: &'static str, place: (u32, u64), id: u128) -> Message {
    numbered(event_type, place, id, "41")
}

fn numbered(event_type: &'static str, (partition, offset): (u32, u64), id: u128, number: &str) -> Message {
    let id = Uuid::from_u128(id).to_string();
    let headers = [("event_id", &*id), ("event_type", event_type), ("sequence_number", number)];
    let headers = headers.into_iter().chain([("time", "2026-03-01T12:00:00Z")]);
    let headers = headers.map(|(name, value)| (name.into(), value.as_bytes().to_vec().into())).collect();
    Message {
        at: TopicPartition { topic: event_type.into(), partition },
        offset,
        key: Some(id.into_bytes().into()),
        time: Timestamp::from_millis(1_772_366_400_000),
        content: Content::Encoded { headers, body: b"{}".to_vec().into() },
    }
}

/// Looks until something is there.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looked = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::task::yield_now().await;
        }
    });
    looked.await.unwrap_or_else(|_| panic!("{what} did not happen in time"))
}

async fn listed(letters: &dyn DeadLetters) -> Vec<LetterView> {
    letters.list(LetterQuery::default()).await.expect("listed").items
}

/// Also when all of them are delivered again, because their offsets were not committed. A retry delivers the letter's own event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_two_producers_with_equal_numbers_have_a_dead_letter_each() {
    let store = EmbeddedStore::open(Arc::new(MemoryDisk::default()), Options::default()).expect("opens in memory");
    let store: Arc<dyn Store> = Arc::new(store);
    let host = Host::start(Arc::clone(&store), HostOptions::default());
    let expelled = Arc::new(Notify::new());
    let messages = vec![message("placed", (0, 3), 1), message("placed", (1, 3), 2), message("paid", (0, 3), 3)];
    let kept = Kept::new(Mutex::new(messages.clone()));
    let (given_to, turns) = (usize::MAX, Turns::default());
    let broker = Listed { messages, kept, given_to, turns, expelled: Arc::clone(&expelled) };
    host.use_broker(DEFAULT_TENANT, Arc::new(broker), TopicSettings::default());
    let (is_up, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(BTreeSet::new())));
    let (up, noted) = (Arc::clone(&is_up), Arc::clone(&seen));
    let process = move |event: RecordedEvent, _: serde_json::Value| {
        let succeeds = up.load(Ordering::SeqCst);
        if succeeds {
            noted.lock().expect("no panic").insert(event.id.as_u128());
        }
        async move { if succeeds { Ok(()) } else { Err(HandleFailure::new("the database is down")) } }
    };
    // The first retry of a letter comes after the test.
    let retry = ProcessingRetry { attempts: Some(1), then: Then::Park, ..ProcessingRetry::default() };
    let consumer = consumer("billing", ["placed", "paid"]).retry(retry);
    consumer.on("placed", process.clone()).on("paid", process).run(&host, DEFAULT_TENANT).await.expect("it runs");

    let passed = async |count: u64| {
        until("passing all", async || host.consumers().iter().any(|it| it.dead_letters == count).then_some(())).await;
    };
    passed(3).await;
    let letters = host.dead_letters(DEFAULT_TENANT).expect("declared");
    let ids = async || listed(&*letters).await.iter().map(|letter| letter.id.to_string()).collect::<BTreeSet<_>>();
    let first = ids().await;
    let expected = ["paid.0.3.00000003", "placed.0.3.00000001", "placed.1.3.00000002"];
    assert!(first.iter().eq(&expected.map(|place| format!("group.billing@{place}"))), "{first:?}");
    let records = store.records(DEFAULT_TENANT).expect("declared");
    let alone = records.count(DEAD_LETTERS, &Condition::is_true("alone")).await.expect("counted");
    assert_eq!(alone, 0, "another member may have added one to the key at the same time");
    expelled.notify_one();
    passed(6).await;
    assert_eq!(ids().await, first, "the same letters");

    is_up.store(true, Ordering::SeqCst);
    for id in &first {
        letters.retry(id, "the database is up".into()).await.expect("retried");
    }
    until("processing the letters", async || {
        listed(&*letters).await.iter().all(|letter| letter.status == LetterStatus::Retried).then_some(())
    })
    .await;
    assert_eq!(*seen.lock().expect("no panic"), BTreeSet::from([1, 2, 3]));
    host.drain().await;
}

/// A store whose records expire by the clock of its hosts. By the machine's clock, all that they reserve is of the past.
fn store_and_clock() -> (Arc<dyn Store>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_772_366_400_000)));
    let options = Options { clock: clock.clone(), ..Options::default() };
    let store = EmbeddedStore::open(Arc::new(MemoryDisk::default()), options).expect("opens in memory");
    (Arc::new(store), clock)
}

/// However long the attempt takes. One of the members looks after the letters, though the lease is that of their process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_members_in_one_process_attempt_a_due_letter_once() {
    let (store, clock) = store_and_clock();
    let host = Host::start(Arc::clone(&store), HostOptions { clock: clock.clone(), ..HostOptions::default() });
    let turns = Turns::default();
    let messages = vec![message("placed", (0, 3), 1)];
    let kept = Kept::new(Mutex::new(messages.clone()));
    let broker = Listed { messages, kept, given_to: 1, turns: Arc::clone(&turns), expelled: Arc::default() };
    host.use_broker(DEFAULT_TENANT, Arc::new(broker), TopicSettings::default());
    let (is_up, attempts) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (up, begun, held) = (Arc::clone(&is_up), Arc::clone(&attempts), watch::Sender::new(true));
    let holding = held.clone();
    let process = move |_: RecordedEvent, _: serde_json::Value| {
        let (is_up, mut held) = (up.load(Ordering::SeqCst), holding.subscribe());
        if is_up {
            begun.fetch_add(1, Ordering::SeqCst);
        }
        async move {
            if !is_up {
                return Err(HandleFailure::new("the database is down"));
            }
            let _ = held.wait_for(|held| !held).await;
            Ok(())
        }
    };
    for _ in 0..2 {
        let retry = ProcessingRetry { attempts: Some(1), then: Then::Park, ..ProcessingRetry::default() };
        let consumer = consumer("billing", ["placed"]).retry(retry).on("placed", process.clone());
        consumer.run(&host, DEFAULT_TENANT).await.expect("it runs");
    }
    let letters = host.dead_letters(DEFAULT_TENANT).expect("declared");
    let letter = until("passing the message", async || listed(&*letters).await.pop()).await;
    let waited = || turns.lock().expect("no panic").clone();
    until("joining", async || (waited().len() == 2).then_some(())).await;

    is_up.store(true, Ordering::SeqCst);
    letters.retry(&letter.id, "the database is up".into()).await.expect("retried");
    until("an attempt", async || {
        clock.advance_millis(100);
        (attempts.load(Ordering::SeqCst) > 0).then_some(())
    })
    .await;
    let before = waited();
    until("looking for letters again", async || {
        clock.advance_millis(100);
        waited().iter().zip(&before).all(|(now, before)| *now >= before + 5).then_some(())
    })
    .await;
    held.send_replace(false);
    until("processing the letter", async || {
        listed(&*letters).await.iter().all(|letter| letter.status == LetterStatus::Retried).then_some(())
    })
    .await;
    assert_eq!(attempts.load(Ordering::SeqCst), 1);
    host.drain().await;
}

/// Its topic was deleted and created again. The letter's own event is in the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_whose_place_another_message_has_taken_is_retried_with_its_own_event() {
    let store = EmbeddedStore::open(Arc::new(MemoryDisk::default()), Options::default()).expect("opens in memory");
    let store: Arc<dyn Store> = Arc::new(store);
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("declared");
    let event = NewEvent { id: Some(Uuid::from_u128(7)), ..NewEvent::new("placed", Data::empty()) };
    log.commit(NewCommit::new("order", "o-1").event(event)).await.expect("committed");
    let host = Host::start(Arc::clone(&store), HostOptions::default());
    let messages = vec![numbered("placed", (0, 3), 7, "0")];
    let kept = Kept::new(Mutex::new(vec![message("placed", (0, 3), 8)]));
    let broker = Listed { messages, kept, given_to: 1, turns: Turns::default(), expelled: Arc::default() };
    host.use_broker(DEFAULT_TENANT, Arc::new(broker), TopicSettings::default());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let process = move |event: RecordedEvent, _: serde_json::Value| {
        let mut seen = noted.lock().expect("no panic");
        seen.push(event.id.as_u128());
        let is_first = seen.len() == 1;
        async move { if is_first { Err(HandleFailure::new("the database is down")) } else { Ok(()) } }
    };
    let retry = ProcessingRetry { attempts: Some(1), then: Then::Park, ..ProcessingRetry::default() };
    let consumer = consumer("billing", ["placed"]).retry(retry).on("placed", process);
    consumer.run(&host, DEFAULT_TENANT).await.expect("it runs");
    let letters = host.dead_letters(DEFAULT_TENANT).expect("declared");
    let letter = until("passing the message", async || listed(&*letters).await.pop()).await;
    letters.retry(&letter.id, "the database is up".into()).await.expect("retried");
    until("processing the letter", async || {
        listed(&*letters).await.iter().all(|letter| letter.status == LetterStatus::Retried).then_some(())
    })
    .await;
    assert_eq!(*seen.lock().expect("no panic"), [7, 7]);
    host.drain().await;
}

/// Also when both get it at once. A reservation is free when it was not renewed for half a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_guarded_members_one_attempts_a_message_and_the_other_does_when_that_one_is_gone() {
    let (store, clock) = store_and_clock();
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let member = async |name: &'static str, is_stuck: bool| {
        let host = Host::start(Arc::clone(&store), HostOptions { clock: clock.clone(), ..HostOptions::default() });
        let messages = vec![message("placed", (0, 3), 1)];
        let (kept, turns) = (Kept::new(Mutex::new(messages.clone())), Turns::default());
        let broker = Listed { messages, kept, given_to: 1, turns, expelled: Arc::default() };
        host.use_broker(DEFAULT_TENANT, Arc::new(broker), TopicSettings::default());
        let noted = Arc::clone(&attempts);
        let process = move |_: RecordedEvent, _: serde_json::Value| {
            noted.lock().expect("no panic").push(name);
            async move { if is_stuck { std::future::pending().await } else { Ok(()) } }
        };
        let consumer = consumer("billing", ["placed"]).guard(Guard::EventId).on("placed", process);
        consumer.run(&host, DEFAULT_TENANT).await.expect("it runs");
        host
    };
    let stuck = member("stuck", true).await;
    until("an attempt", async || (attempts.lock().expect("no panic").len() == 1).then_some(())).await;
    let other = member("other", false).await;
    until("it is given the message", async || (other.consumers()[0].partitions == 1).then_some(())).await;
    // It is renewed every ten seconds, so it outlives its half minute.
    let guarded = TypedRecords::<GuardRecord>::declared(store.records(DEFAULT_TENANT).expect("declared"));
    for _ in 0..5 {
        clock.advance_millis(10_000);
        let renewed = clock.now().as_millis() + 25_000;
        until("it is renewed", async || {
            let (found, _) = guarded.find(TypedRecords::<GuardRecord>::query()).await.ok()?;
            (found.first()?.value.expires_at.timestamp_millis() > renewed).then_some(())
        })
        .await;
    }
    assert_eq!(*attempts.lock().expect("no panic"), ["stuck"]);
    drop(stuck);
    until("the other one attempts it", async || {
        clock.advance_millis(100);
        (attempts.lock().expect("no panic").len() == 2).then_some(())
    })
    .await;
    until("it is processed", async || (other.consumers()[0].processed == 1).then_some(())).await;
    assert_eq!(*attempts.lock().expect("no panic"), ["stuck", "other"]);
    // Whoever gets it now passes it.
    let late = member("late", false).await;
    until("it is passed", async || (late.consumers()[0].processed == 1).then_some(())).await;
    assert_eq!(attempts.lock().expect("no panic").len(), 2);
    assert_eq!(late.group_metrics().iter().map(|it| it.duplicates).sum::<u64>(), 1);
    other.drain().await;
    late.drain().await;
}
