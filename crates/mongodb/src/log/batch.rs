//! Sends one bulk insert and determines the outcome of each document: stored, refused, or unknown if it could not be found out.
//!
//! INVARIANT: an unknown outcome is never guessed. After an error that leaves it open (a broken connection, a primary that steps down, a
//! failed write concern) the same documents are sent again. They have ids, so none is stored twice, and the majority acknowledgement of
//! the second attempt covers the first. A document refused as a duplicate is looked up by its id with read concern majority, in the
//! session of the insert. This distinguishes it from its own first attempt, and makes sure that the other document is durable.
//!
//! An insert waits while another, uncommitted transaction has written a conflicting value of a unique index, and MongoDB responds only to
//! a command as a whole. So each command has a limit (`maxTimeMS`). When it expires, the documents that a majority has stored are looked
//! up, and the others are returned to the lane, which sends them again (`blocked.rs`).

use std::collections::HashSet;
use std::time::Duration;

use annals_system::{Instant, sleep};
use mongodb::bson::{Document, RawDocument, RawDocumentBuf, doc};
use mongodb::error::Error;
use mongodb::{ClientSession, Database};
use uuid::Uuid;

use super::bulk::Insert;
use crate::answers::no_answer;
use crate::layout::fields::{inner, integer, text};
use crate::layout::writer::Writer;
use crate::refused::{COLLECTION_UUID_MISMATCH, code_of, is_garbled, message_of};

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// Time limit of a command in the server. It is far more than 512 documents take, and far less than a caller waits. Documents stored by
/// then stay stored, so a server that is merely slow loses little.
const LIMIT: Duration = Duration::from_millis(500);

const DUPLICATE_KEY: i64 = 11000;
/// The command or its write concern exceeded its limit.
const LIMIT_EXPIRED: i64 = 50;
const REPLACED: i64 = COLLECTION_UUID_MISMATCH as i64;

/// The outcome of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is stored by a majority and journaled.
    Stored,
    /// Another document has the same values in a unique index, with these fields; empty if they are not known. If they are known, that
    /// document is durable.
    Duplicate(Vec<String>),
    /// The server refuses it, for this reason.
    Refused(String),
    /// It may or may not be stored.
    Unknown(String),
    /// It was pending for too long and was not sent: nothing of it is stored.
    NotSent,
    /// Its collection was dropped or renamed: nothing of it is stored.
    Replaced,
}

/// What is known about a document. `None` means that it is not stored, because the limit expired first.
pub(super) type Known = Option<Outcome>;

/// Sends a batch until every outcome is known or the time is up. A server that is cut off from the majority may never respond.
pub(super) async fn send(database: &Database, collection: &str, inserts: &[Insert], time: Duration) -> Vec<Known> {
    let ends = Instant::now() + time;
    let mut known = vec![Some(Outcome::Unknown("it was not sent".to_owned())); inserts.len()];
    let mut open: Vec<usize> = (0..inserts.len()).collect();
    // A document sent before was only not stored at the time of the look-up: a router may have given up earlier than its shard.
    let mut first = inserts.iter().all(|insert| !insert.sent);
    loop {
        let trying = attempt(database, collection, inserts, &open, first, &mut known);
        if ends.limit(trying).await.is_none() {
            let silent = |place: &&usize| !matches!(known[**place], Some(Outcome::Stored | Outcome::Refused(_)));
            for place in open.iter().filter(silent).copied().collect::<Vec<_>>() {
                known[place] = Some(Outcome::Unknown(no_answer(time)));
            }
        }
        first = false;
        open.retain(|place| matches!(known[*place], Some(Outcome::Unknown(_))));
        if open.is_empty() || Instant::now() >= ends {
            return known;
        }
        tracing::warn!(collection, open = open.len(), why = ?known[open[0]], "outcomes are unknown; trying again");
        sleep(PAUSE).await;
    }
}

async fn attempt(
    database: &Database,
    collection: &str,
    inserts: &[Insert],
    open: &[usize],
    first: bool,
    known: &mut [Known],
) {
    let mut give_all = |outcome: Known| open.iter().for_each(|place| known[*place] = outcome.clone());
    let mut session = match database.client().start_session().causal_consistency(true).await {
        Ok(session) => session,
        Err(error) => return give_all(Some(Outcome::Unknown(message_of(&error)))),
    };
    // Earlier inserts may name a collection that is gone. If the newest one does too, the outcome is the same for all.
    let into = inserts.iter().last().map(|last| last.into).unwrap_or_default();
    let command = match command(collection, into, open.iter().map(|place| &*inserts[*place].document)) {
        Ok(command) => command,
        Err(error) => return give_all(Some(Outcome::Refused(error.to_string()))),
    };
    let answer = database.run_raw_command(command).session(&mut session).await;
    let unconfirmed = match answer.and_then(|answer| Ok(RawDocumentBuf::try_from(&answer)?)) {
        Ok(answer) => {
            let concern = inner(&answer, "writeConcernError");
            let late = concern.is_some_and(|concern| integer(concern, "code") == Some(LIMIT_EXPIRED));
            // Without a majority, nothing in the response is durable, not even its refusals. If the majority is merely late, the look-up
            // decides: it waits until the majority has everything that the response relies on.
            if let Some(concern) = concern.filter(|_| !late) {
                let why = text(concern, "errmsg").unwrap_or("the write concern failed").to_owned();
                return give_all(Some(Outcome::Unknown(why)));
            }
            give_all(if late { None } else { Some(Outcome::Stored) });
            read_write_errors(&answer, open, first, known);
            let rests = |place: &usize| matches!(known[*place], None | Some(Outcome::Duplicate(_)));
            open.iter().copied().filter(rests).collect()
        }
        Err(error) if code_of(&error).map(i64::from) == Some(LIMIT_EXPIRED) => {
            give_all(None);
            open.to_vec()
        }
        Err(error) if is_garbled(&error) => {
            return told_apart(database, collection, inserts, open, &mut session, known).await;
        }
        Err(error) if first && code_of(&error) == Some(COLLECTION_UUID_MISMATCH) => {
            return give_all(Some(Outcome::Replaced));
        }
        // A later attempt may be refused although the first one stored the document.
        Err(error) if first && is_refusal(&error) => return give_all(Some(Outcome::Refused(message_of(&error)))),
        Err(error) => return give_all(Some(Outcome::Unknown(message_of(&error)))),
    };
    confirm(database, collection, inserts, unconfirmed, first, &mut session, known).await;
}

/// Confirms with a majority read, in the session of the insert, what the server's response leaves open.
async fn confirm(
    database: &Database,
    collection: &str,
    inserts: &[Insert],
    places: Vec<usize>,
    first: bool,
    session: &mut ClientSession,
    known: &mut [Known],
) {
    if places.is_empty() {
        return;
    }
    let ids: Vec<&str> = places.iter().map(|place| &*inserts[*place].id).collect();
    let stored = stored_ids(database, collection, &ids, session).await;
    for place in places {
        let is_stored = match &stored {
            Ok(stored) => stored.contains(&inserts[place].id),
            Err(error) => {
                known[place] = Some(Outcome::Unknown(message_of(error)));
                continue;
            }
        };
        known[place] = match known[place].take() {
            None if is_stored => Some(Outcome::Stored),
            // Before the first attempt none of our documents was there, so an existing id belongs to another document.
            Some(Outcome::Duplicate(_)) if is_stored && !first => Some(Outcome::Stored),
            other => other,
        };
    }
}

fn command<'a>(
    collection: &str,
    into: Uuid,
    documents: impl Iterator<Item = &'a [u8]> + Clone,
) -> Result<RawDocumentBuf, mongodb::bson::error::Error> {
    let bytes: usize = documents.clone().map(|document| document.len() + 8).sum();
    let mut command = Writer::with_capacity(bytes + 200);
    command.text("insert", collection);
    command.array("documents", |array| {
        for (place, document) in documents.enumerate() {
            array.whole(&place.to_string(), document);
        }
    });
    command.boolean("ordered", false);
    command.uuid("collectionUUID", into);
    command.int64("maxTimeMS", LIMIT.as_millis() as i64);
    command.document("writeConcern", |concern| {
        concern.text("w", "majority");
        concern.boolean("j", true);
    });
    command.raw()
}

/// Returns whether the server refused the whole command before doing anything, for a reason that a retry does not change.
fn is_refusal(error: &Error) -> bool {
    const LASTING: [i32; 6] = [2, 9, 13, 14, 18, 10334];
    code_of(error).is_some_and(|code| LASTING.contains(&code))
}

/// Returns whether this error of a single document may not recur on a new primary, or on the same one a moment later.
fn is_passing(code: i64) -> bool {
    const PASSING: [i64; 14] = [6, 7, 89, 91, 112, 133, 134, 189, 262, 264, 10107, 11600, 11602, 13435];
    PASSING.contains(&code)
}

fn read_write_errors(answer: &RawDocument, open: &[usize], first: bool, known: &mut [Known]) {
    let Ok(errors) = answer.get_array("writeErrors") else { return };
    for error in errors.into_iter().flatten().filter_map(|error| error.as_document()) {
        let place = integer(error, "index").and_then(|index| open.get(usize::try_from(index).ok()?));
        let Some(place) = place else { continue };
        let message = || text(error, "errmsg").unwrap_or("the server gave no reason").to_owned();
        known[*place] = Some(match integer(error, "code") {
            // A router reports this for each document of a shard.
            Some(LIMIT_EXPIRED) => {
                known[*place] = None;
                continue;
            }
            // Uses the index's fields, never the message: it quotes values, and a value may look like an index name.
            Some(DUPLICATE_KEY) => {
                let keys = inner(error, "keyPattern").map(|keys| keys.iter().flatten());
                Outcome::Duplicate(keys.into_iter().flatten().map(|(key, _)| key.as_str().to_owned()).collect())
            }
            Some(REPLACED) if first => Outcome::Replaced,
            Some(code) if !is_passing(code) && first => Outcome::Refused(message()),
            _ => Outcome::Unknown(message()),
        });
    }
}

/// Determines outcomes after a response that cannot be parsed: a document that is stored now is stored, and any other was refused by an
/// unknown index.
async fn told_apart(
    database: &Database,
    collection: &str,
    inserts: &[Insert],
    open: &[usize],
    session: &mut ClientSession,
    known: &mut [Known],
) {
    let ids: Vec<&str> = open.iter().map(|place| &*inserts[*place].id).collect();
    let stored = stored_ids(database, collection, &ids, session).await;
    for place in open {
        known[*place] = Some(match &stored {
            Ok(stored) if stored.contains(&inserts[*place].id) => Outcome::Stored,
            Ok(_) => Outcome::Duplicate(Vec::new()),
            Err(error) => Outcome::Unknown(message_of(error)),
        });
    }
}

/// Returns the outcome of a single document inserted in a transaction. Temporary errors are left to the caller, which retries the
/// transaction.
pub(super) fn judged(answer: &RawDocument) -> Outcome {
    let mut known = [Some(Outcome::Stored)];
    read_write_errors(answer, &[0], true, &mut known);
    let [outcome] = known;
    outcome.unwrap_or_else(|| Outcome::Unknown("the server's limit of time has expired".to_owned()))
}

/// Returns which of these ids a majority has stored, after everything that the session has seen.
async fn stored_ids(
    database: &Database,
    collection: &str,
    ids: &[&str],
    session: &mut ClientSession,
) -> mongodb::error::Result<HashSet<String>> {
    let found = database.collection::<Document>(collection);
    let find = found.find(doc! { "_id": { "$in": ids } }).projection(doc! { "_id": 1 });
    let mut cursor = find.session(&mut *session).await?;
    let mut stored = HashSet::new();
    while let Some(document) = cursor.next(session).await.transpose()? {
        stored.extend(document.get_str("_id").map(str::to_owned));
    }
    Ok(stored)
}
