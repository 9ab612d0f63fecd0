//! Acts of operators. Each is recorded in the batch that performs it, and answered once that batch is stored.

use annals_core::handlers::{
    Act, ActRecord, HandlerError, Place, ProcessorRecord, REPLAYS, Reason, ReplayMark, ReplayRecord,
};
use annals_core::processing::{ActError, Changes, Progress, Replay};
use annals_core::{ByteString, Condition, Expected, RecordChange, TypedRecords};

use super::command::Answer;
use super::{Stop, Work};
use crate::engine::journal::NotWritten;

/// Where an act moves a processor.
struct Move {
    progress: Progress,
    /// Failing partitions at or after this position are forgotten.
    forgets: u64,
    replay: Option<Replay>,
}

impl Work<'_> {
    pub(super) async fn act(&mut self, act: Act, reason: Reason, answer: Answer<()>) -> Result<(), Stop> {
        let turn = self.journal.record().turn.cast_unsigned();
        let place = (self.clock.now(), turn, self.owner.shared.options.random.bits());
        let record = ActRecord::new(&self.owner.task, act.name(), reason, place);
        let tried = match act {
            Act::Move { to } => self.try_move(to, record).await,
            Act::Replay { from } => self.try_replay(from, record).await,
            ref other => self.try_act(other, record).map(|record| (record, None)),
        };
        let (record, moved) = match tried {
            Ok(done) => done,
            Err(error) => {
                let _ = answer.send(Err(error));
                return Ok(());
            }
        };
        tracing::info!(
            task = self.owner.task,
            act = act.name(),
            partition = record.partition,
            by = record.by,
            reason = record.reason,
            "an operator acted on a handler"
        );
        let again = moved.is_some();
        let stored = match moved {
            Some(moved) => self.store_move(record, moved).await,
            None => self.store_act(&act, record).await,
        };
        let _ = answer.send(stored.as_ref().copied().map_err(HandlerError::from));
        stored?;
        if again { Err(Stop::Again) } else { Ok(()) }
    }

    async fn store_act(&mut self, act: &Act, record: ActRecord) -> Result<(), NotWritten> {
        let recorded = TypedRecords::replacement(&record, whatever())?;
        self.store_with(&[recorded], |record| match act {
            Act::Pause => record.paused = true,
            Act::Resume => record.paused = false,
            _ => {}
        })
        .await
    }

    /// Stores a move. The processor then restarts from there, so its state in memory no longer matters.
    async fn store_move(&mut self, record: ActRecord, moved: Move) -> Result<(), NotWritten> {
        self.store_progress().await?;
        let mut effects = vec![TypedRecords::replacement(&record, whatever())?];
        if let Some(before) = &self.journal.record().replay {
            effects.push(RecordChange::delete_if(REPLAYS, before.id.as_str(), whatever()));
        }
        let mark = moved.replay.as_ref().map(|replay| ReplayMark {
            id: replay.id.to_string(),
            from: moved.progress.position.cast_signed(),
            to: replay.to.cast_signed(),
        });
        if let Some(replay) = &moved.replay {
            effects.push(TypedRecords::replacement(&ReplayRecord::of(&self.owner.task, replay), whatever())?);
        }
        let changes = Changes { progress: moved.progress, failing: Vec::new(), parked: Vec::new() };
        let edit = |record: &mut ProcessorRecord| {
            record.forgets = Some(moved.forgets.cast_signed());
            record.replay = mark;
            record.starts_at = None;
            record.ended = false;
        };
        self.journal.write(changes, &effects, edit).await
    }

    async fn try_move(&self, to: Place, record: ActRecord) -> Result<(ActRecord, Option<Move>), HandlerError> {
        let (to, head) = (self.owner.source.place(to).await?, self.owner.source.head().await?);
        let position = self.progress().position;
        if to > head {
            return Err(self.refused("move", format!("its source ends at position {head}, before {to}")));
        }
        if to == position && self.journal.record().replay.is_none() {
            return Err(self.refused("move", format!("it is already at position {position}")));
        }
        // A move forward drops the events that it passes over, including those that had failed.
        let forgets = if to >= position { 0 } else { to };
        let moved = Move { progress: Progress::at(to), forgets, replay: None };
        Ok((record.between(position, to), Some(moved)))
    }

    async fn try_replay(&self, from: Place, record: ActRecord) -> Result<(ActRecord, Option<Move>), HandlerError> {
        let from = self.owner.source.place(from).await?;
        let progress = self.progress();
        if let Some(replay) = &self.journal.record().replay {
            let state = format!(
                "replay {} up to position {} has not ended; wait until it ends, or move the handler",
                replay.id, replay.to
            );
            return Err(self.refused("replay", state));
        }
        if from >= progress.position {
            let state =
                format!("it is at position {}, so nothing from position {from} on was passed", progress.position);
            return Err(self.refused("replay", state));
        }
        let unhandled = self.machine.all_failing().map(|failing| (failing.partition.clone(), failing.position));
        let (id, to) = (record.id.as_str().into(), progress.position);
        let replay = Replay { id, to, unhandled: unhandled.collect() };
        // Events settled above the position are not part of the replay, and are not delivered again.
        let progress = Progress { position: from, ahead: progress.ahead.clone() };
        Ok((record.between(from, to), Some(Move { progress, forgets: from, replay: Some(replay) })))
    }

    fn try_act(&mut self, act: &Act, record: ActRecord) -> Result<ActRecord, HandlerError> {
        let (paused, now) = (self.journal.record().paused, self.clock.now());
        if let Some(partition) = act.partition() {
            let partition = self.meant(partition);
            let said = |verb: &str| format!("{verb}: {}", record.reason);
            let outcome = match act {
                Act::Skip { position, .. } => {
                    self.machine.park_event(&partition, *position, said("skipped"), now).map(Some)
                }
                Act::Park { position, .. } => {
                    self.machine.park_event(&partition, *position, said("parked"), now).map(Some)
                }
                _ => self.machine.retry(&partition, now).map(|()| None),
            };
            let position = outcome.map_err(|error| self.not_allowed(act, &partition, error))?;
            let (partition, position) = (Some(partition.to_string()), position.map(u64::cast_signed));
            return Ok(ActRecord { partition, position, ..record });
        }
        match act {
            Act::Pause if paused => Err(self.refused("pause", "it is already paused".to_owned())),
            Act::Resume if !paused => Err(self.refused("resume", "it is not paused".to_owned())),
            _ => Ok(record),
        }
    }

    /// Returns the partition of this name, or the one whose name is written the same way in a path.
    fn meant(&self, partition: &ByteString) -> ByteString {
        match Act::written_like(partition) {
            Some(other) if self.machine.failing(partition).is_none() => other,
            _ => partition.clone(),
        }
    }

    fn refused(&self, act: &str, state: String) -> HandlerError {
        let what = format!("handler {:?}", &*self.owner.definition.name);
        HandlerError::NotAllowed { act: act.to_owned(), what, state }
    }

    fn not_allowed(&self, act: &Act, partition: &ByteString, error: ActError) -> HandlerError {
        let handler = self.owner.definition.name.clone();
        let state = match error {
            ActError::NotFailing => return HandlerError::UnknownPartition { handler, partition: partition.clone() },
            ActError::InFlight => "an attempt is in flight; wait until it is settled or its lease ends".to_owned(),
            ActError::CatchingUp => "it is catching up, so there is no event to act on".to_owned(),
            ActError::AnotherEvent(position) => format!("its next event is the one at position {position}"),
        };
        let what = format!("partition {:?} of handler {:?}", &**partition, &*handler);
        HandlerError::NotAllowed { act: act.name().to_owned(), what, state }
    }
}

fn whatever() -> Expected {
    Expected::AbsentOr(Condition::All)
}
