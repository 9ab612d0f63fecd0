//! Grouping records one at a time, with bounded memory.

use std::collections::BTreeMap;

use bson::raw::RawDocument;
use bson::{Bson, Document, RawBson, RawBsonRef, doc};

use super::figures::Running;
use super::{Every, Group, GroupPage, GroupQuery, decimals_not_summed};
use crate::order::encoded;
use crate::{Cursor, Invalid, limits};

/// Groups records that are added one at a time.
///
/// It holds the lowest keys only, limited to the groups and bytes of one page. INVARIANT: once a key is dropped, neither it nor any higher
/// key is added again, so the figures of the remaining groups cover all of their records.
pub struct Grouping<'q> {
    query: &'q GroupQuery,
    after: Option<Vec<u8>>,
    groups: BTreeMap<Vec<u8>, Held>,
    bytes: usize,
    /// The lowest dropped key.
    dropped: Option<Vec<u8>>,
}

struct Held {
    key: Bson,
    count: u64,
    figures: Vec<Running>,
}

impl Held {
    fn bytes(&self, order: &[u8]) -> usize {
        size_of::<Self>() + 3 * order.len() + self.figures.iter().map(Running::bytes).sum::<usize>()
    }
}

impl<'q> Grouping<'q> {
    /// Starts grouping for this valid query.
    ///
    /// # Errors
    /// `invalid_query` if its cursor belongs to another query.
    pub fn new(query: &'q GroupQuery) -> Result<Self, Invalid> {
        let after = query.after_key()?.map(|key| order_of(&key));
        Ok(Self { query, after, groups: BTreeMap::new(), bytes: 0, dropped: None })
    }

    /// Adds a record that matches the query's condition.
    pub fn add(&mut self, document: &RawDocument) {
        let value = self.query.by.as_deref().map_or(RawBsonRef::Null, |path| value_at(document, path));
        let key = match (self.query.every, value) {
            (_, RawBsonRef::Undefined) => RawBsonRef::Null,
            (None, value) => value,
            (Some(unit), RawBsonRef::DateTime(date)) => RawBsonRef::DateTime(beginning(unit, date)),
            (Some(_), _) => RawBsonRef::Null,
        };
        let order = encoded(key);
        let is_above = self.dropped.as_ref().is_some_and(|dropped| order >= *dropped);
        if is_above || self.after.as_ref().is_some_and(|after| order <= *after) {
            return;
        }
        if let Some(held) = self.groups.get(&order) {
            self.bytes -= held.bytes(&order);
        }
        let held = self.groups.entry(order.clone()).or_insert_with(|| Held {
            key: Bson::try_from(key).unwrap_or(Bson::Null),
            count: 0,
            figures: self.query.figures.iter().map(|figure| Running::new(figure.what)).collect(),
        });
        held.count += 1;
        for (running, figure) in held.figures.iter_mut().zip(&self.query.figures) {
            running.add(value_at(document, &figure.path));
        }
        self.bytes += held.bytes(&order);
        while self.groups.len() > self.query.limit || (self.bytes > limits::PAGE_BYTES_MAX && self.groups.len() > 1) {
            let Some((order, held)) = self.groups.pop_last() else { return };
            self.bytes -= held.bytes(&order);
            self.dropped = Some(order);
        }
    }

    /// Returns the page of the groups.
    ///
    /// # Errors
    /// `invalid_query` if a sum or average would include a Decimal128.
    pub fn page(self) -> Result<GroupPage, Invalid> {
        let mut page = GroupPage::default();
        for held in self.groups.into_values() {
            let figures = held.figures.into_iter().zip(&self.query.figures);
            let figures =
                figures.map(|(running, figure)| running.finish().ok_or_else(|| decimals_not_summed(&figure.name)));
            page.groups.push(Group { key: held.key, count: held.count, figures: figures.collect::<Result<_, _>>()? });
        }
        if self.dropped.is_some() {
            page.next = page.groups.last().map(|last| self.query.cursor_after(&last.key));
        }
        Ok(page)
    }
}

/// Returns the value at a path that leads through documents only; null if there is none.
fn value_at<'d>(document: &'d RawDocument, path: &str) -> RawBsonRef<'d> {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    match (document.get(name).ok().flatten(), rest) {
        (Some(value), None) => value,
        (Some(RawBsonRef::Document(inner)), Some(rest)) => value_at(inner, rest),
        _ => RawBsonRef::Null,
    }
}

fn beginning(unit: Every, date: bson::DateTime) -> bson::DateTime {
    let millis = date.timestamp_millis();
    bson::DateTime::from_millis(millis.saturating_sub(millis.rem_euclid(unit.millis())))
}

fn order_of(key: &Bson) -> Vec<u8> {
    RawBson::try_from(key.clone()).map_or_else(|_| Vec::new(), |key| encoded(key.as_raw_bson_ref()))
}

/// Encodes a cursor: a document in hexadecimal, `{of: the query's fingerprint, key}`.
pub(super) fn write_cursor(query: &GroupQuery, key: &Bson) -> Cursor {
    let bytes = doc! { "of": fingerprint(query), "key": key.clone() }.to_vec().unwrap_or_default();
    Cursor::new(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

pub(super) fn read_cursor(query: &GroupQuery, text: &str) -> Option<Bson> {
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Vec<u8> = pairs.map(byte).collect::<Option<_>>()?;
    let document = Document::try_from(RawDocument::from_bytes(&bytes).ok()?).ok()?;
    (document.get_i64("of").ok()? == fingerprint(query)).then(|| document.get("key").cloned())?
}

/// Identifies a query, so that the cursor of one is not accepted for another.
fn fingerprint(query: &GroupQuery) -> i64 {
    let GroupQuery { collection, condition, by, every, .. } = query;
    let asked = format!("{collection}\0{condition:?}\0{by:?}\0{every:?}");
    // FNV-1a, which is the same in every process.
    let hash = asked
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Aggregation;

    fn grouped(query: &GroupQuery, documents: &[Document]) -> GroupPage {
        let mut grouping = Grouping::new(query).expect("its cursor");
        for document in documents {
            grouping.add(&bson::RawDocumentBuf::try_from(document).expect("a document"));
        }
        grouping.page().expect("no decimals")
    }

    #[test]
    fn a_page_holds_the_lowest_keys_with_all_their_records_whatever_the_order_they_come_in() {
        let query = GroupQuery::new("c").by("k").figure("n", Aggregation::Sum, "n").limit(3);
        let documents: Vec<Document> = (0..1_000).map(|n| doc! { "k": (n * 7_919) % 100, "n": 1 }).collect();
        let (mut keys, mut query) = (Vec::new(), query);
        loop {
            let page = grouped(&query, &documents);
            for group in &page.groups {
                assert_eq!((group.count, &group.figures), (10, &vec![Bson::Int64(10)]), "{group:?}");
                keys.push(group.key.as_i32().expect("a number"));
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        assert_eq!(keys, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn groups_that_hold_too_many_bytes_end_the_page_early_and_none_is_lost() {
        let large = "x".repeat(1024 * 1024);
        let documents: Vec<Document> = (0..40).map(|n| doc! { "k": 39 - n, "t": &large }).collect();
        let mut query = GroupQuery::new("c").by("k").figure("t", Aggregation::Max, "t");
        let (mut count, mut pages) = (0, 0);
        loop {
            let page = grouped(&query, &documents);
            count += page.groups.len();
            pages += 1;
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        assert_eq!(count, 40);
        assert!((3..20).contains(&pages), "{pages}");
    }

    #[test]
    fn a_cursor_of_another_query_is_refused() {
        let query = GroupQuery::new("c").by("k");
        let cursor = query.cursor_after(&Bson::Int32(5));
        assert_eq!(query.clone().after(cursor.clone()).after_key(), Ok(Some(Bson::Int32(5))));
        assert!(query.clone().by("other").after(cursor).after_key().is_err());
        for wrong in ["", "x", "00", "é1"] {
            assert!(query.clone().after(Cursor::new(wrong)).after_key().is_err(), "{wrong}");
        }
    }
}
