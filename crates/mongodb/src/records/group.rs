//! Groups records. The server does it, unless it cannot evaluate the condition. A page is read at a single point in time.
//!
//! ```text
//! $match the condition ─▶ $group by {k: the key} ─▶ $match after the cursor ─▶ $sort ─▶ $limit
//! ```
//!
//! The key is wrapped in a document, which the server compares as a whole. A bare array would be sorted by its lowest element.

use annals_core::bson::raw::RawDocumentBuf;
use annals_core::bson::{Bson, DateTime, Document, doc};
use annals_core::{
    Every, Figure, Group, GroupPage, GroupQuery, Grouping, Invalid, RecordError, StoreError, decimals_not_summed,
    limits,
};
use mongodb::Database;
use mongodb::error::Error;

use super::document;
use super::filter::{Filter, visible};
use super::find::refused;
use crate::moment::{Moment, Tries};

/// Returns a page of groups.
pub(super) async fn group(database: &Database, query: &GroupQuery) -> Result<GroupPage, RecordError> {
    let mut tries = Tries::default();
    loop {
        match attempt(database, query).await {
            Err(Ended::Server(error)) if tries.again(&error).await => {}
            Err(Ended::Server(error)) => return Err(refused(&query.condition, &error)),
            Err(Ended::Refused(error)) => return Err(error),
            Ok(page) => return Ok(page),
        }
    }
}

enum Ended {
    Server(Error),
    Refused(RecordError),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Server(error)
    }
}

impl From<Invalid> for Ended {
    fn from(error: Invalid) -> Self {
        Self::Refused(error.into())
    }
}

async fn attempt(database: &Database, query: &GroupQuery) -> Result<GroupPage, Ended> {
    let filter = Filter::of(&query.condition)?;
    let after = query.after_key()?;
    let Moment { database, mut session } = Moment::of(database).await?;
    let records = database.collection::<RawDocumentBuf>(&query.collection);
    if let Some(rest) = filter.rest {
        let mut grouping = Grouping::new(query)?;
        let mut found = records.find(filter.ask).session(&mut session).await?;
        while found.advance(&mut session).await? {
            let given = document::given(found.current());
            if rest.matches(&given) {
                grouping.add(&given);
            }
        }
        return Ok(grouping.page()?);
    }
    let stages = stages(query, filter.ask, after);
    let mut found = records.aggregate(stages).allow_disk_use(true).session(&mut session).await?;
    let (mut page, mut bytes) = (GroupPage::default(), 0);
    while found.advance(&mut session).await? {
        if page.groups.len() == query.limit || bytes > limits::PAGE_BYTES_MAX {
            page.next = page.groups.last().map(|last| query.cursor_after(&last.key));
            break;
        }
        bytes += found.current().as_bytes().len();
        let row = Document::try_from(found.current()).map_err(Error::from);
        page.groups.push(group_of(query, row?)?);
    }
    Ok(page)
}

fn stages(query: &GroupQuery, filter: Document, after: Option<Bson>) -> Vec<Document> {
    let mut group = doc! { "_id": { "k": key(query) }, "n": { "$sum": 1 } };
    for (n, Figure { what, path, .. }) in query.figures.iter().enumerate() {
        group.insert(format!("f{n}"), doc! { format!("${}", what.name()): value(path) });
        if what.of_numbers() {
            let is_decimal = doc! { "$eq": [{ "$type": value(path) }, "decimal"] };
            group.insert(format!("d{n}"), doc! { "$max": is_decimal });
        }
    }
    let mut stages = vec![doc! { "$match": filter }, doc! { "$group": group }];
    if let Some(after) = after {
        stages.push(doc! { "$match": { "_id": { "$gt": { "k": after } } } });
    }
    stages.extend([doc! { "$sort": { "_id": 1 } }, doc! { "$limit": query.limit as i64 + 1 }]);
    stages
}

/// Returns the expression of a record's key.
fn key(query: &GroupQuery) -> Bson {
    let Some(path) = &query.by else { return Bson::Null };
    match query.every {
        // Null, missing and undefined count as the same key.
        None => doc! { "$ifNull": [value(path), Bson::Null] }.into(),
        Some(unit) => {
            let is_date = doc! { "$eq": [{ "$type": value(path) }, "date"] };
            doc! { "$cond": [is_date, beginning(unit, path), Bson::Null] }.into()
        }
    }
}

/// Returns the expression of the start of the time unit that contains a date. `$dateTrunc` refuses dates far from now.
fn beginning(unit: Every, path: &str) -> Document {
    let length = unit.millis();
    let rest = doc! { "$mod": [{ "$toLong": value(path) }, length] };
    let rest = doc! { "$mod": [{ "$add": [rest, length] }, length] };
    let first = DateTime::from_millis(i64::MIN);
    let has_none_before = doc! { "$lt": [value(path), DateTime::from_millis(i64::MIN + length)] };
    doc! { "$cond": [has_none_before, first, { "$subtract": [value(path), rest] }] }
}

/// Returns the expression of the value at a path: null if the path leads through an array.
fn value(path: &str) -> Bson {
    let path = visible(path);
    let above = path.match_indices('.').map(|(end, _)| doc! { "$isArray": [format!("${}", &path[..end])] });
    let above: Vec<Document> = above.collect();
    let value = format!("${path}");
    if above.is_empty() {
        return value.into();
    }
    doc! { "$cond": [{ "$or": above }, Bson::Null, value] }.into()
}

fn group_of(query: &GroupQuery, mut row: Document) -> Result<Group, Ended> {
    let damaged = || Ended::Refused(StoreError::Io("the server did not answer with groups".to_owned()).into());
    let key = row.get_document_mut("_id").ok().and_then(|key| key.remove("k")).ok_or_else(damaged)?;
    let count = row.get("n").and_then(whole).ok_or_else(damaged)?;
    let mut figures = Vec::new();
    for (n, Figure { name, what, .. }) in query.figures.iter().enumerate() {
        if row.get_bool(format!("d{n}")).unwrap_or(false) {
            return Err(decimals_not_summed(name).into());
        }
        let figure = row.remove(format!("f{n}")).ok_or_else(damaged)?;
        // The server sums small numbers as int32; the port always returns int64.
        figures.push(if what.of_numbers() { whole(&figure).map_or(figure, Bson::Int64) } else { figure });
    }
    Ok(Group { key, count: count.unsigned_abs(), figures })
}

fn whole(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(number) => Some((*number).into()),
        Bson::Int64(number) => Some(*number),
        _ => None,
    }
}
