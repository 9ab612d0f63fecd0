//! Groups: every message once for each group, offsets only for what is done, and partitions that move without loss.

use std::collections::BTreeSet;
use std::sync::Arc;

use annals_core::{
    Broker, BrokerError, GroupMember, GroupStart, GroupStep, GroupSubscription, PartitionOffset, TopicPartition,
};
use annals_kafka::KafkaBroker;

use crate::support::{LIMIT, address, broker_at, commit, log_of, memory, number, relaying, settings, until_published};

const MESSAGES: u64 = 300;

struct Setting {
    broker: Arc<KafkaBroker>,
    topic: annals_core::ByteString,
    group: String,
}

/// A topic of three partitions with messages of 30 keys.
async fn setting() -> Setting {
    let (settings, store) = (settings(), memory());
    let broker = broker_at(&address(), &settings);
    let host = relaying(&store, &broker, &settings);
    let log = log_of(&*store);
    for n in 0..MESSAGES {
        commit(&*log, &format!("o-{}", n % 30), "order_placed", n, 0).await;
    }
    until_published(&host, MESSAGES).await;
    host.drain().await;
    Setting { broker, topic: settings.topic_of("order_placed"), group: format!("{}billing", settings.prefix) }
}

impl Setting {
    async fn join(&self, member: &str) -> Box<dyn GroupMember> {
        let subscription = GroupSubscription {
            group: self.group.as_str().into(),
            topics: vec![self.topic.clone()],
            start: GroupStart::Earliest,
            member: member.to_owned(),
        };
        self.broker.join(subscription).await.expect("joined")
    }
}

/// What a member has been given and not been deprived of.
#[derive(Default)]
struct Seen {
    numbers: Vec<u64>,
    assigned: BTreeSet<TopicPartition>,
}

/// Takes one step, committing what it delivers.
async fn step(member: &mut dyn GroupMember, seen: &mut Seen) {
    match tokio::time::timeout(LIMIT, member.next(50)).await.expect("a step in time").expect("a step") {
        GroupStep::Assigned(assigned) => seen.assigned.extend(assigned.into_iter().map(|it| it.at)),
        GroupStep::Revoked(partitions) => {
            member.release(&partitions).await.expect("released");
            seen.assigned.retain(|at| !partitions.contains(at));
        }
        GroupStep::Lost(partitions) => seen.assigned.retain(|at| !partitions.contains(at)),
        GroupStep::Messages(messages) => {
            let offsets: Vec<_> = messages
                .iter()
                .map(|message| PartitionOffset { at: message.at.clone(), offset: message.offset + 1 })
                .collect();
            member.commit(&offsets).await.expect("committed");
            seen.numbers.extend(messages.iter().map(number));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_gets_every_message_and_resumes_after_what_was_committed() {
    let setting = setting().await;
    let mut seen = Seen::default();
    let mut member = setting.join("one").await;
    while seen.numbers.len() < 100 {
        step(&mut *member, &mut seen).await;
    }
    // These are delivered and not committed, so they come again.
    let again = loop {
        if let GroupStep::Messages(messages) = member.next(10).await.expect("a step") {
            break messages;
        }
    };
    assert!(!again.is_empty());
    member.leave().await.expect("left");
    let offsets = setting.broker.group_offsets(&setting.group).await.expect("offsets");
    let lag: u64 = offsets.iter().map(|offset| offset.lag).sum();
    assert!(lag + seen.numbers.len() as u64 >= MESSAGES || offsets.len() < 3, "{offsets:?}");
    let mut member = setting.join("two").await;
    while seen.numbers.len() < MESSAGES as usize {
        step(&mut *member, &mut seen).await;
    }
    seen.numbers.sort_unstable();
    assert_eq!(seen.numbers, (0..MESSAGES).collect::<Vec<_>>());
    let offsets = setting.broker.group_offsets(&setting.group).await.expect("offsets");
    assert_eq!(offsets.iter().map(|offset| offset.lag).sum::<u64>(), 0, "marks of transactions are no messages");
    let refused = setting.broker.delete_group(&setting.group).await;
    assert!(matches!(refused, Err(BrokerError::Refused(_))), "{refused:?}");
    member.leave().await.expect("left");
    setting.broker.delete_group(&setting.group).await.expect("deleted");
    assert_eq!(setting.broker.group_offsets(&setting.group).await, Ok(Vec::new()));
    setting.broker.delete_group(&setting.group).await.expect("it is gone already");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_member_gets_partitions_that_the_first_released_and_nothing_is_lost_or_repeated() {
    let setting = setting().await;
    let (mut one, mut first) = (setting.join("one").await, Seen::default());
    while first.assigned.len() < 3 || first.numbers.len() < 50 {
        step(&mut *one, &mut first).await;
    }
    let (mut two, mut second) = (setting.join("two").await, Seen::default());
    while second.assigned.is_empty() || first.numbers.len() + second.numbers.len() < MESSAGES as usize {
        tokio::select! {
            () = step(&mut *one, &mut first) => {}
            () = step(&mut *two, &mut second) => {}
        }
    }
    assert_eq!(first.assigned.len() + second.assigned.len(), 3);
    assert!(first.assigned.is_disjoint(&second.assigned));
    let mut all = [first.numbers, second.numbers].concat();
    all.sort_unstable();
    assert_eq!(all, (0..MESSAGES).collect::<Vec<_>>());
    let of_other = second.assigned.first().expect("it has one").clone();
    let refused = one.commit(&[PartitionOffset { at: of_other.clone(), offset: 0 }]).await;
    assert_eq!(refused, Err(BrokerError::NotAssigned(of_other.topic, of_other.partition)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_starts_at_the_latest_gets_what_comes_after_it_joined() {
    let (settings, store) = (settings(), memory());
    let broker = broker_at(&address(), &settings);
    let host = relaying(&store, &broker, &settings);
    let log = log_of(&*store);
    commit(&*log, "o-1", "order_placed", 0, 0).await;
    until_published(&host, 1).await;
    let subscription = GroupSubscription {
        group: format!("{}late", settings.prefix).into(),
        topics: vec![settings.topic_of("order_placed")],
        start: GroupStart::Latest,
        member: "one".to_owned(),
    };
    let missing = GroupSubscription { topics: vec!["no-such-topic".into()], ..subscription.clone() };
    assert_eq!(broker.join(missing).await.err(), Some(BrokerError::UnknownTopic("no-such-topic".into())));
    let mut member = broker.join(subscription).await.expect("joined");
    let mut seen = Seen::default();
    while seen.assigned.len() < 3 {
        step(&mut *member, &mut seen).await;
    }
    commit(&*log, "o-1", "order_placed", 1, 0).await;
    while seen.numbers.is_empty() {
        step(&mut *member, &mut seen).await;
    }
    assert_eq!(seen.numbers, [1]);
    host.drain().await;
}
