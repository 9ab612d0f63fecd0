//! Finds and counts records. A page is read at a single point in time: a snapshot at majority, from the primary.
//!
//! ```text
//!                       ┌ yes ─▶ in_order.rs: ─ they come as they should ─▶ the page
//! served by an index? ──┤        page by page      │ they do not
//!                       └ no ──▶ the server sorts ◀┘
//! ```

use annals_core::bson::raw::{RawDocument, RawDocumentBuf};
use annals_core::bson::{Bson, Document, doc};
use annals_core::order::{self, Direction, document_keys};
use annals_core::{
    Code, Collection, Condition, Invalid, Record, RecordError, RecordPage, RecordQuery, Revision, SortBy, StoreError,
    limits, no_text_index,
};
use mongodb::error::Error;
use mongodb::{Database, SessionCursor};

use super::behind::{at, behind};
use super::cursor::{self, Position};
use super::document::{self, OWN};
use super::filter::{Filter, visible};
use super::served::is_served;
use crate::layout::fields::inner;
use crate::moment::{Moment, Tries};
use crate::refused::{code_of, message_of, reading};

/// Maximum bytes of a page's records, which the last record may exceed.
pub(super) const BYTES_MAX: usize = limits::PAGE_BYTES_MAX;

/// Reads a page of records of a collection with this declaration.
pub(super) async fn find(
    database: &Database,
    query: &RecordQuery,
    declared: &Collection,
) -> Result<RecordPage, RecordError> {
    page(database, query, Some(declared)).await.map(|(page, _)| page)
}

/// Reads a page of records of a collection, which may have a declaration. Returns also what the server was asked.
pub(super) async fn page(
    database: &Database,
    query: &RecordQuery,
    declared: Option<&Collection>,
) -> Result<(RecordPage, Vec<Ask>), RecordError> {
    let after = query.after.as_ref().map(|text| cursor::read(query, text)).transpose()?;
    let served = declared.is_some_and(|declared| is_served(declared, &query.condition, &query.sort));
    let mut tries = Tries::default();
    loop {
        let mut reading = Reading::begin(database, query, after.as_ref()).await?;
        match reading.page(served).await {
            Err(Ended::Server(error)) if tries.again(&error).await => {}
            Err(Ended::Server(error)) => return Err(refused(&query.condition, &error)),
            Err(Ended::Refused(error)) => return Err(error),
            Ok(page) => return Ok((page, reading.asked)),
        }
    }
}

/// Counts the matching records, up to `at_most`.
pub(super) async fn count(
    database: &Database,
    collection: &str,
    condition: &Condition,
    at_most: u64,
) -> Result<u64, RecordError> {
    // A `$limit` stage does not accept 0.
    let Some(at_most) = i64::try_from(at_most).map_or(Some(i64::MAX), |at_most| (at_most > 0).then_some(at_most))
    else {
        return Ok(0);
    };
    let mut tries = Tries::default();
    loop {
        match counted(database, collection, Filter::of(condition)?, at_most).await {
            Err(error) if tries.again(&error).await => {}
            other => return other.map_err(|error| refused(condition, &error)),
        }
    }
}

async fn counted(database: &Database, collection: &str, filter: Filter, at_most: i64) -> mongodb::error::Result<u64> {
    let Moment { database, mut session } = Moment::of(database).await?;
    let records = database.collection::<RawDocumentBuf>(collection);
    if let Some(rest) = filter.rest {
        let mut found = records.find(filter.ask).session(&mut session).await?;
        let mut count = 0;
        while count < at_most.unsigned_abs() && found.advance(&mut session).await? {
            count += u64::from(rest.matches(&document::given(found.current())));
        }
        return Ok(count);
    }
    let mut stages = vec![doc! { "$match": filter.ask }, doc! { "$count": "n" }];
    if at_most < i64::MAX {
        stages.insert(1, doc! { "$limit": at_most });
    }
    let mut found = records.aggregate(stages).session(&mut session).await?;
    let counted = if found.advance(&mut session).await? { found.deserialize_current()? } else { Document::new() };
    Ok(counted.get("n").and_then(|n| n.as_i64().or_else(|| n.as_i32().map(i64::from))).unwrap_or(0).unsigned_abs())
}

/// Converts the server's error about a query that it refused into an error of the query.
pub(super) fn refused(condition: &Condition, error: &Error) -> RecordError {
    const BAD_VALUE: i32 = 2;
    const FAILED_TO_PARSE: i32 = 9;
    const TYPE_MISMATCH: i32 = 14;
    const INDEX_NOT_FOUND: i32 = 27;
    let message = message_of(error);
    match code_of(error) {
        Some(INDEX_NOT_FOUND) => {
            return no_text_index().into();
        }
        Some(BAD_VALUE | FAILED_TO_PARSE | TYPE_MISMATCH) if condition.judgeable().is_err() => {
            return Invalid::new(Code::InvalidCondition, "condition", format!("RAW: {message}")).into();
        }
        _ => {}
    }
    if message.contains("parallel arrays") {
        let message =
            "two of its fields lie in different arrays of at least one record, so the result cannot be sorted by both";
        return Invalid::new(Code::InvalidQuery, "sort", message.to_owned()).into();
    }
    reading(error).into()
}

/// Why a page was not read.
pub(super) enum Ended {
    Server(Error),
    Refused(RecordError),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Server(error)
    }
}

impl From<StoreError> for Ended {
    fn from(error: StoreError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<Invalid> for Ended {
    fn from(error: Invalid) -> Self {
        Self::Refused(error.into())
    }
}

/// A request to the server for records.
pub(super) struct Ask {
    pub(super) filter: Document,
    pub(super) sort: Document,
    /// 0 means all.
    pub(super) limit: i64,
}

/// A page that is being read.
pub(super) struct Reading<'a> {
    pub(super) moment: Moment,
    pub(super) query: &'a RecordQuery,
    pub(super) after: Option<&'a Position>,
    /// The filter of the condition.
    pub(super) filter: Filter,
    /// What the server was asked.
    asked: Vec<Ask>,
}

/// The records found so far.
#[derive(Default)]
pub(super) struct Found {
    page: RecordPage,
    bytes: usize,
    pub(super) last: Option<Position>,
    pub(super) more: bool,
}

/// A record that was found.
pub(super) struct Row {
    pub(super) given: RawDocumentBuf,
    revision: Revision,
    pub(super) position: Position,
}

impl Row {
    /// Creates it from what the server sent, the original document, and its position in the sort order.
    fn new(
        query: &RecordQuery,
        stored: &RawDocument,
        given: RawDocumentBuf,
        order: Vec<u8>,
    ) -> Result<Self, StoreError> {
        let position = Position { order, values: values(query, stored)?, id: document::owned_id(stored) };
        Ok(Self { given, revision: document::revision_of(stored), position })
    }

    /// Reads what the server sent.
    pub(super) fn of(query: &RecordQuery, stored: &RawDocument) -> Result<Self, Ended> {
        let given = document::given(stored);
        let order = order_of(&query.sort, &given)?;
        Ok(Self::new(query, stored, given, order)?)
    }
}

impl Found {
    pub(super) fn len(&self) -> usize {
        self.page.records.len()
    }

    pub(super) fn is_full(&self, query: &RecordQuery) -> bool {
        self.len() == query.limit || self.bytes > BYTES_MAX
    }

    /// Adds a record. Returns false if the page was full, which then is known not to be the last one.
    pub(super) fn add(&mut self, query: &RecordQuery, row: Row) -> bool {
        if self.is_full(query) {
            self.more = true;
            return false;
        }
        self.bytes += row.given.as_bytes().len();
        self.page.records.push(Record { document: query.projection.of(&row.given), revision: row.revision });
        self.last = Some(row.position);
        true
    }

    /// Returns the page, with a cursor if there are more records.
    pub(super) fn page(self, query: &RecordQuery) -> Result<RecordPage, Invalid> {
        let Self { mut page, last, more, .. } = self;
        if let Some(last) = last.filter(|_| more) {
            page.next = Some(cursor::write(query, last)?);
        }
        Ok(page)
    }
}

impl<'a> Reading<'a> {
    async fn begin(
        database: &Database,
        query: &'a RecordQuery,
        after: Option<&'a Position>,
    ) -> Result<Self, RecordError> {
        let moment = Moment::of(database).await.map_err(|error| reading(&error))?;
        let filter = Filter::of(&query.condition)?;
        Ok(Self { moment, query, after, filter, asked: Vec::new() })
    }

    /// Reads the first records after the position, and one more to know whether there are more. The server gets a limit, so that it need
    /// not sort everything; records that match its filter and are not after the position come first.
    async fn page(&mut self, served: bool) -> Result<RecordPage, Ended> {
        if served
            && self.filter.rest.is_none()
            && let Some(page) = self.in_order().await?
        {
            return Ok(page);
        }
        let mut wanted = self.query.limit as i64 + 1;
        loop {
            let limit = if self.filter.rest.is_some() { 0 } else { wanted };
            let (found, read) = self.read(limit).await?;
            if found.more || limit == 0 || read < limit {
                return Ok(found.page(self.query)?);
            }
            wanted *= 8;
        }
    }

    async fn read(&mut self, limit: i64) -> Result<(Found, i64), Ended> {
        let mut filter = self.filter.ask.clone();
        if let Some(after) = self.after {
            filter = doc! { "$and": [filter, behind(&at(&self.query.sort, &after.values), &after.id)] };
        }
        let mut cursor = self.ask(Ask { filter, sort: sort_of(&self.query.sort), limit }).await?;
        let (mut found, mut read) = (Found::default(), 0);
        while cursor.advance(&mut self.moment.session).await? {
            read += 1;
            let stored = cursor.current();
            let given = document::given(stored);
            if self.filter.rest.as_ref().is_some_and(|rest| !rest.matches(&given)) {
                continue;
            }
            let order = order_of(&self.query.sort, &given)?;
            if self.after.is_some_and(|after| order <= after.order) {
                continue;
            }
            if !found.add(self.query, Row::new(self.query, stored, given, order)?) {
                break;
            }
        }
        Ok((found, read))
    }

    /// Sends a request.
    pub(super) async fn ask(&mut self, ask: Ask) -> Result<SessionCursor<RawDocumentBuf>, Error> {
        let Moment { database, session } = &mut self.moment;
        let records = database.collection::<RawDocumentBuf>(&self.query.collection);
        let mut find = records.find(ask.filter.clone()).sort(ask.sort.clone()).limit(ask.limit).allow_disk_use(true);
        if !self.query.sort.is_empty() {
            find = find.projection(doc! { SORT_KEY: { "$meta": "sortKey" } });
        }
        self.asked.push(ask);
        find.session(&mut *session).await
    }
}

/// Returns the values by which the server sorted a record.
fn values(query: &RecordQuery, stored: &RawDocument) -> Result<Vec<Bson>, StoreError> {
    let damaged = || StoreError::Io("the server did not say what it sorts by".to_owned());
    if query.sort.is_empty() {
        return Ok(Vec::new());
    }
    let key = inner(stored, OWN).and_then(|own| own.get_array("sortKey").ok()).ok_or_else(damaged)?;
    let values = key.into_iter().take(query.sort.len()).map(|value| Bson::try_from(value.ok()?).ok());
    values.collect::<Option<Vec<_>>>().ok_or_else(damaged)
}

/// Where the server puts the sort key: in our own field, which no reader sees.
const SORT_KEY: &str = "_annals.sortKey";

/// Returns the sort of the server: by the fields, then by `_id` in the direction of the last field.
pub(super) fn sort_of(sort: &[SortBy]) -> Document {
    let way = |direction| if direction == Direction::Descending { -1_i32 } else { 1 };
    let mut out: Document = sort.iter().map(|by| (visible(&by.path), way(by.direction).into())).collect();
    if !out.contains_key("_id") {
        out.insert("_id", sort.last().map_or(1, |by| way(by.direction)));
    }
    out
}

/// Returns the position of a record in a sort order: its sort keys, then its id.
fn order_of(sort: &[SortBy], document: &RawDocument) -> Result<Vec<u8>, Invalid> {
    let paths: Vec<_> = sort.iter().map(|by| (by.path.as_str(), by.direction)).collect();
    let (keys, _) = document_keys(document, &paths).map_err(|error| {
        let message = format!("{error} in at least one record, so the result cannot be sorted by both");
        Invalid::new(Code::InvalidQuery, "sort", message)
    })?;
    let mut place = keys.into_iter().next().unwrap_or_default();
    let start = place.len();
    place.extend_from_slice(&order::encoded(document::id_of(document)));
    if sort.last().is_some_and(|by| by.direction == Direction::Descending) {
        order::invert(&mut place[start..]);
    }
    Ok(place)
}
