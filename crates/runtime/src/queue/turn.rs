//! One turn of a queue: the waiting requests are applied in memory, made durable by one batch of records, and answered.

use std::collections::BTreeMap;
use std::time::Duration;

use annals_core::queue::{
    Enqueued, Item, ItemPage, ItemRef, ItemResult, ItemStatus, ItemsQuery, Ledger, Machine, NewItem, QUEUE_ITEMS,
    QUEUE_LEDGERS, QUEUE_PAYLOADS, QueueCounts, QueueDefinition, QueueError, QueueItemRecord, QueueLedgerRecord,
    QueuePayloadRecord, QueuePriority, Taken, TakenItem, item_key,
};
use annals_core::{ByteString, Condition, Expected, RecordChange, Revision, Stored, Timestamp, TypedRecords, limits};
use tokio::sync::oneshot;

use super::records::Place;

/// The number of attempts at a turn when other processes are faster.
const TRIES: usize = 200;

/// The request of a caller.
#[derive(Debug, Clone)]
pub(super) enum Ask {
    Enqueue(NewItem),
    Take { max: usize, lease: Duration, worker: ByteString },
    Renew { items: Vec<ItemRef>, lease: Duration },
    Done(Vec<ItemRef>),
    Release(Vec<ItemRef>),
    Prioritise(ByteString, QueuePriority),
    Cancel(ByteString),
    Item(ByteString),
    Items(ItemsQuery),
    Counts,
    Clear,
}

/// The answer to a caller.
pub(super) enum Answer {
    Enqueued(Enqueued),
    Taken(Taken),
    Results(Vec<ItemResult>),
    Item(ItemStatus),
    Page(ItemPage),
    Counts(QueueCounts),
    Cleared(()),
}

/// The request of a waiting caller.
pub(super) struct Request {
    pub queue: QueueDefinition,
    pub ask: Ask,
    pub answer: oneshot::Sender<Result<Answer, QueueError>>,
}

/// The stored state of a queue.
pub(super) struct Known {
    machine: Machine,
    /// The revision and the turn of the last stored ledger.
    stored: Option<(Revision, i64)>,
}

/// Payloads of items that are new in this turn.
type Payloads = BTreeMap<ByteString, String>;

/// Answers these requests, which are for one queue. Afterwards `known` is the stored state, or nothing.
pub(super) async fn turn(place: &Place, known: &mut Option<Known>, requests: Vec<Request>) {
    let Some(name) = requests.first().map(|request| request.queue.name.clone()) else { return };
    let mut outcome = Err(QueueError::Unavailable("other processes kept changing the queue; retry".to_owned()));
    for _ in 0..TRIES {
        match attempt(place, &name, known, &requests).await {
            Ok(Some(answers)) => {
                outcome = Ok(answers);
                break;
            }
            // Another process was faster.
            Ok(None) => *known = None,
            Err(error) => {
                *known = None;
                outcome = Err(error);
                break;
            }
        }
    }
    match outcome {
        Ok(answers) => {
            for (request, answer) in requests.into_iter().zip(answers) {
                // A caller that has gone needs no answer.
                drop(request.answer.send(answer));
            }
        }
        Err(error) => requests.into_iter().for_each(|request| drop(request.answer.send(Err(error.clone())))),
    }
}

type Answers = Vec<Result<Answer, QueueError>>;

/// Applies the requests and stores their changes. Returns `None` if another process has changed the queue meanwhile.
async fn attempt(
    place: &Place,
    name: &str,
    known: &mut Option<Known>,
    requests: &[Request],
) -> Result<Option<Answers>, QueueError> {
    let current = current(place, name, known).await?;
    let now = place.clock.now();
    let before = *current.machine.ledger();
    let (mut payloads, mut answers) = (Payloads::new(), Answers::new());
    for Request { queue, ask, .. } in requests {
        answers.push(match ask {
            Ask::Take { max, lease, worker } => {
                let taken = take(place, &mut current.machine, queue, (*max, *lease, worker), (now, &payloads)).await;
                Ok(Answer::Taken(taken?))
            }
            Ask::Clear => {
                clear(place, name, current).await?;
                Ok(Answer::Cleared(()))
            }
            ask => apply(&mut current.machine, queue, ask, now, &mut payloads),
        });
    }
    match store(place, name, current, &before, payloads).await {
        Ok(()) => Ok(Some(answers)),
        Err(QueueError::Unavailable(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn apply(
    machine: &mut Machine,
    queue: &QueueDefinition,
    ask: &Ask,
    now: Timestamp,
    payloads: &mut Payloads,
) -> Result<Answer, QueueError> {
    let unknown = |id: &ByteString| QueueError::UnknownItem { queue: queue.name.clone(), id: id.clone() };
    let item = |id: &ByteString, found: Option<ItemStatus>| found.map(Answer::Item).ok_or_else(|| unknown(id));
    Ok(match ask {
        Ask::Enqueue(new) => {
            let enqueued = machine.enqueue(queue, new, now)?;
            if !enqueued.duplicate {
                payloads.insert(new.id.clone(), new.payload_text());
            }
            Answer::Enqueued(enqueued)
        }
        Ask::Renew { items, lease } => {
            Answer::Results(items.iter().map(|item| machine.renew(item, *lease, now)).collect())
        }
        Ask::Done(items) => Answer::Results(items.iter().map(|item| machine.done(item, now)).collect()),
        Ask::Release(items) => Answer::Results(items.iter().map(|item| machine.release(item, now)).collect()),
        Ask::Prioritise(id, priority) => item(id, machine.prioritise(id, *priority, now))?,
        Ask::Cancel(id) => item(id, machine.cancel(id, now))?,
        Ask::Item(id) => {
            machine.expire(now);
            item(id, machine.item(id))?
        }
        Ask::Items(query) => {
            machine.expire(now);
            Answer::Page(machine.page(query)?)
        }
        Ask::Counts | Ask::Take { .. } | Ask::Clear => {
            machine.expire(now);
            Answer::Counts(machine.counts())
        }
    })
}

/// Hands out items. An item whose payload is missing is dropped, and the next one is handed out instead.
async fn take(
    place: &Place,
    machine: &mut Machine,
    queue: &QueueDefinition,
    (max, lease, worker): (usize, Duration, &ByteString),
    (now, new): (Timestamp, &Payloads),
) -> Result<Taken, QueueError> {
    let mut taken = Taken::default();
    while taken.items.len() < max {
        let missing = max - taken.items.len();
        let next = |_| machine.take_one(queue, lease, worker, now).cloned();
        let chosen: Vec<Item> = (0..missing).map_while(next).collect();
        if chosen.is_empty() {
            break;
        }
        let mut payloads =
            stored_payloads(place, &queue.name, chosen.iter().filter(|it| !new.contains_key(&it.id))).await?;
        for item in chosen {
            let text = new.get(&item.id).cloned().or_else(|| payloads.remove(&item_key(&queue.name, &item.id)));
            match text.and_then(|text| serde_json::from_str(&text).ok()) {
                Some(payload) => taken.items.extend(handed_out(item, payload)),
                None => {
                    machine.lost(&item.id);
                    taken.lost.push(item.id);
                }
            }
        }
    }
    Ok(taken)
}

fn handed_out(item: Item, payload: serde_json::Value) -> Option<TakenItem> {
    Some(TakenItem {
        token: item.token?,
        lease_until: item.lease_until?,
        id: item.id,
        priority: item.priority,
        user: item.user,
        payload,
        enqueued_at: item.enqueued_at,
        attempt: item.attempt,
    })
}

async fn stored_payloads(
    place: &Place,
    queue: &str,
    items: impl Iterator<Item = &Item>,
) -> Result<BTreeMap<String, String>, QueueError> {
    let collection = TypedRecords::<QueuePayloadRecord>::declared(place.records.clone());
    let keys: Vec<String> = items.map(|item| item_key(queue, &item.id)).collect();
    let mut found = BTreeMap::new();
    // A page has at most 16 MiB.
    for keys in keys.chunks(32) {
        let query =
            TypedRecords::<QueuePayloadRecord>::query().matching(Condition::ids(keys.iter().map(String::as_str)));
        let (page, _) = collection.find(query.limit(keys.len())).await?;
        found.extend(page.into_iter().map(|it| (it.value.key, it.value.payload)));
    }
    Ok(found)
}

/// Reads the stored state, unless it is known already.
async fn current<'k>(place: &Place, name: &str, known: &'k mut Option<Known>) -> Result<&'k mut Known, QueueError> {
    for _ in 0..TRIES {
        let ledger = ledger(place, name).await?;
        let stored = ledger.as_ref().map(|it| (it.revision, it.value.turn));
        if known.as_ref().is_some_and(|known| known.stored == stored) {
            break;
        }
        let items = all_items(place, name).await?;
        let numbers = ledger.map(|it| it.value.ledger()).unwrap_or_default();
        // The next iteration finds the same ledger, unless a process wrote while the items were read.
        *known = Some(Known { machine: Machine::restore(numbers, items), stored });
    }
    known.as_mut().ok_or_else(|| QueueError::Unavailable("other processes kept changing the queue; retry".to_owned()))
}

async fn ledger(place: &Place, name: &str) -> Result<Option<Stored<QueueLedgerRecord>>, QueueError> {
    Ok(TypedRecords::<QueueLedgerRecord>::declared(place.records.clone()).get(name).await?)
}

async fn all_items(place: &Place, name: &str) -> Result<Vec<Item>, QueueError> {
    let collection = TypedRecords::<QueueItemRecord>::declared(place.records.clone());
    let mut items = Vec::new();
    let of_queue = TypedRecords::<QueueItemRecord>::query().matching(Condition::eq("queue", name));
    let mut query = of_queue.ascending("seq").limit(limits::PAGE_MAX);
    loop {
        let (page, next) = collection.find(query.clone()).await?;
        items.extend(page.into_iter().map(|it| it.value.item()));
        match next {
            Some(next) => query = query.after(next),
            None => return Ok(items),
        }
    }
}

/// Stores the changes, unless another process has changed the queue.
async fn store(
    place: &Place,
    name: &str,
    known: &mut Known,
    before: &Ledger,
    payloads: Payloads,
) -> Result<(), QueueError> {
    let changes = known.machine.drain_changes();
    if changes.put.is_empty() && changes.removed.is_empty() && known.machine.ledger() == before {
        return Ok(());
    }
    let any = || Expected::AbsentOr(Condition::All);
    let turn = known.stored.map_or(1, |(_, turn)| turn + 1);
    let ledger = QueueLedgerRecord::of(name, turn, known.machine.ledger());
    let expected = known.stored.map_or(Expected::Absent, |(revision, _)| Expected::Revision(revision));
    let mut batch = vec![TypedRecords::replacement(&ledger, expected)?];
    for item in &changes.put {
        batch.push(TypedRecords::replacement(&QueueItemRecord::of(name, item), any())?);
    }
    for id in &changes.removed {
        let key = item_key(name, id);
        batch.push(RecordChange::delete_if(QUEUE_ITEMS, &*key, any()));
        batch.push(RecordChange::delete_if(QUEUE_PAYLOADS, key, any()));
    }
    for (id, payload) in payloads.into_iter().filter(|(id, _)| known.machine.item(id).is_some()) {
        let record = QueuePayloadRecord { key: item_key(name, &id), payload };
        batch.push(TypedRecords::replacement(&record, any())?);
    }
    let revisions = place.records.write(batch).await?;
    known.stored = revisions.first().map(|revision| (*revision, turn));
    Ok(())
}

/// Removes everything of a queue, in steps that fit into a batch.
async fn clear(place: &Place, name: &str, known: &mut Known) -> Result<(), QueueError> {
    // The ledger comes last, so that a queue that was cleared partially still matches its remaining items.
    for items in all_items(place, name).await?.chunks(1_000) {
        let any = || Expected::AbsentOr(Condition::All);
        let removed = items.iter().flat_map(|item| {
            let key = item_key(name, &item.id);
            [RecordChange::delete_if(QUEUE_ITEMS, &*key, any()), RecordChange::delete_if(QUEUE_PAYLOADS, key, any())]
        });
        place.records.write(removed.collect()).await?;
    }
    place.records.write(vec![RecordChange::delete_if(QUEUE_LEDGERS, name, Expected::AbsentOr(Condition::All))]).await?;
    *known = Known { machine: Machine::default(), stored: None };
    Ok(())
}
