//! Related changes of letters: read with their revisions, and written as one batch if nothing changed meanwhile.
//!
//! INVARIANT: the first open letter of a key is the lock of the key. A batch that adds a letter after it, or ends it, also changes it, so
//! that no letter waits for one that is closed.
//!
//! The letter records whether it has been alone, so the end of a letter that nothing follows takes no look-up of its key. One letter
//! costs, beside its share of the batch that is written:
//!
//! | change | reads |
//! |---|---|
//! | a retried letter succeeds that was alone | none if its consumer has it from reading it as due, else a share of one query |
//! | one succeeds that was not alone | the same, and one query for the next letter of its key |
//! | an event becomes a letter of a key without open letters | shares of two queries |
//! | one becomes a letter of another key | the same, and one query for the first letter of its key |

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use annals_core::bson::Bson;
use annals_core::dead_letters::{DEAD_LETTERS, DeadLetter, LetterPolicy, LetterStatus, Received};
use annals_core::processing::LetterOutcome;
use annals_core::{
    Condition, Expected, Randomness, RecordChange, RecordError, RecordQuery, Records, Revision, Stored, Timestamp,
    TypedRecords,
};

use super::policies::Policies;

/// The number of letters that are read together.
const LOOK: usize = 50;
/// The number of open letters of a key that are read first: usually the one that is about to be closed, and the next one.
const FIRST_LOOK: usize = 2;
/// The shortest delay before a letter is retried whose failure does not count.
const UNCOUNTED_MIN: Duration = Duration::from_secs(1);

/// A set of letters that are changed together.
pub(crate) struct Edits {
    letters: TypedRecords<DeadLetter>,
    policies: Policies,
    random: Arc<dyn Randomness>,
    now: Timestamp,
    known: BTreeMap<String, Known>,
    /// Ids that were looked up in vain.
    missing: HashSet<String>,
    /// Consumers and keys that were looked up and have no open letters.
    free: HashSet<(String, String)>,
    chosen: HashMap<String, LetterPolicy>,
    ended: BTreeSet<String>,
    /// Whether nobody else adds letters of the same consumer at the same time.
    adds_alone: bool,
}

struct Known {
    letter: DeadLetter,
    /// `None` for a new letter.
    revision: Option<Revision>,
    changed: bool,
}

impl Edits {
    pub fn new(records: &Arc<dyn Records>, policies: Policies, random: Arc<dyn Randomness>, now: Timestamp) -> Self {
        let letters = TypedRecords::<DeadLetter>::declared(Arc::clone(records));
        let (known, missing, free) = (BTreeMap::new(), HashSet::new(), HashSet::new());
        let (chosen, ended) = (HashMap::new(), BTreeSet::new());
        Self { letters, policies, random, now, known, missing, free, chosen, ended, adds_alone: true }
    }

    /// Adds letters while others do the same. Two of them may each add the first letter of a key, without noticing the other's, so no
    /// letter can be known to be alone.
    pub fn beside_others(self) -> Self {
        Self { adds_alone: false, ..self }
    }

    /// Adds a letter that was read.
    pub fn know(&mut self, stored: Stored<DeadLetter>) {
        let Stored { value, revision } = stored;
        let known = Known { letter: value, revision: Some(revision), changed: false };
        self.known.entry(known.letter.id.clone()).or_insert(known);
    }

    /// Reads the letters of these ids together, so that the changes of each need no read of its own.
    pub async fn look_up(&mut self, mut ids: Vec<String>) -> Result<(), RecordError> {
        ids.retain(|id| !self.known.contains_key(id));
        // A single one is read by its id as soon as it is changed.
        for some in ids.chunks(LOOK).filter(|some| some.len() > 1) {
            let of_these = Condition::ids(some.iter().map(String::as_str));
            let mut query = RecordQuery::new(DEAD_LETTERS).matching(of_these).limit(LOOK);
            loop {
                let (page, next) = self.letters.find(query.clone()).await?;
                page.into_iter().for_each(|stored| self.know(stored));
                let Some(cursor) = next else { break };
                query = query.after(cursor);
            }
            self.missing.extend(some.iter().filter(|id| !self.known.contains_key(*id)).cloned());
        }
        Ok(())
    }

    /// Looks for open letters of these keys together, so that a letter of a key without any needs no query of its own.
    pub async fn look_up_keys(&mut self, processor: &str, keys: BTreeSet<&str>) -> Result<(), RecordError> {
        let keys: Vec<&str> = keys.into_iter().collect();
        for some in keys.chunks(LOOK).filter(|some| some.len() > 1) {
            let of_these = Condition::is_in("key", some.iter().copied());
            let condition = Condition::and([DeadLetter::holding(processor), of_these]);
            let query = RecordQuery::new(DEAD_LETTERS).matching(condition).ascending("key").ascending("position");
            let (page, more) = self.letters.find(query.limit(LOOK)).await?;
            // Behind a page that is not the last one, nothing is known.
            let last = page.last().filter(|_| more.is_some()).map(|stored| stored.value.key.clone());
            let taken: BTreeSet<&str> = page.iter().map(|stored| &*stored.value.key).collect();
            let is_free = |key: &&&str| !taken.contains(**key) && last.as_deref().is_none_or(|last| **key < last);
            self.free.extend(some.iter().filter(is_free).map(|key| (processor.to_owned(), (*key).to_owned())));
        }
        Ok(())
    }

    async fn read(&mut self, id: &str) -> Result<bool, RecordError> {
        if !self.known.contains_key(id)
            && !self.missing.contains(id)
            && let Some(stored) = self.letters.get(id).await?
        {
            self.know(stored);
        }
        Ok(self.known.contains_key(id))
    }

    /// Returns the letter of this id with the edits so far.
    pub async fn letter(&mut self, id: &str) -> Result<Option<&DeadLetter>, RecordError> {
        self.read(id).await?;
        Ok(self.known.get(id).map(|known| &known.letter))
    }

    fn change<T>(&mut self, id: &str, edit: impl FnOnce(&mut DeadLetter) -> T) -> Option<T> {
        let known = self.known.get_mut(id)?;
        known.changed = true;
        Some(edit(&mut known.letter))
    }

    async fn policy_of(&mut self, id: &str) -> Result<LetterPolicy, RecordError> {
        let Some(known) = self.known.get(id) else { return Ok(LetterPolicy::default()) };
        let (topic, event_type) = (known.letter.original_topic.clone(), known.letter.event_type().to_owned());
        if let Some(chosen) = self.chosen.get(&topic) {
            return Ok(*chosen);
        }
        let policy = self.policies.of(&topic, &event_type).await?.policy;
        self.chosen.insert(topic, policy);
        Ok(policy)
    }

    /// Plans the next attempt of a letter by its policy. A letter without attempts left is closed.
    async fn plan(&mut self, id: &str, promoted: bool) -> Result<(), RecordError> {
        let (policy, now, random) = (self.policy_of(id).await?, self.now, self.random.bits() as u64);
        let over = self.change(id, |letter| {
            if promoted {
                letter.promote(&policy, now, random)
            } else {
                letter.plan(&policy, now, random)
            }
            letter.status.is_final()
        });
        if over == Some(true) { Box::pin(self.resolve(id)).await } else { Ok(()) }
    }

    /// Adds a letter for an event that its consumer passes. `by_hand` means that a person took it out.
    pub async fn receive(&mut self, received: &Received<'_>, by_hand: bool) -> Result<(), RecordError> {
        let id = received.id();
        let now = self.now;
        if self.read(&id).await? {
            let was_open = self.known.get(&id).is_some_and(|known| known.letter.open);
            self.change(&id, |letter| letter.received_again(received.error, received.attempts, received.at));
            if was_open {
                return Ok(());
            }
        } else {
            let letter = DeadLetter::received(received);
            self.known.insert(id.clone(), Known { letter, revision: None, changed: true });
        }
        if by_hand {
            self.change(&id, |letter| letter.wait_for_a_person(now));
            return Ok(());
        }
        match self.first_of(received.processor, received.key, Some(&id)).await? {
            // Change the earlier letter too, so that it cannot end without noticing this one.
            Some((first, position)) if position < received.place.position().cast_signed() => {
                self.change(&first, |letter| letter.accompanied(now));
                self.change(&id, |letter| letter.follow(now));
                Ok(())
            }
            later => {
                if let Some((first, _)) = &later {
                    self.change(first, |letter| letter.follow(now));
                }
                if later.is_none() && self.adds_alone {
                    self.change(&id, DeadLetter::unaccompanied);
                } else {
                    self.change(&id, |letter| letter.accompanied(now));
                }
                // A letter that only followed others, which are closed by now, is due at once.
                self.plan(&id, received.attempts == 0).await
            }
        }
    }

    /// Applies the outcome of a letter that was delivered again. A letter that a person discarded meanwhile stays closed.
    pub async fn settled(&mut self, id: &str, outcome: &LetterOutcome) -> Result<(), RecordError> {
        if !self.read(id).await? || self.known.get(id).is_some_and(|known| !known.letter.open) {
            return Ok(());
        }
        let now = self.now;
        let Some(failure) = &outcome.failure else {
            self.change(id, |letter| letter.succeeded(outcome.at));
            return self.resolve(id).await;
        };
        self.change(id, |letter| letter.failed(&failure.reason, failure.counts, outcome.at));
        if failure.never {
            // The consumer reported that no retry can succeed, so a person must decide.
            self.change(id, |letter| (letter.status, letter.next_retry_at) = (LetterStatus::Pending, None));
            return Ok(());
        }
        self.plan(id, false).await?;
        if !failure.counts {
            // It is retried without limit, even by a policy without pauses.
            let at = date(now.plus(UNCOUNTED_MIN));
            self.change(id, |letter| {
                if letter.next_retry_at.is_some_and(|planned| planned < at) {
                    letter.next_retry_at = Some(at);
                }
            });
        }
        if let Some(millis) = failure.retry_after_ms {
            let asked = Duration::from_millis(millis);
            // During an outage, a worker cannot shorten the pause.
            let at = now.plus(if failure.counts { asked } else { asked.max(UNCOUNTED_MIN) });
            self.change(id, |letter| {
                if letter.status == LetterStatus::Scheduled {
                    letter.next_retry_at = Some(date(at));
                }
            });
        }
        Ok(())
    }

    /// Closes the open letter of an event that its consumer has processed as part of a replay.
    pub async fn processed(&mut self, processor: &str, event_id: &str, at: Timestamp) -> Result<(), RecordError> {
        let of_event = [Condition::eq("event.event_id", event_id), Condition::eq("processor", processor)];
        let condition = Condition::and(of_event.into_iter().chain([DeadLetter::open()]));
        let query = RecordQuery::new(DEAD_LETTERS).matching(condition).ascending("position").limit(LOOK);
        let page = match self.letters.find(query).await {
            Err(RecordError::UnknownCollection(_)) => return Ok(()),
            page => page?.0,
        };
        for stored in page {
            let id = stored.value.id.clone();
            self.know(stored);
            self.change(&id, |letter| letter.succeeded(at));
            self.resolve(&id).await?;
        }
        Ok(())
    }

    /// Schedules a letter for retry on a person's request. Returns its status if it is closed; `None` if there is no such letter.
    pub async fn retry(&mut self, id: &str, reason: &str, by: Option<&str>) -> Result<Option<Asked>, RecordError> {
        if !self.read(id).await? {
            return Ok(None);
        }
        let now = self.now;
        let Some(known) = self.known.get(id).filter(|known| known.letter.open) else {
            return Ok(self.known.get(id).map(|known| Asked::Over(known.letter.status)));
        };
        debug_assert!(known.letter.open);
        let done = self.change(id, |letter| letter.retry_asked(reason, by, now));
        Ok(done.map(|done| done.map_or_else(|over| Asked::Over(over.0), |()| Asked::Done)))
    }

    /// Discards a letter. Returns its status if it is closed; `None` if there is no such letter.
    pub async fn discard(&mut self, id: &str, reason: &str, by: Option<&str>) -> Result<Option<Asked>, RecordError> {
        if !self.read(id).await? {
            return Ok(None);
        }
        if let Some(over) = self.known.get(id).filter(|known| !known.letter.open) {
            return Ok(Some(Asked::Over(over.letter.status)));
        }
        let now = self.now;
        // It was open just now.
        let _ = self.change(id, |letter| letter.discard(reason.to_owned(), by, now));
        self.resolve(id).await?;
        Ok(Some(Asked::Done))
    }

    /// Plans the next letter of a key after one was closed.
    async fn resolve(&mut self, id: &str) -> Result<(), RecordError> {
        let Some(known) = self.known.get(id) else { return Ok(()) };
        let (processor, key) = (known.letter.processor.clone(), known.letter.key.clone());
        if known.letter.alone {
            self.ended.insert(key);
            return Ok(());
        }
        match self.first_of(&processor, &key, None).await? {
            None => _ = self.ended.insert(key),
            Some((next, _)) if self.known.get(&next).is_some_and(|known| known.letter.follows) => {
                self.plan(&next, true).await?;
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Returns the first open letter that holds a key, with the edits so far, and its position. The letter is then known.
    async fn first_of(
        &mut self,
        processor: &str,
        key: &str,
        but: Option<&str>,
    ) -> Result<Option<(String, i64)>, RecordError> {
        let stored = self.first_stored(processor, key, but).await?;
        let holds =
            |letter: &DeadLetter| letter.open && letter.holds && letter.processor == processor && letter.key == key;
        let known = self.known.values().map(|known| &known.letter).filter(|letter| holds(letter));
        let known = known.filter(|letter| Some(&*letter.id) != but).map(|letter| (letter.position, letter.id.clone()));
        Ok(known.chain(stored).min().map(|(position, id)| (id, position)))
    }

    async fn first_stored(
        &mut self,
        processor: &str,
        key: &str,
        but: Option<&str>,
    ) -> Result<Option<(i64, String)>, RecordError> {
        if self.free.contains(&(processor.to_owned(), key.to_owned())) {
            return Ok(None);
        }
        let condition = Condition::and([DeadLetter::holding(processor), Condition::eq("key", key)]);
        let mut query = RecordQuery::new(DEAD_LETTERS).matching(condition).ascending("position").limit(FIRST_LOOK);
        loop {
            let (page, next) = self.letters.find(query.clone()).await?;
            for stored in page {
                // For letters that are known here, the edits count, and `first_of` checks those.
                if !self.known.contains_key(&stored.value.id) && Some(&*stored.value.id) != but {
                    let found = (stored.value.position, stored.value.id.clone());
                    self.know(stored);
                    return Ok(Some(found));
                }
            }
            let Some(cursor) = next else { return Ok(None) };
            query = query.after(cursor).limit(LOOK);
        }
    }

    /// Returns when the first of the changed letters will be retried.
    pub fn next_retry(&self) -> Option<Timestamp> {
        let changed = self.known.values().filter(|known| known.changed).map(|known| &known.letter);
        changed.filter(|letter| letter.status == LetterStatus::Scheduled).filter_map(DeadLetter::next_retry).min()
    }

    /// Returns the changes for one batch, and the keys that no longer have open letters.
    ///
    /// # Errors
    /// `invalid_record` for a letter that cannot be stored.
    pub fn finish(self) -> Result<(Vec<RecordChange>, BTreeSet<String>), RecordError> {
        let open: BTreeSet<_> = self
            .known
            .values()
            .filter(|it| it.letter.open && it.letter.holds)
            .map(|it| it.letter.key.clone())
            .collect();
        let ended = self.ended.into_iter().filter(|key| !open.contains(key)).collect();
        let changed = self.known.into_values().filter(|known| known.changed);
        let changes = changed.map(|known| {
            let expected = known.revision.map_or(Expected::Absent, Expected::Revision);
            self.letters.replacing(&known.letter, expected)
        });
        Ok((changes.collect::<Result<_, _>>()?, ended))
    }
}

/// The result of an act on a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Done,
    Over(LetterStatus),
}

pub(super) fn date(time: Timestamp) -> annals_core::bson::DateTime {
    annals_core::bson::DateTime::from_millis(time.as_millis())
}

/// Returns the id of a letter as a BSON value.
pub(super) fn id(id: &str) -> Bson {
    Bson::from(id)
}
