//! Finds a page by the best of several plans, which only reading can tell.
//!
//! A text search for a rare word is best answered by reading and sorting the records that have it; one for a frequent word by reading
//! records in the order of the sort until enough of them have it. The same holds for a condition of which any of several parts must hold.
//! If no index has the order of the sort, all records are read instead: the parts together may have more entries than there are records.
//!
//! No statistics say which it is, so the plans race, with as many places for each as for the others, twice as many in each round. A plan
//! whose records must all be read and sorted first counts its entries, which costs little; once it has counted them all, no other plan has
//! read more places than that, and it reads them. All records are not counted first, because that would read them. So a page takes about
//! twice what the best plan alone would take, at most.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use annals_core::{Matcher, RecordError, RecordQuery, StoreError};

use super::cursor::Position;
use super::find::let_others_run;
use super::plan::{Ordered, Plan};
use super::scan::{Candidate, Examined, Scan};
use super::value;
use super::wanted::{Common, Found, Taken, Wanted};
use super::write::ID_INDEX;
use crate::engine::View;

/// A snapshot of the map.
type Snapshot<'v> = &'v (dyn View + Send + Sync);

/// The number of places of each plan that are counted first.
const COUNTED_FIRST: u64 = 64;
/// To count at most so many records, plans are compared up to this multiple of places.
const COUNTED_PER_RECORD: u64 = 16;

/// A page that is looked for.
pub(super) struct Sought<'q> {
    pub(super) collection: u32,
    pub(super) query: &'q RecordQuery,
    pub(super) matcher: &'q Matcher,
    /// The end of the previous page.
    pub(super) after: Option<&'q Position>,
    /// Whether the stored documents of the page are kept if records come in order, so that they need not be read again.
    pub(super) keeps_stored: bool,
}

/// What the search for a page found, and how.
pub(super) struct Looked {
    /// The records of the page, and one more if another page follows.
    pub(super) found: Vec<Found>,
    /// The names of the indexes of the plan that found it.
    pub(super) names: Option<String>,
    /// How a cursor identifies what was read.
    pub(super) source: u32,
    pub(super) ordered: Ordered,
    /// What was read, by all plans together.
    pub(super) examined: Examined,
}

/// Finds a page by one of these plans. Those that do not come in order are first.
pub(super) async fn look(view: Snapshot<'_>, mut plans: Vec<Plan>, sought: &Sought<'_>) -> Result<Looked, RecordError> {
    // If the previous page was sorted, so is this one: another plan would have to read what precedes the page once more.
    if sought.after.is_some_and(|after| after.place.is_none()) && plans[0].ordered == Ordered::No {
        plans.retain(|plan| plan.ordered == Ordered::No);
    }
    let counts = plans.len() > 1;
    let mut attempts: Vec<_> = plans.into_iter().map(|plan| Attempt::new(plan, sought, counts)).collect();
    let mut places = if counts { sought.query.limit as u64 + 1 } else { u64::MAX };
    let best = 'race: loop {
        for (n, attempt) in attempts.iter_mut().enumerate() {
            if attempt.advance(view, places).await? {
                break 'race n;
            }
        }
        places = places.saturating_mul(2);
    };
    let examined = attempts.iter().map(Attempt::examined).fold(Examined::default(), Examined::and);
    let best = attempts.swap_remove(best);
    Ok(Looked {
        found: best.taken.into_sorted(),
        names: best.names,
        source: best.source,
        ordered: best.ordered,
        examined,
    })
}

/// Returns the names of the indexes of a plan, or `None` if all documents are read.
fn names(plan: &Plan) -> Option<String> {
    let by_id = |plan: &Plan| plan.narrow.then(|| ID_INDEX.to_owned());
    let name = |plan: &Plan| plan.index.as_ref().map(|known| known.index.name().to_owned()).or_else(|| by_id(plan));
    let names: BTreeSet<_> = std::iter::once(plan).chain(&plan.united).filter_map(name).collect();
    (!names.is_empty()).then(|| names.into_iter().collect::<Vec<_>>().join(", "))
}

/// One of the plans for a page.
struct Attempt<'q> {
    names: Option<String>,
    /// The number of the index, or 0 for the documents.
    source: u32,
    ordered: Ordered,
    /// If entries are counted before their records are read: the scan that counts them.
    counting: Option<Counting>,
    /// What was read in order to count.
    counted: Examined,
    scan: Scan,
    /// The number of places that were read.
    read: u64,
    wanted: Wanted<'q>,
    limit: usize,
    taken: Taken,
}

/// Counts the places of a plan, a piece at a time.
struct Counting {
    scan: Scan,
    count: u64,
}

impl Counting {
    fn new(plan: &Plan, collection: u32) -> Self {
        Self { scan: Scan::new(plan.clone(), collection), count: 0 }
    }

    /// Continues to count, up to `at_most` in total. Returns whether these are all.
    async fn up_to(&mut self, view: Snapshot<'_>, at_most: u64) -> Result<bool, StoreError> {
        while !self.scan.count(view, &mut self.count, at_most)? {
            let_others_run().await;
        }
        Ok(self.count < at_most)
    }
}

impl<'q> Attempt<'q> {
    fn new(plan: Plan, sought: &Sought<'q>, counts: bool) -> Self {
        let Sought { collection, query, matcher, after, keeps_stored } = *sought;
        let (ordered, names, start) = (plan.ordered, names(&plan), plan.prefix.len());
        let source = plan.index.as_ref().map_or(0, |known| known.id);
        let common = match (ordered, &plan.index) {
            (Ordered::First { of_index, .. }, Some(known)) => Some(Common { known: known.clone(), of_index, start }),
            _ => None,
        };
        let matcher = (!plan.exact).then_some(matcher);
        let counting = (counts && ordered == Ordered::No && plan.narrow).then(|| Counting::new(&plan, collection));
        let mut scan = Scan::new(plan, collection);
        let mut order = after.map(|position| position.order.clone());
        let place = after.and_then(|position| position.place.as_ref());
        if let Some((_, key)) = place.filter(|(found_in, _)| *found_in == source) {
            match ordered {
                Ordered::Wholly => {
                    scan.go_on_after(key);
                    // Everything after this place also follows it in the requested order.
                    order = None;
                }
                Ordered::First { .. } => scan.go_on_with(key),
                Ordered::No => {}
            }
        }
        let taken = match ordered {
            Ordered::Wholly => Taken::First { found: Vec::new(), bytes: 0 },
            Ordered::First { fields, .. } => Taken::Lowest { found: Default::default(), first_fields: fields },
            Ordered::No => Taken::Lowest { found: Default::default(), first_fields: 0 },
        };
        let in_order = ordered == Ordered::Wholly;
        // Records that come in order need no key, unless two fields may lie in different arrays of one of them, which is refused.
        let keeps_order = !in_order || order.is_some() || query.sort.len() > 1;
        let keeps_stored = keeps_stored && in_order;
        let wanted = Wanted { matcher, sort: &query.sort, after: order, common, keeps_stored, keeps_order };
        let (counted, limit) = (Examined::default(), query.limit);
        Self { names, source, ordered, counting, counted, scan, read: 0, wanted, limit, taken }
    }

    /// Continues until `places` places have been read in total. Returns whether the page is complete.
    async fn advance(&mut self, view: Snapshot<'_>, places: u64) -> Result<bool, RecordError> {
        let Some(mut counting) = self.counting.take() else { return self.read(view, places).await };
        let is_all = counting.up_to(view, places).await?;
        self.counted = counting.scan.examined();
        if is_all {
            return self.read(view, u64::MAX).await;
        }
        self.counting = Some(counting);
        Ok(false)
    }

    async fn read(&mut self, view: Snapshot<'_>, places: u64) -> Result<bool, RecordError> {
        let Self { scan, read, wanted, limit, taken, .. } = self;
        while *read < places {
            let room = places - *read;
            let mut left = room;
            let is_over = scan.step(view, &mut left, &mut |candidate| taken.take(wanted, candidate, *limit))?;
            *read += room - left;
            if is_over {
                return Ok(true);
            }
            let_others_run().await;
        }
        Ok(false)
    }

    /// Returns how much was read so far.
    fn examined(&self) -> Examined {
        self.counted.and(self.scan.examined())
    }
}

/// Returns the number of that of several plans which has the fewest places, or of one with at most twice as many. If no more than `at_most`
/// records are needed, plans with many more places than that are not told apart; nor is a single plan counted.
pub(super) async fn smallest(
    view: Snapshot<'_>,
    plans: &[Plan],
    collection: u32,
    at_most: u64,
) -> Result<Option<usize>, StoreError> {
    let enough = at_most.saturating_mul(COUNTED_PER_RECORD);
    if plans.len() > 1 {
        let mut counting: Vec<_> = plans.iter().map(|plan| Counting::new(plan, collection)).collect();
        let mut places = COUNTED_FIRST;
        while places < enough {
            for (n, plan) in counting.iter_mut().enumerate() {
                if plan.up_to(view, places).await? {
                    return Ok(Some(n));
                }
            }
            places = places.saturating_mul(2);
        }
    }
    Ok(None)
}

/// Counts matching records, up to `at_most`, by each of these plans, until one of them is done. A plan with many places may have only few
/// matches among them, so all of them are read side by side.
pub(super) async fn count(
    view: Snapshot<'_>,
    plans: Vec<Plan>,
    collection: u32,
    matcher: &Matcher,
    at_most: u64,
) -> Result<u64, RecordError> {
    let mut places = if plans.len() > 1 { COUNTED_FIRST } else { u64::MAX };
    let mut counts: Vec<_> = plans.into_iter().map(|plan| (Scan::new(plan, collection), 0_u64)).collect();
    loop {
        for (scan, count) in &mut counts {
            let mut visit = |candidate: Candidate| {
                *count += u64::from(matcher.matches(value::parts(&candidate.id, &candidate.stored)?.1));
                Ok::<_, RecordError>(if *count >= at_most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            };
            let mut left = places;
            while left > 0 {
                if scan.step(view, &mut left, &mut visit)? {
                    return Ok(*count);
                }
                let_others_run().await;
            }
        }
        places = places.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU64, Ordering};

    use annals_core::bson::{Bson, rawdoc};
    use annals_core::order::Fields;
    use annals_core::{Condition, Index};

    use super::super::catalog::Catalog;
    use super::super::plan::plans_of_count;
    use super::super::{entries, keys};
    use super::*;
    use crate::engine::{Range, ViewEntries};

    /// A state that counts what is read of it.
    #[derive(Default)]
    struct Map {
        entries: BTreeMap<Vec<u8>, Vec<u8>>,
        read: AtomicU64,
    }

    impl View for Map {
        fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
            self.read.fetch_add(1, Ordering::Relaxed);
            Ok(self.entries.get(key).cloned())
        }

        fn ascending(&self, range: &Range) -> Result<ViewEntries<'_>, StoreError> {
            let found = self.entries.range((range.from.clone(), range.to.clone()));
            Ok(Box::new(found.map(move |(key, value)| {
                self.read.fetch_add(1, Ordering::Relaxed);
                Ok((key.clone(), value.clone()))
            })))
        }

        fn descending(&self, _: &Range) -> Result<ViewEntries<'_>, StoreError> {
            unreachable!("what is counted is read in ascending order");
        }
    }

    #[tokio::test]
    async fn a_bounded_count_does_not_read_a_plan_with_hardly_any_match_to_its_end() {
        const MANY: i32 = 5_000;
        let mut catalog = Catalog::default();
        catalog.add_collection("c");
        catalog.add_index("c", Index::on("a").into());
        catalog.add_index("c", Index::text(["t"]).into());
        let collection = catalog.collection("c").expect("it was added");
        let mut map = Map::default();
        for id in 0..MANY {
            let text = if id < MANY - 200 { "other" } else { "some" };
            let document = rawdoc! { "_id": id, "a": 1, "t": text };
            let key = value::id_key(&Bson::Int32(id)).expect("it is an id");
            map.entries.insert(keys::document(collection.id, &key), value::stored(&key, 1, &document));
            for known in &collection.indexes {
                for entry in entries::entries_of(known, &Fields::of(&document)).expect("it has entries") {
                    let (place, length) = entries::stored(known, &entry, &key);
                    map.entries.insert(place, length.to_vec());
                }
            }
        }
        let condition = Condition::and([Condition::gt("a", 0), Condition::matching_text("some")]);
        let matcher = collection.matcher(&condition).expect("it has a text index");
        for at_most in [1, 10] {
            map.read.store(0, Ordering::Relaxed);
            let plans = plans_of_count(collection, &condition).expect("it has a text index");
            assert_eq!(smallest(&map, &plans, collection.id, at_most).await, Ok(None));
            assert_eq!(count(&map, plans, collection.id, &matcher, at_most).await, Ok(at_most));
            let read = map.read.load(Ordering::Relaxed);
            assert!(read < 1_000, "{read}");
        }
    }
}
