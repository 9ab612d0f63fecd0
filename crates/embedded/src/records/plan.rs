//! Plans where to look for the records that match a condition.
//!
//! The ranges of a plan contain every matching record, and perhaps others, so a scan evaluates the whole condition for each record, unless
//! the plan is exact.
//!
//! One index is chosen by what the condition says about its fields. Words are different: how many records have one depends on the word.
//! A text search therefore has several plans, and reading tells which of them is the best (race.rs). So has a condition of which any of
//! several parts must hold: the records of all these parts together, or those in the order of the sort, or all records if no index has
//! that order.
//!
//! If a field may have one of several values, or a text one of several words, there is a range for each. Each range is in order, and the
//! ranges are merged if that is the order of the sort (merged.rs).

use annals_core::bson::Bson;
use annals_core::order::{Direction, TypeOrder, invert};
use annals_core::{Condition, Invalid, SortBy, Test, TextSearch, has_own_text_entry, text_entry};

use super::catalog::{KnownCollection, KnownIndex};
use super::field::Field;
use super::keys;
use crate::engine::Range;

/// The most ranges of a plan. A condition with more values is looked up by fewer fields.
const RANGES_MAX: usize = 256;

/// A condition that asks for any of more parts is not looked up by them.
const UNITED_MAX: usize = 16;

/// Where to look, and in which direction.
#[derive(Clone)]
pub(super) struct Plan {
    /// `None` for the documents themselves, in the order of their ids.
    pub(super) index: Option<KnownIndex>,
    /// The common prefix of the keys of the documents or entries.
    pub(super) prefix: Vec<u8>,
    /// The ranges in the order in which they are read; they share no key.
    pub(super) ranges: Vec<Range>,
    /// If the ranges are read side by side: the length of the beginning of each one's keys. Places come in the order of what follows it,
    /// and those that agree in that come once.
    pub(super) merged: Option<Vec<usize>>,
    /// Whether the highest key is read first; of merged ranges, that with the highest rest.
    pub(super) descending: bool,
    /// The order in which records come.
    pub(super) ordered: Ordered,
    /// Whether the ranges leave anything out.
    pub(super) narrow: bool,
    /// Whether each place in the ranges belongs to a matching record, and no two places to the same one. Counting places then counts
    /// records.
    pub(super) exact: bool,
    /// Plans whose records are read as well. A record may be found by several of them.
    pub(super) united: Vec<Plan>,
}

/// How far the order of the records agrees with the requested one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ordered {
    /// Not at all.
    No,
    /// By this many of the first fields of the sort; records that are equal in them come in any order.
    First {
        /// The number of fields of the sort.
        fields: usize,
        /// The number of fields of the index that these are, including those before them.
        of_index: usize,
    },
    /// Completely.
    Wholly,
}

/// How well a plan fits: the fields looked up by, then how little needs sorting.
type Fit = (usize, Ordered);

/// The fit of a look-up that finds at most one record, which is better than any other.
const FIT_OF_ONE: usize = 1_000;

/// A plan, and how well it fits.
type Candidate = (Fit, Plan);

/// Returns the plans of which one is to be used: a single one, unless the condition searches for words or asks for any of several parts.
/// Those that do not come in the order of the sort are first.
///
/// The plans of a text search are that of its words, that which fits the rest of the condition best, and one in the order of the sort. A
/// plan that cannot be better than that of the words is left out.
///
/// # Errors
/// `no_text_index` for a text search without a text index.
pub(super) fn plans(
    collection: &KnownCollection,
    condition: &Condition,
    sort: &[SortBy],
) -> Result<Vec<Plan>, Invalid> {
    let text = collection.text_index(condition)?.zip(condition.text_search());
    let parts = parts_of(condition);
    let of_documents = documents(collection, &parts, sort);
    let of_entries = of_indexes(collection, &parts, sort);
    let Some((known, search)) = text else {
        let best = of_entries.fold(of_documents, better).1;
        let union = if best.narrow { None } else { any_of_parts(collection, &parts) };
        return Ok(union.into_iter().chain([best]).collect());
    };
    let words = words(known, &TextSearch::new(search), parts.len() == 1, sort);
    let mut candidates: Vec<_> = std::iter::once(of_documents).chain(of_entries).collect();
    let mut plans: Vec<Plan> = Vec::new();
    if let Some((fit, best)) = take_best(&mut candidates) {
        if fit.0 >= FIT_OF_ONE {
            return Ok(vec![best]);
        }
        if best.ordered == Ordered::No {
            candidates.retain(|(_, plan)| plan.ordered != Ordered::No);
            plans.extend(take_best(&mut candidates).map(|(_, plan)| plan));
        }
        if !best.narrow {
            plans.extend(any_of_parts(collection, &parts));
        }
        plans.push(best);
    }
    // Where the records with the words come in the order of the sort, all records in that order are only more.
    plans.retain(|plan| plan.narrow || plan.ordered != Ordered::No && words.ordered == Ordered::No);
    plans.insert(0, words);
    plans.sort_by_key(|plan| plan.ordered != Ordered::No);
    Ok(plans)
}

/// Returns the plans of all ordered indexes that have an entry for every match.
fn of_indexes(collection: &KnownCollection, parts: &[&Condition], sort: &[SortBy]) -> impl Iterator<Item = Candidate> {
    let usable = collection.indexes.iter().filter(|known| known.index.as_text().is_none());
    let usable = usable.filter(move |known| holds_all_matches(known, parts));
    usable.map(move |known| entries(known, parts, sort))
}

/// Returns the plan for the records of which any of several parts of the condition holds, if each of those parts can be looked up.
fn any_of_parts(collection: &KnownCollection, parts: &[&Condition]) -> Option<Plan> {
    let look_up = |one: &Condition| {
        let all: Vec<_> = parts.iter().copied().chain(parts_of(one)).collect();
        let best = of_indexes(collection, &all, &[]).fold(documents(collection, &all, &[]), better).1;
        best.narrow.then_some(best)
    };
    let any_of = parts.iter().find_map(|part| match part {
        Condition::Or(any_of) if any_of.len() <= UNITED_MAX => any_of.iter().map(look_up).collect::<Option<Vec<_>>>(),
        _ => None,
    });
    let mut united = any_of?;
    let first = united.pop()?;
    Some(Plan { united, ordered: Ordered::No, exact: false, ..first })
}

/// Returns the first of two candidates, unless the second fits better.
fn better(one: Candidate, other: Candidate) -> Candidate {
    if other.0 > one.0 { other } else { one }
}

fn take_best(candidates: &mut Vec<Candidate>) -> Option<Candidate> {
    let better = |best: usize, at: usize| if candidates[at].0 > candidates[best].0 { at } else { best };
    let best = (0..candidates.len()).reduce(better)?;
    Some(candidates.remove(best))
}

/// Returns the plans of which one is to be used for counting. If everything is counted, entries are preferred because they are shorter than
/// documents.
///
/// # Errors
/// As for [`plans`].
pub(super) fn plans_of_count(collection: &KnownCollection, condition: &Condition) -> Result<Vec<Plan>, Invalid> {
    let mut plans = plans(collection, condition, &[])?;
    // Only a record that has several of the words has several entries in what is counted; nothing else is merged without need.
    let is_of_words = |plan: &Plan| plan.index.as_ref().is_some_and(|known| known.index.as_text().is_some());
    plans.iter_mut().filter(|plan| !is_of_words(plan)).for_each(|plan| plan.merged = None);
    if plans.iter().any(|plan| plan.narrow || !plan.exact) {
        return Ok(plans);
    }
    let has_all = |known: &&KnownIndex| known.index.as_text().is_none() && holds_all_matches(known, &[]);
    let mut of_entries = collection.indexes.iter().filter(has_all).map(|known| entries(known, &[], &[]).1);
    Ok(of_entries.find(|plan| plan.exact).map_or(plans, |plan| vec![plan]))
}

/// Returns the plan for the documents of a collection after a key.
pub(super) fn documents_after(collection: u32, key: Vec<u8>) -> Plan {
    let prefix = keys::documents(collection);
    let range = Range { from: std::ops::Bound::Excluded(key), to: Range::prefix(&prefix).to };
    Plan {
        index: None,
        prefix,
        ranges: vec![range],
        merged: None,
        descending: false,
        ordered: Ordered::No,
        narrow: true,
        exact: false,
        united: Vec::new(),
    }
}

/// Returns the plan for the entries of all words of which a record must have at least one. `alone`: the condition has no other part.
fn words(known: &KnownIndex, search: &TextSearch, alone: bool, sort: &[SortBy]) -> Plan {
    let prefix = keys::entries(known.id);
    let entries: Vec<_> = search.words().map(|word| joined(&prefix, &text_entry(word))).collect();
    let ranges = whole(&entries);
    let beginnings = beginnings(&ranges, entries);
    let (by_id, descending) = by_id(sort);
    Plan {
        index: Some(known.clone()),
        prefix,
        ranges,
        merged: Some(beginnings),
        descending: by_id && descending,
        ordered: if by_id { Ordered::Wholly } else { Ordered::No },
        narrow: true,
        exact: alone && search.is_one_word_enough() && search.words().all(has_own_text_entry),
        united: Vec::new(),
    }
}

/// Returns whether a sort is by the ids, and whether the first field descends.
fn by_id(sort: &[SortBy]) -> (bool, bool) {
    let first = sort.first();
    (first.is_none_or(|by| by.path == "_id"), first.is_some_and(|by| by.direction == Direction::Descending))
}

/// Returns the parts of a condition that must all hold.
fn parts_of(condition: &Condition) -> Vec<&Condition> {
    match condition {
        Condition::All => Vec::new(),
        Condition::And(children) => children.iter().flat_map(parts_of).collect(),
        other => vec![other],
    }
}

/// Returns whether every matching record has an entry in the index.
fn holds_all_matches(known: &KnownIndex, parts: &[&Condition]) -> bool {
    let admitted = match known.index.partial() {
        Some(partial) => parts_of(partial).iter().all(|part| parts.iter().any(|known| known.is_same(part))),
        None => true,
    };
    let null = |value: &Vec<u8>| value[0] == TypeOrder::Null as u8 || value[0] == TypeOrder::Undefined as u8;
    let there = |(path, _): &(&str, Direction)| {
        let field = Field::of(path, parts, true);
        field.points.is_some_and(|points| !points.iter().any(null)) || field.span.is_some()
    };
    admitted && (!known.index.is_sparse() || known.fields().iter().any(there))
}

fn documents(collection: &KnownCollection, parts: &[&Condition], sort: &[SortBy]) -> Candidate {
    let prefix = keys::documents(collection.id);
    let looked_up = LookUp::new(prefix.clone(), &[("_id", Direction::Ascending)], parts, false);
    let (by_id, descending) = by_id(sort);
    let fit = if looked_up.fields > 0 { FIT_OF_ONE } else { usize::from(looked_up.spans) };
    let ordered = if by_id { Ordered::Wholly } else { Ordered::No };
    ((fit, ordered), looked_up.plan(None, prefix, ordered, by_id && descending, parts.is_empty()))
}

fn entries(known: &KnownIndex, parts: &[&Condition], sort: &[SortBy]) -> Candidate {
    let prefix = keys::entries(known.id);
    let fields = known.fields();
    let looked_up = LookUp::new(prefix.clone(), &fields, parts, known.several_entries);
    let (ordered, direction) = match scan_order(&fields, looked_up.fields, known.ids_descend(), sort) {
        _ if known.several_entries => (Ordered::No, Direction::Ascending),
        found if looked_up.prefixes.len() == 1 => found,
        (Ordered::Wholly, direction) if looked_up.is_merged_for(&fields, sort) => (Ordered::Wholly, direction),
        _ => (Ordered::No, Direction::Ascending),
    };
    // Every entry of a partial index has passed its parts of the condition, so the index is narrow as it is.
    let passed = known.index.partial().map(parts_of).unwrap_or_default();
    let narrow = looked_up.spans || !passed.is_empty();
    let fit = match looked_up.fields {
        all if all == fields.len() && known.index.is_unique() => FIT_OF_ONE,
        some => 2 * some + usize::from(narrow),
    };
    let descending = direction == Direction::Descending;
    let left: Vec<_> = parts.iter().copied().filter(|part| !passed.iter().any(|other| other.is_same(part))).collect();
    let exact = !known.several_entries && is_exact(&fields, &looked_up, &left);
    let is_merged = ordered == Ordered::Wholly && looked_up.prefixes.len() != 1;
    let prefixes = is_merged.then(|| looked_up.prefixes.clone());
    let mut plan = looked_up.plan(Some(known.clone()), prefix, ordered, descending, exact);
    plan.merged = prefixes.map(|prefixes| beginnings(&plan.ranges, prefixes));
    plan.narrow |= narrow;
    ((fit, ordered), plan)
}

/// Returns whether the ranges of some fields exclude everything that does not match. This holds if each part names the values of a field
/// that is looked up, or a bound of the time span to which the next field is narrowed.
fn is_exact(fields: &[(&str, Direction)], looked_up: &LookUp, parts: &[&Condition]) -> bool {
    let points = &fields[..looked_up.fields];
    let span = fields.get(looked_up.fields).filter(|_| looked_up.spans);
    let is_only = |path: &str| {
        let on_path = |part: &&&Condition| matches!(part, Condition::Field { path: other, .. } if other == path);
        parts.iter().filter(on_path).count() == 1
    };
    parts.iter().all(|part| {
        let Condition::Field { path, test } = part else { return false };
        if points.iter().any(|(known, _)| known == path) {
            return is_only(path) && is_plain(test);
        }
        span.is_some_and(|(known, _)| known == path) && is_time(test)
    })
}

/// Returns whether a test names values that are equal only to themselves.
fn is_plain(test: &Test) -> bool {
    let plain = |value: &Bson| {
        matches!(
            value,
            Bson::String(_)
                | Bson::ObjectId(_)
                | Bson::Int32(_)
                | Bson::Int64(_)
                | Bson::Boolean(_)
                | Bson::DateTime(_)
        )
    };
    match test {
        Test::Eq(value) => plain(value),
        Test::In(values) => values.iter().all(plain),
        _ => false,
    }
}

/// Returns whether a test is an inclusive bound of a time span.
fn is_time(test: &Test) -> bool {
    match test {
        Test::Gte(value) | Test::Lte(value) => matches!(value, Bson::DateTime(_)),
        Test::Between(low, high) => matches!((low, high), (Bson::DateTime(_), Bson::DateTime(_))),
        _ => false,
    }
}

/// Returns how the order of an index relates to the sort, and in which direction its entries must be read. The first `same` fields are
/// equal in all entries that are read, so they need no order. The sort may contain some or all of the other fields. If it contains all,
/// the order of ids among equal entries decides whether anything is left to sort. Nothing is equal in its id, so fields after that do not
/// count.
fn scan_order(fields: &[(&str, Direction)], same: usize, ids_descend: bool, sort: &[SortBy]) -> (Ordered, Direction) {
    let is_same = |by: &SortBy| fields[..same].iter().any(|(path, _)| *path == by.path);
    let id_at = sort.iter().position(|by| by.path == "_id").filter(|_| fields.iter().all(|(path, _)| *path != "_id"));
    let ids = id_at.map_or(sort.last(), |at| sort.get(at));
    let ids_should_descend = ids.is_some_and(|by| by.direction == Direction::Descending);
    let sort = &sort[..id_at.unwrap_or(sort.len())];
    let mut descending = None;
    let (mut of_sort, mut of_index) = (0, same);
    for by in sort {
        if !is_same(by) {
            let Some((path, direction)) = fields.get(of_index) else { break };
            let against = by.direction != *direction;
            if *path != by.path || descending.is_some_and(|descending| descending != against) {
                break;
            }
            descending = Some(against);
            of_index += 1;
        }
        of_sort += 1;
    }
    let whole = of_sort == sort.len() && of_index == fields.len();
    let against = descending.unwrap_or(ids_should_descend != ids_descend);
    let direction = if against { Direction::Descending } else { Direction::Ascending };
    match (whole && (ids_descend != against) == ids_should_descend, descending) {
        (true, _) => (Ordered::Wholly, direction),
        (false, Some(_)) => (Ordered::First { fields: of_sort, of_index }, direction),
        (false, None) => (Ordered::No, Direction::Ascending),
    }
}

/// The ranges of some fields that a condition leaves.
struct LookUp {
    ranges: Vec<Range>,
    /// The beginnings of keys, one for each combination of values of the fields that are looked up.
    prefixes: Vec<Vec<u8>>,
    /// How many of the fields are looked up by their values.
    fields: usize,
    /// Whether the field after them is narrowed to a span.
    spans: bool,
}

impl LookUp {
    fn new(prefix: Vec<u8>, fields: &[(&str, Direction)], parts: &[&Condition], several_entries: bool) -> Self {
        let mut prefixes = vec![prefix];
        for (n, (path, direction)) in fields.iter().enumerate() {
            let field = Field::of(path, parts, several_entries);
            match (field.points, field.span) {
                (Some(points), _) if points.len() * prefixes.len() <= RANGES_MAX => {
                    let points: Vec<_> = points.into_iter().map(|point| directed(point, *direction)).collect();
                    prefixes =
                        prefixes.iter().flat_map(|prefix| points.iter().map(|point| joined(prefix, point))).collect();
                }
                (_, Some((low, high))) => {
                    let (low, high) = match direction {
                        Direction::Ascending => (low, high),
                        Direction::Descending => (directed(high, *direction), directed(low, *direction)),
                    };
                    let beside: Vec<_> = field.beside.into_iter().map(|point| directed(point, *direction)).collect();
                    let ranges = prefixes.iter().flat_map(|prefix| {
                        let points = beside.iter().map(|point| Range::prefix(&joined(prefix, point)));
                        std::iter::once(span(&joined(prefix, &low), &joined(prefix, &high))).chain(points)
                    });
                    let ranges = sorted(ranges.collect());
                    return Self { ranges, prefixes, fields: n, spans: true };
                }
                _ => return Self { ranges: whole(&prefixes), prefixes, fields: n, spans: false },
            }
        }
        Self { ranges: whole(&prefixes), prefixes, fields: fields.len(), spans: false }
    }

    /// Returns whether the ranges can be merged in the order that each of them has: there is one for each combination of values, and the
    /// sort does not depend on the values.
    fn is_merged_for(&self, fields: &[(&str, Direction)], sort: &[SortBy]) -> bool {
        let is_value = |by: &SortBy| fields[..self.fields].iter().any(|(path, _)| *path == by.path);
        self.ranges.len() == self.prefixes.len() && !sort.iter().any(is_value)
    }

    fn plan(
        mut self,
        index: Option<KnownIndex>,
        prefix: Vec<u8>,
        ordered: Ordered,
        descending: bool,
        exact: bool,
    ) -> Plan {
        if descending {
            self.ranges.reverse();
        }
        let narrow = self.fields > 0 || self.spans;
        let (merged, united) = (None, Vec::new());
        Plan { index, prefix, ranges: self.ranges, merged, descending, ordered, narrow, exact, united }
    }
}

fn whole(prefixes: &[Vec<u8>]) -> Vec<Range> {
    sorted(prefixes.iter().map(|prefix| Range::prefix(prefix)).collect())
}

/// Returns for each range the length of that beginning with which its keys begin. No beginning is the beginning of another one.
fn beginnings(ranges: &[Range], mut of: Vec<Vec<u8>>) -> Vec<usize> {
    of.sort_unstable();
    let length = |range: &Range| {
        let std::ops::Bound::Included(low) = &range.from else { return 0 };
        let after = of.partition_point(|beginning| beginning <= low);
        after.checked_sub(1).map_or(0, |at| of[at].len())
    };
    ranges.iter().map(length).collect()
}

/// Returns the range from the first key at or above `low` to the last key that begins with `high`.
fn span(low: &[u8], high: &[u8]) -> Range {
    Range { from: std::ops::Bound::Included(low.to_vec()), to: Range::prefix(high).to }
}

fn sorted(mut ranges: Vec<Range>) -> Vec<Range> {
    let low = |range: &Range| match &range.from {
        std::ops::Bound::Included(low) | std::ops::Bound::Excluded(low) => low.clone(),
        std::ops::Bound::Unbounded => Vec::new(),
    };
    ranges.sort_by_key(low);
    ranges.dedup();
    ranges
}

fn joined(prefix: &[u8], rest: &[u8]) -> Vec<u8> {
    [prefix, rest].concat()
}

fn directed(mut encoding: Vec<u8>, direction: Direction) -> Vec<u8> {
    if direction == Direction::Descending {
        invert(&mut encoding);
    }
    encoding
}
