//! The stored position of a log in the change stream.
//!
//! ```text
//! sequencer-state: {_id: "event-log", token, next int64}     moved with the log twice a second at most, and every ten seconds while idle
//!                  next: the number that the next event gets, as of then
//! ```

use annals_core::SequenceNumber;
use mongodb::bson::{Document, doc};
use mongodb::change_stream::event::ResumeToken;
use mongodb::{Client, Database};

use crate::layout::names::{EVENT_LOG, SEQUENCER};

/// A resume token of the change stream, as the server sent it.
pub(super) type Token = Document;

pub(super) fn resume(token: &Token) -> Option<ResumeToken> {
    mongodb::bson::deserialize_from_document(token.clone()).ok()
}

pub(super) fn stored(token: &ResumeToken) -> Option<Token> {
    mongodb::bson::serialize_to_document(token).ok()
}

/// Returns the earlier of two resume tokens of one cluster. MongoDB documents that their `_data` strings can be compared.
pub(super) fn earlier(a: Token, b: Token) -> Token {
    match (a.get_str("_data"), b.get_str("_data")) {
        (Ok(left), Ok(right)) if right < left => b,
        _ => a,
    }
}

pub(super) async fn read(database: &Database) -> mongodb::error::Result<Option<Token>> {
    let state = database.collection::<Document>(SEQUENCER).find_one(doc! { "_id": EVENT_LOG }).await?;
    Ok(state.and_then(|state| state.get_document("token").ok().filter(|token| is_position(token)).cloned()))
}

/// Returns whether a token has the form of a resume token. Any other content must not cause commits to be skipped.
fn is_position(token: &Token) -> bool {
    let text = token.get_str("_data").unwrap_or_default();
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the cluster time of a token in seconds, if its text has one. A token is a hexadecimal string: a type byte for a timestamp, then
/// the seconds.
fn seconds(token: &Token) -> Option<u32> {
    let text = token.get_str("_data").ok()?;
    text.strip_prefix("82").and_then(|rest| u32::from_str_radix(rest.get(..8)?, 16).ok())
}

/// Returns whether a token is later than everything this server has written, as one copied from another cluster may be. The server would
/// wait for that time to come, and return no changes until then.
pub(super) async fn is_ahead(client: &Client, token: &Token) -> mongodb::error::Result<bool> {
    let hello = client.database("admin").run_command(doc! { "hello": 1 }).await?;
    let written = hello.get_document("lastWrite").and_then(|last| last.get_document("opTime"));
    let written = written.and_then(|time| time.get_timestamp("ts")).ok();
    Ok(written.zip(seconds(token)).is_some_and(|(written, position)| position > written.time))
}

pub(super) fn of_log() -> Document {
    doc! { "_id": EVENT_LOG }
}

pub(super) fn set(token: &Token, next: SequenceNumber) -> Document {
    doc! { "$set": { "token": token, "next": next.cast_signed() } }
}

pub(super) async fn save(database: &Database, token: &Token, next: SequenceNumber) -> mongodb::error::Result<()> {
    database.collection::<Document>(SEQUENCER).update_one(of_log(), set(token, next)).upsert(true).await.map(|_| ())
}
