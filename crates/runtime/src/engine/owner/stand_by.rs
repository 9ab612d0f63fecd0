//! What an owner does until it holds the lease, and how it determines where to begin.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use annals_core::handlers::{ActRecord, DefinitionRecord, HandlerError, Reason};
use annals_core::processing::{Changes, Failing, Progress};
use annals_core::{Condition, Expected, StoreError, TypedRecords};

use super::command::{Command, Handed, Pull};
use super::{Owner, Stop};
use crate::engine::journal::{Journal, NotWritten};
use crate::host::{Asked, Held, Leases, is_set};

/// How often to ask for a lease that another process holds.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Waits for the lease. Pulls wait meanwhile; most other requests are refused with the name of the process that owns the processor.
pub(super) async fn until_taken(owner: &mut Owner, leases: &Leases) -> Result<Held, Stop> {
    Journal::declare(&owner.records).await.map_err(NotWritten::from)?;
    let clock = Arc::clone(&owner.shared.options.clock);
    let mut stop = owner.shared.stop.subscribe();
    let mut pulls: VecDeque<Pull> = VecDeque::new();
    let mut last_asked = clock.now();
    loop {
        let elsewhere = match leases.ask().await.map_err(NotWritten::from)? {
            Asked::Taken(held) => return Ok(held),
            Asked::Elsewhere { owner } => owner,
        };
        // Not until a time: if the clock is set back, the next question would have to wait until the clock reaches it.
        let mut pause = clock.sleep(ASK_EVERY);
        let mut is_over = false;
        while !is_over {
            answer_those_whose_time_is_up(&mut pulls, clock.now());
            let look_at = pulls.iter().map(|pull| pull.ends).min();
            tokio::select! {
                biased;
                () = is_set(&mut stop) => return Err(Stop::Done),
                // Before the commands, so that many of them do not keep the lease from being asked for.
                () = &mut pause => is_over = true,
                command = owner.commands.recv() => {
                    last_asked = clock.now();
                    refuse(owner, command.ok_or(Stop::Done)?, &elsewhere, &mut pulls, last_asked)?;
                }
                () = clock.sleep_until(look_at.unwrap_or_default()), if look_at.is_some() => {}
            }
        }
        let now = clock.now();
        // Once the lease is taken they are dropped without an answer, and their callers ask again.
        answer_those_whose_time_is_up(&mut pulls, now);
        if pulls.is_empty() && !owner.local.load(Ordering::Relaxed) && now.since(last_asked) > super::IDLE_MAX {
            return Err(Stop::Done);
        }
    }
}

fn answer_those_whose_time_is_up(pulls: &mut VecDeque<Pull>, now: annals_core::Timestamp) {
    let (waiting, over): (VecDeque<_>, VecDeque<_>) =
        std::mem::take(pulls).into_iter().partition(|pull| pull.ends > now);
    *pulls = waiting;
    for pull in over {
        let _ = pull.answer.send(Ok(Handed::nothing()));
    }
    pulls.retain(|pull| !pull.answer.is_closed());
}

fn refuse(
    owner: &mut Owner,
    command: Command,
    elsewhere: &str,
    pulls: &mut VecDeque<Pull>,
    now: annals_core::Timestamp,
) -> Result<(), Stop> {
    let refusal = || HandlerError::OwnedElsewhere { name: owner.definition.name.clone(), owner: elsewhere.to_owned() };
    match command {
        Command::Pull { body, answer } => {
            let ends = now.plus(Duration::from_millis(body.wait_ms));
            pulls.push_back(Pull { body, ends, answer });
        }
        Command::Settle { answer, .. } => _ = answer.send(Err(refusal())),
        Command::Act { answer, .. } => _ = answer.send(Err(refusal())),
        Command::Look { answer } => _ = answer.send(Err(refusal())),
        Command::UntilHandled { answer, .. } => _ = answer.send(Err(refusal())),
        Command::Redefine { definition } => owner.definition = *definition,
        // The process that owns the processor looks by itself.
        Command::Letters => {}
        Command::Delete { answer } => {
            let _ = answer.send(Ok(()));
            return Err(Stop::Done);
        }
    }
    Ok(())
}

/// Reads the definition again, because another process may have changed or deleted it. Returns the stored record.
pub(super) async fn defined(owner: &mut Owner) -> Result<DefinitionRecord, Stop> {
    let handlers = TypedRecords::<DefinitionRecord>::declared_as(Arc::clone(&owner.records), owner.definitions);
    let found = handlers.get(&*owner.definition.name).await.map_err(NotWritten::from)?;
    let found = found.ok_or(Stop::Done)?.value;
    owner.definition = found.read().map_err(|invalid| Stop::Failed(invalid.to_string()))?;
    Ok(found)
}

/// Returns the progress of a processor. After a restore, its position is moved back to the fork, and that is logged.
pub(super) async fn clamped(
    owner: &Owner,
    journal: &mut Journal,
    failing: &mut Vec<Failing>,
) -> Result<Progress, Stop> {
    let record = journal.record();
    let (progress, seen) = (record.progress(), u32::try_from(record.incarnation).unwrap_or(0));
    let scope = &*owner.definition.scope;
    let identity = owner.shared.store.identity_since(&owner.tenant, scope, seen).ok_or(Stop::Done)?;
    let store = identity.store_id.to_string();
    if record.store == store && seen == identity.incarnation {
        return Ok(progress);
    }
    let head = owner.source.head().await?;
    let fork = match record.store == store {
        true => owner.source.position_of(identity.incarnation_start).await?.min(head),
        // The records were copied with the log, whose sequence numbers are the same.
        false => head,
    };
    let (before, position) = (progress.position, progress.position.min(fork));
    tracing::warn!(
        task = owner.task,
        from = progress.position,
        to = position,
        incarnation = identity.incarnation,
        "the store was restored after this position was stored; resuming from the last position that both have in common"
    );
    let ahead = progress.ahead.into_iter().map(|(from, to)| (from.max(position), to.min(fork)));
    let progress = Progress { position, ahead: ahead.filter(|(from, to)| from < to).collect() };
    // Partitions that failed at or after the fork had failed at other events.
    let other: Vec<_> = failing.extract_if(.., |failing| failing.position >= fork).collect();
    let ended = other.into_iter().map(|failing| (failing.partition, None)).collect();
    let changes = Changes { progress: progress.clone(), failing: ended, parked: Vec::new() };
    let options = &owner.shared.options;
    let place = (options.clock.now(), journal.record().turn.cast_unsigned(), options.random.bits());
    let reason = Reason::from(format!("the store was restored; incarnation {} begins", identity.incarnation));
    let act = ActRecord::new(&owner.task, "clamp", reason.by("annals"), place);
    let act = act.between(before, position);
    let acts = [TypedRecords::replacement(&act, Expected::AbsentOr(Condition::All)).map_err(NotWritten::from)?];
    let written = journal.write(changes, &acts, |record| {
        if let Some(replay) = &mut record.replay {
            replay.to = replay.to.min(fork.cast_signed());
        }
        record.ended = false;
        record.store = store;
        record.incarnation = identity.incarnation.into();
    });
    match written.await {
        Ok(()) => Ok(progress),
        Err(NotWritten::Store(StoreError::Closed)) => Err(Stop::Done),
        Err(error) => Err(error.into()),
    }
}
