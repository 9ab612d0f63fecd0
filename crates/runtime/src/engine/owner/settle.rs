//! Settling deliveries. Each settlement is answered once it is stored.

use annals_core::handlers::{HandlerError, SettleResult, Settlement};
use annals_core::processing::{Outcome, SettleError, shortened};

use super::command::{Answer, Settling};
use super::{Stop, Work};
use crate::engine::journal::NotWritten;

type Settlings = Vec<(Vec<Settling>, Answer<Vec<SettleResult>>)>;

impl Work<'_> {
    /// Settles all of these and stores them as one batch. Those with effects get a batch each: if the store refuses an effect, only that
    /// event has failed.
    pub(super) async fn settle(&mut self, all: Settlings) -> Result<(), Stop> {
        if all.is_empty() {
            return Ok(());
        }
        let mut answers = Vec::with_capacity(all.len());
        for (settlings, answer) in all {
            let mut results = Vec::with_capacity(settlings.len());
            let mut plain = Vec::new();
            for settling in settlings {
                if settling.effects.is_empty() {
                    plain.extend(settling.settlements);
                    continue;
                }
                self.settle_plain(std::mem::take(&mut plain), &mut results);
                results.extend(self.settle_with_effects(settling).await?);
            }
            self.settle_plain(plain, &mut results);
            answers.push((results, answer));
        }
        let stored = if self.is_unstored() { self.store(&[]).await } else { Ok(()) };
        for (results, answer) in answers {
            // The settlement stands even if the worker has gone.
            let _ = answer.send(stored.as_ref().map(|()| results).map_err(HandlerError::from));
        }
        Ok(stored?)
    }

    /// Returns the number in a token of this handler.
    fn token(&self, text: &str) -> Result<u64, SettleError> {
        let of_this = text.split_once('.').filter(|(_, name)| *name == &*self.owner.definition.name);
        let number = of_this.and_then(|(number, _)| self.seal.open(number));
        number.ok_or(SettleError::LeaseLost)
    }

    /// Settles these in order. Adjacent successes of one batch are settled in one step.
    fn settle_plain(&mut self, settlements: Vec<Settlement>, results: &mut Vec<SettleResult>) {
        let success = |it: &Settlement| if it.failure.is_none() { self.token(&it.token).ok() } else { None };
        let successes: Vec<Option<u64>> = settlements.iter().map(success).collect();
        let (now, mut at) = (self.clock.now(), 0);
        let mut settlements = settlements.into_iter();
        while at < successes.len() {
            let run = successes[at..].iter().map_while(|token| *token);
            let count = self.machine.settle_run(run.clone(), now);
            if count == 0 {
                results.extend(settlements.next().map(|it| self.settle_one(it)));
                at += 1;
                continue;
            }
            run.clone().take(count).for_each(|token| self.traces.end(token, None));
            drop(self.guard_done(run.take(count), now));
            self.last_success = Some(now);
            results.extend(settlements.by_ref().take(count).map(|it| result(it.token, Ok(()))));
            at += count;
        }
        self.guard_released(now);
    }

    fn settle_one(&mut self, settlement: Settlement) -> SettleResult {
        let (now, random) = (self.clock.now(), self.random());
        let outcome = settlement.outcome();
        let succeeds = outcome == Outcome::Done;
        let token = self.token(&settlement.token);
        let settled = token.and_then(|token| self.machine.settle(token, outcome, now, random).map(|_| token));
        if let Ok(token) = settled {
            self.traces.end(token, settlement.failure.as_ref().map(|failure| &*failure.reason));
            if succeeds {
                self.last_success = Some(now);
                drop(self.guard_done([token], now));
            }
        }
        self.guard_released(now);
        if let (Ok(_), Some(failure)) = (&settled, settlement.failure) {
            self.last_reason = Some(shortened(failure.reason));
        }
        result(settlement.token, settled.map(|_| ()))
    }

    async fn settle_with_effects(&mut self, settling: Settling) -> Result<Vec<SettleResult>, Stop> {
        let Settling { settlements, effects } = settling;
        // Store earlier settlements first, so that an undo affects only these.
        if self.is_unstored() {
            self.store(&[]).await?;
        }
        // With them, duplicates may have passed that waited for one of them. What an undo leaves out would be lost.
        while self.machine.has_changes() {
            self.store(&[]).await?;
        }
        let mut settled = Vec::with_capacity(settlements.len());
        let now = self.clock.now();
        for settlement in &settlements {
            let one = self.token(&settlement.token).and_then(|token| self.machine.settle(token, Outcome::Done, now, 0));
            match one {
                Ok(one) => settled.push(one),
                Err(error) => {
                    settled.into_iter().rev().for_each(|one| self.machine.undo(one));
                    return Ok(settlements.into_iter().map(|it| result(it.token, Err(error))).collect());
                }
            }
        }
        let tokens: Vec<u64> = settlements.iter().filter_map(|it| self.token(&it.token).ok()).collect();
        let finished = self.guard_done(tokens, now);
        let last_success = self.last_success.replace(now);
        match self.store(&effects).await {
            Ok(()) => {
                let tokens: Vec<_> = settlements.iter().filter_map(|it| self.token(&it.token).ok()).collect();
                tokens.into_iter().for_each(|token| self.traces.end(token, None));
                Ok(settlements.into_iter().map(|it| result(it.token, Ok(()))).collect())
            }
            Err(NotWritten::Refused(error)) => {
                settled.into_iter().rev().for_each(|one| self.machine.undo(one));
                self.guarded.restore(finished);
                self.last_success = last_success;
                let reason = format!("its effects were refused: {error}");
                let mut results: Vec<_> =
                    settlements.iter().map(|it| result(it.token.clone(), Err(SettleError::LeaseLost))).collect();
                if let (Some(first), Some(answer)) = (settlements.into_iter().next(), results.first_mut()) {
                    *answer = self.settle_one(Settlement::failed(first.token, reason));
                }
                Ok(results)
            }
            Err(other) => Err(other.into()),
        }
    }
}

fn result(token: String, settled: Result<(), SettleError>) -> SettleResult {
    let error = settled.err().map(|error| match error {
        SettleError::LeaseLost => "lease_lost".to_owned(),
        SettleError::OutOfOrder => "out_of_order".to_owned(),
    });
    SettleResult { token, settled: error.is_none(), error }
}
