//! Parses the responses of the script.

use annals_core::queue::{
    Enqueued, ItemPage, ItemRef, ItemResult, ItemState, ItemStatus, PendingCounts, QueueCounts, QueueDefinition,
    QueueError, QueuePriority, Taken, TakenItem,
};
use annals_core::{ByteString, Timestamp};

/// The fields of an item, in the order in which the script returns them.
pub(crate) type Fields = Vec<String>;

fn malformed(what: &str) -> QueueError {
    QueueError::Unavailable(format!("Redis: the script answered {what}, which is of another version"))
}

fn number(text: &str) -> Result<i64, QueueError> {
    text.parse().map_err(|_| malformed(&format!("{text:?} for a number")))
}

fn time(text: &str) -> Result<Timestamp, QueueError> {
    number(text).map(Timestamp::from_millis)
}

fn maybe(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn state(text: &str) -> ItemState {
    if text == "active" { ItemState::Active } else { ItemState::Pending }
}

/// Parses an item; `None` if the script found none.
pub(crate) fn status(fields: &[String]) -> Result<Option<ItemStatus>, QueueError> {
    let [id, is, priority, user, at, attempt, worker, until] = fields else {
        return if fields.is_empty() { Ok(None) } else { Err(malformed("an item of other fields")) };
    };
    let priority = usize::try_from(number(priority)?).ok().and_then(|at| QueuePriority::ALL.get(at));
    Ok(Some(ItemStatus {
        id: ByteString::from(&**id),
        state: state(is),
        priority: *priority.ok_or_else(|| malformed("a sixth priority"))?,
        user: ByteString::from(&**user),
        enqueued_at: time(at)?,
        attempt: u32::try_from(number(attempt)?).unwrap_or(u32::MAX),
        worker: maybe(worker).map(ByteString::from),
        lease_until: maybe(until).map(time).transpose()?,
    }))
}

pub(crate) fn enqueued(queue: &QueueDefinition, id: &ByteString, answer: &[String]) -> Result<Enqueued, QueueError> {
    let full = |reason: String| QueueError::Full { queue: queue.name.clone(), reason };
    match answer {
        [is, own, user, _] if is == "full" => {
            Err(full(format!("user {user:?} has {own} pending items, of {} at most", queue.pending_max_per_user)))
        }
        [is, pending, _] if is == "full" => {
            Err(full(format!("{pending} items are pending, of {} at most", queue.pending_max)))
        }
        [duplicate, is, position] => Ok(Enqueued {
            id: id.clone(),
            duplicate: duplicate == "1",
            state: state(is),
            position: maybe(position).map(number).transpose()?.map(i64::cast_unsigned),
        }),
        _ => Err(malformed("an entry of other fields")),
    }
}

pub(crate) fn taken((items, lost): (Vec<(Fields, String, String)>, Vec<String>)) -> Result<Taken, QueueError> {
    let mut taken = Taken { items: Vec::new(), lost: lost.into_iter().map(ByteString::from).collect() };
    for (fields, token, payload) in items {
        let item = status(&fields)?.ok_or_else(|| malformed("an item without fields"))?;
        let payload = serde_json::from_str(&payload).map_err(|_| malformed("a payload that is not JSON"))?;
        taken.items.push(TakenItem {
            token: token.into(),
            lease_until: item.lease_until.ok_or_else(|| malformed("a hand-out without a lease"))?,
            id: item.id,
            priority: item.priority,
            user: item.user,
            payload,
            enqueued_at: item.enqueued_at,
            attempt: item.attempt,
        });
    }
    Ok(taken)
}

pub(crate) fn results(items: &[ItemRef], answers: &[(String, String, String)]) -> Result<Vec<ItemResult>, QueueError> {
    let result = |(item, (accepted, changed, until)): (&ItemRef, &(String, String, String))| {
        Ok(match (&**accepted, maybe(until)) {
            ("1", None) => ItemResult::accepted(item.id.clone(), changed == "1"),
            ("1", Some(until)) => ItemResult::renewed(item.id.clone(), time(until)?),
            _ => ItemResult::lost(item.id.clone()),
        })
    };
    items.iter().zip(answers).map(result).collect()
}

pub(crate) fn page((cursor, items): (String, Vec<Fields>)) -> Result<ItemPage, QueueError> {
    let items = items.iter().filter_map(|fields| status(fields).transpose()).collect::<Result<_, _>>()?;
    Ok(ItemPage { items, cursor: maybe(&cursor).map(ByteString::from) })
}

pub(crate) fn counts(answer: &[String]) -> Result<QueueCounts, QueueError> {
    let [active, p0, p1, p2, p3, p4, users, oldest, seq, taken, done, expired, released, cancelled, lost] = answer
    else {
        return Err(malformed("other counts"));
    };
    let many = |text: &String| number(text).map(i64::cast_unsigned);
    Ok(QueueCounts {
        active: many(active)?,
        pending: PendingCounts::from_highest([many(p0)?, many(p1)?, many(p2)?, many(p3)?, many(p4)?]),
        users: many(users)?,
        oldest: maybe(oldest).map(time).transpose()?,
        enqueued_total: many(seq)?,
        taken_total: many(taken)?,
        done_total: many(done)?,
        expired_total: many(expired)?,
        released_total: many(released)?,
        cancelled_total: many(cancelled)?,
        lost_total: many(lost)?,
    })
}
