//! The constraints from the real-time order of calls and answers. A call that began after another was answered cannot know less than that
//! answer. No answer can know of a commit that had not been sent yet.

use std::collections::HashMap;

use annals_core::{Aggregate, CommitError, CommitOutcome, SequenceNumber};

use super::Broken;
use super::final_log::{FinalLog, StoredCommit};
use super::record::{Call, Record, Tick, What};
use super::sent::{Outcome, Part, Sent};

/// A request, and the index of a commit in it.
type Member<'a> = (Sent<'a>, usize);

pub(crate) struct RealTime<'a> {
    /// By the time of the answer: the highest head that was reported by then.
    told: Vec<(Tick, SequenceNumber)>,
    /// By the time of the call: the lowest head that this or a later call reported.
    least: Vec<(Tick, SequenceNumber)>,
    /// The commits that were sent, each with its index in its request, by aggregate and request id.
    sent: HashMap<(&'a Aggregate, Option<&'a str>), Vec<Member<'a>>>,
    /// For each commit of the log, the range of commits that came with it, if that can be told.
    together: Vec<Option<(usize, usize)>>,
    /// For each commit of the log, its first sequence number, and when it and all earlier ones had been sent.
    sent_by: Vec<(SequenceNumber, Tick)>,
}

impl<'a> RealTime<'a> {
    pub fn new(record: &'a Record, log: &FinalLog<'_>, broken: &mut Broken) -> Self {
        let mut time = Self {
            told: Vec::new(),
            least: Vec::new(),
            sent: HashMap::new(),
            together: Vec::new(),
            sent_by: Vec::new(),
        };
        for sent in record.calls.iter().filter_map(Sent::by) {
            for (place, commit) in sent.commits.iter().enumerate() {
                let request = sent.request_id.filter(|_| place == 0);
                time.sent.entry((&commit.aggregate, request)).or_default().push((sent, place));
            }
        }
        time.together = time.find_together(log);
        let (mut told, mut least) = (Vec::new(), Vec::new());
        for call in &record.calls {
            if let (Some(ended), Some(head)) = (call.ended, time.head_told(call, log)) {
                told.push((ended, head));
                broken.note_unless(head <= log.head(), || format!("{call}, but the log ends at {}", log.head()));
            }
            if let Some(head) = exact_head(call) {
                least.push((call.began, head));
                let parted = head.checked_sub(1).and_then(|last| log.of_number(last));
                let parted = parted.filter(|stored| time.end_with_others(stored, log) > head);
                if let Some(stored) = parted {
                    broken.note(format!("{call}: {head} lies inside of {stored} and what came with it"));
                }
            }
        }
        told.sort_unstable();
        let mut highest = 0;
        told.iter_mut().for_each(|(_, head)| {
            highest = highest.max(*head);
            *head = highest;
        });
        least.sort_unstable();
        let mut lowest = SequenceNumber::MAX;
        least.iter_mut().rev().for_each(|(_, head)| {
            lowest = lowest.min(*head);
            *head = lowest;
        });
        (time.told, time.least, time.sent_by) = (told, least, time.find_sent_by(log));
        time.check_heads(record, log, broken);
        time
    }

    /// Returns the highest head that any call had reported before `began`.
    pub fn known(&self, began: Tick) -> SequenceNumber {
        let earlier = self.told.partition_point(|(ended, _)| *ended < began);
        earlier.checked_sub(1).map_or(0, |last| self.told[last].1)
    }

    /// Returns the lowest head that a call after `tick` reported.
    pub fn least_after(&self, tick: Tick) -> SequenceNumber {
        self.least
            .get(self.least.partition_point(|(began, _)| *began <= tick))
            .map_or(SequenceNumber::MAX, |(_, head)| *head)
    }

    /// Returns the requests that are stored as this commit, with the commit's index in each. A commit of a transaction counts only if the
    /// whole transaction is there.
    pub fn senders<'s>(
        &'s self,
        stored: &'s StoredCommit<'_>,
        log: &'s FinalLog<'_>,
    ) -> impl Iterator<Item = Member<'a>> + 's {
        let request = stored.info.request_id.as_deref();
        let named = self.sent.get(&(&stored.info.aggregate, request)).into_iter().flatten();
        let unnamed =
            self.sent.get(&(&stored.info.aggregate, None)).filter(|_| request.is_some()).into_iter().flatten();
        named
            .chain(unnamed)
            .copied()
            .filter(|(sent, place)| stored.place.checked_sub(*place).is_some_and(|start| sent.is_stored_at(log, start)))
    }

    /// Returns when the first of them was sent. Nobody can have known of the commit earlier.
    pub fn sent_at(&self, stored: &StoredCommit<'_>, log: &FinalLog<'_>) -> Option<Tick> {
        self.senders(stored, log).map(|(sent, _)| sent.call.began).min()
    }

    /// Finds the commits that came together: those of the call that was told so, or of all calls that can have stored this one. `None` if
    /// those calls differ in their ranges.
    fn find_together(&self, log: &FinalLog<'_>) -> Vec<Option<(usize, usize)>> {
        let of = |stored: &StoredCommit<'_>| {
            let range = |(sent, place): Member<'a>| {
                let start = stored.place - place;
                (start, start + sent.commits.len())
            };
            let owns = |(sent, place): &Member<'a>| match sent.outcome() {
                Outcome::Stored(outcomes) => {
                    outcomes.get(*place).is_some_and(|it| it.commit_id == stored.info.commit_id)
                }
                _ => false,
            };
            if let Some(owner) = self.senders(stored, log).find(owns) {
                return Some(range(owner));
            }
            let possible = |(sent, _): &Member<'a>| matches!(sent.outcome(), Outcome::Unknown);
            let mut ranges = self.senders(stored, log).filter(possible).map(range);
            let first = ranges.next().unwrap_or((stored.place, stored.place + 1));
            ranges.all(|range| range == first).then_some(first)
        };
        log.commits.iter().map(of).collect()
    }

    /// Returns how many commits came with this one, including itself, if that can be told.
    pub fn count_together(&self, stored: &StoredCommit<'_>) -> Option<usize> {
        self.together[stored.place].map(|(start, end)| end - start)
    }

    /// Returns the sequence number after the last event that came with this commit.
    fn end_with_others(&self, stored: &StoredCommit<'_>, log: &FinalLog<'_>) -> SequenceNumber {
        self.together[stored.place].map_or(stored.end(), |(_, end)| log.commits[end - 1].end())
    }

    fn find_sent_by(&self, log: &FinalLog<'_>) -> Vec<(SequenceNumber, Tick)> {
        let mut latest = 0;
        let sent_by = |stored: &StoredCommit<'_>| {
            latest = latest.max(self.sent_at(stored, log).unwrap_or(0));
            (stored.first(), latest)
        };
        log.commits.iter().map(sent_by).collect()
    }

    /// Returns the highest head that the log can have had at `tick`, by what had been sent.
    pub fn sent_before(&self, tick: Tick, log: &FinalLog<'_>) -> SequenceNumber {
        let sent = self.sent_by.partition_point(|(_, latest)| *latest < tick);
        self.sent_by.get(sent).map_or(log.head(), |(first, _)| *first)
    }

    /// Checks each reported head against earlier reports, and against what had been sent by then.
    fn check_heads(&self, record: &Record, log: &FinalLog<'_>, broken: &mut Broken) {
        for call in &record.calls {
            if let Some(head) = exact_head(call) {
                let known = self.known(call.began);
                broken.note_unless(head >= known, || format!("{call}, although {known} was told before"));
            }
            let (Some(ended), Some(head)) = (call.ended, self.head_told(call, log)) else { continue };
            let below = self.sent_by.partition_point(|(first, _)| *first < head);
            let Some((first, sent)) = below.checked_sub(1).map(|last| self.sent_by[last]) else { continue };
            broken
                .note_unless(sent < ended, || format!("{call} knows of what was sent at {sent}, up to event {first}"));
        }
    }

    /// Returns a head that the answer proves, exact or not. An answer about a commit proves all commits that came with it.
    fn head_told(&self, call: &Call, log: &FinalLog<'_>) -> Option<SequenceNumber> {
        let end = |stored: &StoredCommit<'_>| self.end_with_others(stored, log);
        if let Some(sent) = Sent::by(call) {
            return match sent.outcome() {
                Outcome::Stored(outcomes) | Outcome::Repeat(outcomes) => {
                    let after = |it: &CommitOutcome| {
                        it.first_sequence_number.map(|first| first + it.event_ids.len() as SequenceNumber)
                    };
                    outcomes.iter().filter_map(after).max()
                }
                Outcome::Refused(error, part) => self.head_of_refusal(&sent, error, part, log).map(end),
                Outcome::Unknown => None,
            };
        }
        match &call.what {
            What::ReadAggregate { query, answer } => {
                answer.as_ref().and_then(|seen| log.of_version(&query.aggregate, seen.version)).map(end)
            }
            What::RequestExists { aggregate, request_id, answer: Some(true) } => {
                log.of_request(aggregate, request_id).map(end)
            }
            What::AggregateIds { query, answer } => answer
                .iter()
                .flatten()
                .filter_map(|known| log.of_version(&Aggregate::new(query.name.clone(), known.id.clone()), 1))
                .map(end)
                .max(),
            _ => exact_head(call),
        }
    }

    /// Returns the commit that a refusal proves.
    fn head_of_refusal<'l>(
        &self,
        sent: &Sent<'_>,
        error: &CommitError,
        part: Part,
        log: &'l FinalLog<'_>,
    ) -> Option<&'l StoredCommit<'l>> {
        match error {
            CommitError::VersionConflict { actual_version, .. } => {
                log.of_version(sent.aggregate(part)?, *actual_version)
            }
            CommitError::RequestIdReused { request_id } => log.of_request(&sent.commits[0].aggregate, request_id),
            CommitError::AppendConditionFailed { sequence_number, .. } => log.of_number(*sequence_number),
            CommitError::AggregateOfOtherTenant { .. } => log.of_version(sent.aggregate(part)?, 1),
            _ => None,
        }
    }
}

/// Returns the head that the call reported; `None` if it reported less.
fn exact_head(call: &Call) -> Option<SequenceNumber> {
    match &call.what {
        What::Read { answer, .. } => answer.as_ref().map(|page| page.head),
        What::Head { answer } | What::WaitPast { answer, .. } => *answer,
        _ => None,
    }
}
