//! Checks commits and transactions: what is stored against what was sent, and each answer against what is stored.

use annals_core::{CommitError, CommitOutcome, DEFAULT_TENANT_ID, NewCommit, Uuid};

use super::Broken;
use super::check_refusals::check_refusal;
use super::final_log::{FinalLog, StoredCommit};
use super::keys::KeyLog;
use super::real_time::RealTime;
use super::record::Record;
use super::sent::{Outcome, Sent};

/// The facts about the log with which answers are compared.
#[derive(Clone, Copy)]
pub(super) struct Knowledge<'a> {
    pub log: &'a FinalLog<'a>,
    pub time: &'a RealTime<'a>,
    pub keys: &'a KeyLog<'a>,
}

pub(super) fn check(record: &Record, knowledge: Knowledge<'_>, broken: &mut Broken) {
    for stored in &knowledge.log.commits {
        check_stored(stored, record, knowledge.log, knowledge.time, broken);
    }
    for sent in record.calls.iter().filter_map(Sent::by) {
        let answered = Answered { sent, knowledge };
        if let Err(promise) = answered.check() {
            broken.note(format!("{}: {promise}", sent.call));
        }
    }
}

/// Checks that a stored commit was sent, either by a call that was told so, or by one that got no answer and can have stored it.
fn check_stored(
    stored: &StoredCommit<'_>,
    record: &Record,
    log: &FinalLog<'_>,
    time: &RealTime<'_>,
    broken: &mut Broken,
) {
    let mut owners = 0;
    let mut possible = false;
    for (sent, place) in time.senders(stored, log) {
        match sent.outcome() {
            Outcome::Stored(outcomes) => {
                owners += usize::from(outcomes.get(place).is_some_and(|it| it.commit_id == stored.info.commit_id));
            }
            Outcome::Unknown => {
                let began = sent.call.began;
                let gone_by = record.restart_after(began).map_or(u64::MAX, |restart| time.least_after(restart));
                let first = &log.commits[stored.place - place];
                possible |= admitted(&sent, first, log).is_ok()
                    && first.first() >= time.known(began)
                    && first.first() < gone_by;
            }
            _ => {}
        }
    }
    match owners {
        0 if possible => {}
        0 => {
            let senders = time.senders(stored, log).map(|(sent, _)| format!("\n  sent by {}", sent.call));
            let senders = senders.collect::<String>();
            broken.note(format!("{stored} is in the log, but nobody sent it, or all who did were refused{senders}"));
        }
        1 => {}
        _ => broken.note(format!("{stored} was acknowledged as new {owners} times")),
    }
}

/// Checks that all demands of the sender were satisfied where its first commit is in the log.
fn admitted(sent: &Sent<'_>, first: &StoredCommit<'_>, log: &FinalLog<'_>) -> Result<(), String> {
    let before = first.first();
    if let Some(event) = sent.excluded(log, before) {
        return Err(format!("its append condition excludes event {}", event.sequence_number));
    }
    let commits = sent.commits.iter().map(|commit| (&commit.aggregate, commit.expected_version));
    for (aggregate, expected) in commits.chain(sent.expect.iter().map(|it| (&it.aggregate, it.expected_version))) {
        let version = log.version_at(aggregate, before);
        require(expected.admits(version), || format!("the version before was {version}, of {aggregate}"))?;
    }
    Ok(())
}

struct Answered<'a> {
    sent: Sent<'a>,
    knowledge: Knowledge<'a>,
}

impl Answered<'_> {
    fn check(&self) -> Result<(), String> {
        match (self.sent.outcome(), self.sent.validate()) {
            (Outcome::Unknown | Outcome::Refused(CommitError::Store(_), _), _) => Ok(()),
            (Outcome::Refused(CommitError::Invalid(told), _), Err(invalid)) if *told == invalid => Ok(()),
            (_, Err(invalid)) => Err(format!("it should have been refused with {invalid}")),
            (Outcome::Refused(CommitError::Invalid(told), _), Ok(())) => Err(format!("it breaks no rule: {told}")),
            (Outcome::Stored(outcomes), Ok(())) => self.check_success(outcomes),
            (Outcome::Repeat(outcomes), Ok(())) => self.check_repeat(outcomes),
            (Outcome::Refused(error, part), Ok(())) => check_refusal(&self.sent, error, part, self.knowledge),
        }
    }

    fn check_success(&self, outcomes: &[CommitOutcome]) -> Result<(), String> {
        let Knowledge { log, time, .. } = self.knowledge;
        let first = outcomes.first().and_then(|first| log.of_id(first.commit_id));
        let first = first.ok_or("it was acknowledged but is gone")?;
        for (stored, commit) in self.check_outcomes(outcomes, first)?.iter().zip(self.sent.commits) {
            require(stored.is(commit), || format!("what is stored differs: {:?}", stored.events))?;
        }
        admitted(&self.sent, first, log)?;
        let known = time.known(self.sent.call.began);
        require(first.first() >= known, || format!("it stands below {known}, which was told before it was sent"))
    }

    fn check_repeat(&self, outcomes: &[CommitOutcome]) -> Result<(), String> {
        let Knowledge { log, time, keys } = self.knowledge;
        let first = stored_request(&self.sent, log);
        let first = first.ok_or("it was answered as a repeat, but the first is not there")?;
        let stored = self.check_outcomes(outcomes, first)?;
        let same_keys = keys.are_of(&self.sent, first.place) != Some(false);
        require(self.sent.has_content_of(log, first.place) && same_keys, || {
            format!("the first had other content: {:?}", first.events)
        })?;
        let count = time.count_together(first).unwrap_or(stored.len());
        require(count == stored.len(), || format!("the first was of {count} commits"))?;
        let right = |(stored, commit): (&StoredCommit<'_>, &NewCommit)| *tenant(commit) == *stored.info.tenant_id;
        require(stored.iter().zip(self.sent.commits).all(right), || {
            "it should have been refused for its tenantId".into()
        })
    }

    /// Checks that the outcomes are those of the adjacent commits from `first` on.
    fn check_outcomes(
        &self,
        outcomes: &[CommitOutcome],
        first: &StoredCommit<'_>,
    ) -> Result<&[StoredCommit<'_>], String> {
        let stored = self.sent.stored_at(self.knowledge.log, first.place).unwrap_or_default();
        require(stored.len() == self.sent.commits.len() && stored.len() == outcomes.len(), || {
            format!("{} outcomes were told, and {} commits stand there", outcomes.len(), stored.len())
        })?;
        for (stored, outcome) in stored.iter().zip(outcomes) {
            let event_ids: Vec<Uuid> = stored.events.iter().map(|event| event.id).collect();
            let told = (outcome.commit_id, outcome.version, &outcome.event_ids);
            let is = (stored.info.commit_id, stored.info.version, &event_ids);
            let number_is = outcome.first_sequence_number.is_none_or(|first| first == stored.first());
            require(told == is && number_is, || format!("it was told otherwise than it is stored: {is:?}"))?;
        }
        Ok(stored)
    }
}

/// Returns what the log holds under the request id, with the aggregate that it belongs to.
pub(super) fn stored_request<'l>(sent: &Sent<'_>, log: &'l FinalLog<'_>) -> Option<&'l StoredCommit<'l>> {
    log.of_request(&sent.commits[0].aggregate, sent.request_id?)
}

pub(super) fn tenant(commit: &NewCommit) -> &str {
    commit.tenant_id.as_deref().unwrap_or(DEFAULT_TENANT_ID)
}

pub(super) fn require(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
