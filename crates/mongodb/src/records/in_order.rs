//! Reads a page whose records an index holds in the order of the sort, but for the order by `_id` among equal ones. If the server were
//! asked for that too, it would read and sort all matches for each page.
//!
//! ```text
//!  sort by (due, _id), 3 a page:   1a 2b 2c │ 2f 4d 4e │ …
//!  asked for by due, one more:     1a 2f 2c 2b           │ as they lie in the index
//!  the last ones are equal, so not all of them may have come: those of due 2 are asked for again, by _id: 2b 2c │ 2f
//! ```
//!
//! So the server sorts only equal records, and those only if they may reach beyond the end of the page. Equal ones that have all come are
//! sorted here.
//!
//! A page after a cursor begins with the rest of the records that are equal to the cursor's, and goes on with ranges of the first fields
//! that differ (`behind.rs`). All requests of a page read the same snapshot.
//!
//! Arrays may break this: one is found by any of its elements, and lies in the order by one of them. So each record is compared with the
//! one before it and with the range that was asked for. If it is not where it should be, the server sorts after all.

use std::collections::VecDeque;

use annals_core::RecordPage;
use annals_core::bson::{Bson, Document, doc};

use super::behind::{at, equals, stretches};
use super::cursor::Position;
use super::find::{Ask, BYTES_MAX, Ended, Found, Reading, Row, sort_of};

/// Records that lie side by side in the order of the sort.
#[derive(Default)]
struct Part {
    /// Selects them among the matches; `None` selects all.
    filter: Option<Document>,
    /// What their places in the order begin with.
    beginning: Vec<u8>,
    /// Whether they are equal in all fields of the sort, so that the server sorts them by `_id`.
    equal: bool,
}

/// How reading a part ended.
enum Went {
    /// All of it was read.
    Through,
    /// The page is full, and there are more records.
    Full,
    /// Not all of the records that are equal to this one may have come. None of them is on the page yet.
    Cut(Position),
    /// A record is not where it should be.
    Astray,
}

impl Reading<'_> {
    /// Reads the page. Returns `None` if records came that are not in this order.
    pub(super) async fn in_order(&mut self) -> Result<Option<RecordPage>, Ended> {
        let mut found = Found::default();
        let mut parts = match self.after {
            None => VecDeque::from([Part::default()]),
            Some(after) => self.parts(after, Some(&after.id)),
        };
        while let Some(part) = parts.pop_front() {
            match self.part(&part, &mut found).await? {
                Went::Through => {}
                Went::Full => break,
                Went::Cut(at) => parts = self.parts(&at, None),
                Went::Astray => return Ok(None),
            }
        }
        Ok(Some(found.page(self.query)?))
    }

    /// Returns the parts from a position on: the records that are equal to it, if `id` is given only those after it, and all that follow.
    fn parts(&self, position: &Position, id: Option<&Bson>) -> VecDeque<Part> {
        let fields = at(&self.query.sort, &position.values);
        let key = |fields| position.key(fields).to_vec();
        let same = Part { filter: Some(equals(&fields, id)), beginning: key(fields.len()), equal: true };
        let further = stretches(&fields).into_iter().map(|stretch| {
            let mut beginning = key(stretch.equal);
            if stretch.typed {
                beginning.extend(position.order.get(beginning.len()));
            }
            Part { filter: Some(stretch.filter), beginning, equal: false }
        });
        std::iter::once(same).chain(further).collect()
    }

    async fn part(&mut self, part: &Part, found: &mut Found) -> Result<Went, Ended> {
        let limit = (self.query.limit - found.len()) as i64 + 1;
        let mut sort = sort_of(&self.query.sort);
        if !part.equal {
            sort.remove("_id");
        }
        let mut filter = self.filter.ask.clone();
        if let Some(part) = &part.filter {
            filter = doc! { "$and": [filter, part.clone()] };
        }
        let mut cursor = self.ask(Ask { filter, sort, limit }).await?;
        // Rows that are equal in the fields, and come in any order.
        let mut rows: Vec<Row> = Vec::new();
        let (mut read, mut bytes) = (0, 0);
        while cursor.advance(&mut self.moment.session).await? {
            read += 1;
            let row = Row::of(self.query, cursor.current())?;
            if !row.position.order.starts_with(&part.beginning) {
                return Ok(Went::Astray);
            }
            if part.equal || rows.first().is_some_and(|first| !self.are_equal(first, &row)) {
                match self.add(&mut rows, found) {
                    Went::Through => bytes = 0,
                    other => return Ok(other),
                }
            }
            if bytes > BYTES_MAX {
                return Ok(self.cut(rows, found));
            }
            bytes += row.given.as_bytes().len();
            rows.push(row);
        }
        if read == limit && !part.equal {
            return Ok(self.cut(rows, found));
        }
        Ok(self.add(&mut rows, found))
    }

    fn are_equal(&self, a: &Row, b: &Row) -> bool {
        let fields = self.query.sort.len();
        a.position.key(fields) == b.position.key(fields)
    }

    /// Leaves out rows of which not all equal ones may have come.
    fn cut(&self, rows: Vec<Row>, found: &mut Found) -> Went {
        if found.is_full(self.query) {
            found.more = true;
            return Went::Full;
        }
        rows.into_iter().next().map_or(Went::Through, |row| Went::Cut(row.position))
    }

    /// Adds rows to the page, of which all equal ones have come.
    fn add(&self, rows: &mut Vec<Row>, found: &mut Found) -> Went {
        rows.sort_unstable_by(|a, b| a.position.order.cmp(&b.position.order));
        for row in rows.drain(..) {
            let before = found.last.as_ref().or(self.after);
            if before.is_some_and(|before| row.position.order <= before.order) {
                return Went::Astray;
            }
            if !found.add(self.query, row) {
                return Went::Full;
            }
        }
        Went::Through
    }
}
