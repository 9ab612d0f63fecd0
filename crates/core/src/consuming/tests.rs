//! The member against messages that fail, partitions that move and processes that die.

use super::*;
use crate::processing::Then;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn partition(number: u32) -> TopicPartition {
    TopicPartition { topic: "placed".into(), partition: number }
}

fn incoming(part: u32, offset: u64, key: &str) -> Incoming<(u32, u64)> {
    Incoming { at: partition(part), offset, key: key.into(), bytes: 10, message: (part, offset) }
}

fn settings() -> ConsumingSettings {
    let retry =
        ProcessingRetry { first_ms: 10, factor: 1.0, max_ms: 10, jitter: 0.0, attempts: Some(2), then: Then::Park };
    ConsumingSettings { in_flight: 4, buffered: 20, buffered_bytes: 10_000, retry, keeps_order: true, breaker: 0 }
}

fn member(settings: ConsumingSettings) -> Consuming<(u32, u64)> {
    let mut member = Consuming::new(settings);
    member.assigned(partition(0), 0);
    member
}

fn failed() -> Ending {
    Ending::Failed { reason: "it is down".to_owned(), retry_after_ms: None, never: false }
}

fn position(member: &Consuming<(u32, u64)>) -> Option<u64> {
    member.uncommitted().first().map(|it| it.offset)
}

#[test]
fn keys_are_side_by_side_and_messages_of_a_key_one_after_the_other() {
    let mut member = member(settings());
    for (offset, key) in ["a", "a", "b", "c", "b", "d", "e"].iter().enumerate() {
        member.push(incoming(0, offset as u64, key));
    }
    let first: Vec<_> = std::iter::from_fn(|| member.take(at(0))).collect();
    assert_eq!(first.iter().map(|it| it.message.1).collect::<Vec<_>>(), [0, 2, 3, 5], "four keys");
    assert_eq!(position(&member), None, "nothing is done");
    member.settle(first[1].token, Ending::Done, at(0), 0);
    assert_eq!(position(&member), None, "what is before it is not");
    member.settle(first[0].token, Ending::Done, at(0), 0);
    assert_eq!(position(&member), Some(1));
    let next: Vec<_> = std::iter::from_fn(|| member.take(at(0))).map(|it| it.message.1).collect();
    assert_eq!(next, [6, 4], "in turns; the second of a key follows its first");
}

#[test]
fn a_failed_message_keeps_its_place_and_is_attempted_again_when_it_is_due() {
    let mut member = member(settings());
    member.push(incoming(0, 5, "a"));
    member.push(incoming(0, 9, "a"));
    let first = member.take(at(0)).expect("ready");
    member.settle(first.token, failed(), at(0), 0);
    assert!(member.take(at(9)).is_none());
    assert_eq!(member.due_at(), Some(at(10)));
    let again = member.take(at(10)).expect("due");
    assert_eq!((again.message.1, again.number, again.last_reason.as_deref()), (5, 2, Some("it is down")));
    member.settle(again.token, Ending::Done, at(10), 0);
    let next = member.take(at(10)).expect("the next of its key");
    assert_eq!((next.message.1, next.number), (9, 1));
    member.settle(next.token, Ending::Done, at(10), 0);
    assert_eq!(position(&member), Some(10), "offsets may have gaps");
}

#[test]
fn a_message_that_is_passed_counts_as_done_once_its_letter_is_stored_and_later_ones_of_its_key_follow_it() {
    let mut member = member(settings());
    for (offset, key) in ["a", "a", "b"].iter().enumerate() {
        member.push(incoming(0, offset as u64, key));
    }
    for now in [0, 10] {
        let attempt = member.take(at(now)).expect("due");
        assert_eq!(attempt.message.1, 0);
        member.settle(attempt.token, failed(), at(now), 0);
        if now == 0 {
            let other = member.take(at(0)).expect("the other key");
            member.settle(other.token, Ending::Done, at(0), 0);
        }
    }
    let passing = member.take_passing(10);
    assert_eq!((passing.len(), passing[0].attempts, &*passing[0].key), (1, 2, "placed/a"));
    assert_eq!(position(&member), None, "the letter is not stored yet");
    assert!(!member.is_idle(&partition(0)));
    member.passed(&passing[0]);
    let following = member.take_passing(10);
    assert_eq!((following.len(), following[0].offset, following[0].attempts), (1, 1, 0));
    member.passed(&following[0]);
    assert_eq!((position(&member), member.buffered()), (Some(3), 0));
    member.push(incoming(0, 3, "a"));
    assert_eq!(member.take_passing(10).len(), 1, "the key is held");
    member.let_go("placed/a");
    member.push(incoming(0, 4, "a"));
    assert_eq!(member.take_passing(10).len(), 1, "one before it is about to become a letter");
}

#[test]
fn a_message_that_cannot_be_read_or_can_never_succeed_holds_up_nothing() {
    let mut member = member(settings());
    member.push_unreadable(incoming(0, 0, "a"), "it is no JSON".to_owned());
    member.push(incoming(0, 1, "a"));
    member.push(incoming(0, 2, "a"));
    let attempt = member.take(at(0)).expect("it is not held");
    let never = Ending::Failed { reason: "no such customer".to_owned(), retry_after_ms: None, never: true };
    member.settle(attempt.token, never, at(0), 0);
    let passing = member.take_passing(10);
    assert_eq!(passing.iter().map(|it| (it.offset, it.never)).collect::<Vec<_>>(), [(0, true), (1, true)]);
    passing.iter().for_each(|it| member.passed(it));
    let next = member.take(at(0)).expect("the key goes on");
    member.settle(next.token, Ending::Done, at(0), 0);
    assert_eq!((position(&member), member.buffered()), (Some(3), 0));
}

#[test]
fn a_buffer_full_of_messages_that_wait_for_a_failing_key_passes_that_key() {
    let retry = ProcessingRetry { attempts: None, ..settings().retry };
    let mut member = member(ConsumingSettings { retry, ..settings() });
    let mut offset = 0;
    while member.room() > 0 {
        member.push(incoming(0, offset, "a"));
        offset += 1;
    }
    let attempt = member.take(at(0)).expect("ready");
    member.make_room();
    assert!(!member.has_passing(), "it is in flight");
    member.settle(attempt.token, failed(), at(0), 0);
    member.make_room();
    let passing = member.take_passing(100);
    assert_eq!((passing.len(), passing[0].attempts, &*passing[0].reason), (1, 1, "it is down"));
    member.passed(&passing[0]);
    member.take_passing(100).iter().for_each(|it| member.passed(it));
    assert_eq!((member.room(), position(&member)), (20, Some(20)));
}

#[test]
fn behind_an_open_breaker_nothing_is_passed_and_one_attempt_at_a_time_probes() {
    let mut member = member(ConsumingSettings { breaker: 2, ..settings() });
    for offset in 0..8 {
        member.push(incoming(0, offset, &format!("k{offset}")));
    }
    let mut now = 0;
    while !member.is_broken() {
        while let Some(attempt) = member.take(at(now)) {
            member.settle(attempt.token, failed(), at(now), 0);
        }
        now += 10;
    }
    let passed = member.take_passing(10).len();
    assert!(passed >= 2, "{passed}");
    for _ in 0..20 {
        now += 1_000;
        let probe = member.take(at(now)).expect("one is due");
        assert!(member.take(at(now)).is_none(), "one at a time");
        member.settle(probe.token, failed(), at(now), 0);
        assert!(!member.has_passing());
    }
    let probe = member.take(at(now + 1_000)).expect("one is due");
    member.settle(probe.token, Ending::Done, at(now + 1_000), 0);
    assert!(!member.is_broken());
}

#[test]
fn a_partition_that_moves_hands_out_nothing_more_and_is_released_when_it_is_idle() {
    let mut member = member(settings());
    member.assigned(partition(1), 0);
    for part in [0, 1] {
        for offset in 0..3 {
            member.push(incoming(part, offset, &format!("k{}", offset % 2)));
        }
    }
    let attempts: Vec<_> = std::iter::from_fn(|| member.take(at(0))).collect();
    member.closing(&partition(0));
    assert!(!member.is_idle(&partition(0)));
    for attempt in &attempts {
        let ending = if attempt.message == (0, 1) { failed() } else { Ending::Done };
        member.settle(attempt.token, ending, at(0), 0);
    }
    assert!(member.is_idle(&partition(0)));
    let offsets = member.uncommitted();
    assert_eq!(offsets[0], PartitionOffset { at: partition(0), offset: 1 });
    member.committed(&offsets);
    member.removed(&partition(0));
    let left: Vec<_> = std::iter::from_fn(|| member.take(at(100))).map(|it| it.message).collect();
    assert_eq!((left, member.partitions(), member.buffered()), (vec![(1, 2)], 1, 1));
    member.push(incoming(0, 9, "a"));
    assert_eq!(member.buffered(), 1, "it is not the member's");
}

/// A generator of numbers that is the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[test]
fn whatever_fails_and_dies_every_message_is_done_or_a_letter_and_keys_keep_their_order() {
    for seed in 1..300_u64 {
        let mut numbers = Numbers(seed * 0x9e37_79b9);
        let keys: Vec<String> = (0..300).map(|_| format!("k{}", numbers.below(12))).collect();
        let (mut committed, mut now) = (0, 0);
        // What was done or became a letter, in order; a process that dies repeats what it did not commit.
        let mut ended: Vec<u64> = Vec::new();
        let mut letters: HashSet<ByteString> = HashSet::new();
        while committed < 300 {
            let mut member = Consuming::new(ConsumingSettings { buffered: 30, ..settings() });
            member.hold_only(letters.clone());
            member.assigned(partition(0), committed);
            let (mut next, mut flights) = (committed, Vec::new());
            while committed < 300 && numbers.below(400) > 0 {
                now += 3;
                while member.room() > 0 && next < 300 {
                    member.push(incoming(0, next, &keys[next as usize]));
                    next += 1;
                }
                flights.extend(std::iter::from_fn(|| member.take(at(now))));
                member.make_room();
                if !flights.is_empty() {
                    let attempt = flights.swap_remove(numbers.below(flights.len() as u64) as usize);
                    let ending = if numbers.below(5) == 0 { failed() } else { Ending::Done };
                    ended.extend((ending == Ending::Done).then_some(attempt.message.1));
                    member.settle(attempt.token, ending, at(now), 0);
                }
                for passing in member.take_passing(3) {
                    letters.insert(passing.key.clone());
                    ended.push(passing.offset);
                    member.passed(&passing);
                }
                if numbers.below(4) == 0 {
                    let offsets = member.uncommitted();
                    committed = offsets.first().map_or(committed, |it| it.offset);
                    member.committed(&offsets);
                }
            }
        }
        for key in 0..12 {
            let key = format!("k{key}");
            let all: Vec<u64> = (0..300).filter(|n| keys[*n as usize] == key).collect();
            let mut seen: Vec<u64> = Vec::new();
            for offset in ended.iter().filter(|offset| keys[**offset as usize] == key) {
                let known = seen.contains(offset);
                assert!(
                    known || seen.last().is_none_or(|last| last < offset),
                    "seed {seed}: {offset} of {key} came late"
                );
                if !known {
                    seen.push(*offset);
                }
            }
            assert_eq!(seen, all, "seed {seed}: all of {key}");
        }
    }
}
