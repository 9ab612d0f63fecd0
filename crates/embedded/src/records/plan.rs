//! Where to look for the records that a condition means.
//!
//! A plan's ranges hold every record that matches, and perhaps others: whoever scans them judges each record by the whole condition.

use annals_core::bson::raw::CString;
use annals_core::bson::{Bson, RawBson, RawBsonRef, Regex};
use annals_core::order::{self, Direction, TypeOrder, encoded, invert};
use annals_core::{Condition, Invalid, SortBy, Test, TextSearch, text_entry};

use super::catalog::{KnownCollection, KnownIndex};
use super::keys;
use crate::engine::{Range, after_prefix};

/// Most ranges of a plan; a condition with more values is looked up by fewer fields.
const RANGES_MAX: usize = 256;

/// Where to look, and in which direction.
pub(super) struct Plan {
    /// None for the documents themselves, in the order of their ids.
    pub(super) index: Option<KnownIndex>,
    /// What the keys of the documents or entries begin with.
    pub(super) prefix: Vec<u8>,
    /// In the order in which they are read; they share no key.
    pub(super) ranges: Vec<Range>,
    /// Highest key first.
    pub(super) descending: bool,
    /// In what order records come.
    pub(super) ordered: Ordered,
    /// The ranges leave something out.
    pub(super) narrow: bool,
    /// Each place in the ranges is of a record that matches, and of another one: counting places counts records.
    pub(super) exact: bool,
}

/// How far the order in which records come is the one that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ordered {
    /// Not at all.
    No,
    /// By so many of the first fields of the sort; what is equal in them comes in any order.
    First {
        /// Of the sort.
        fields: usize,
        /// The fields of the index that these are, with those before them.
        of_index: usize,
    },
    /// It is.
    Wholly,
}

/// How well a plan fits: fields looked up by, then how little needs sorting.
type Fit = (usize, Ordered);

/// What one record only can have is better than anything else.
const FIT_OF_ONE: usize = 1_000;

/// Chooses where to look.
///
/// # Errors
/// `no_text_index` for words that no index knows.
pub(super) fn plan(collection: &KnownCollection, condition: &Condition, sort: &[SortBy]) -> Result<Plan, Invalid> {
    if let (Some(known), Some(search)) = (collection.text_index(condition)?, condition.text_search()) {
        return Ok(words(known, &TextSearch::new(search)));
    }
    let parts = parts_of(condition);
    let mut best = documents(collection, &parts, sort);
    for known in &collection.indexes {
        if known.index.as_text().is_some() || !holds_all_matches(known, &parts) {
            continue;
        }
        let candidate = entries(known, &parts, sort);
        if candidate.0 > best.0 {
            best = candidate;
        }
    }
    Ok(best.1)
}

/// Chooses where to count. Where everything is counted, entries are shorter than documents.
///
/// # Errors
/// As [`plan`].
pub(super) fn plan_of_count(collection: &KnownCollection, condition: &Condition) -> Result<Plan, Invalid> {
    let best = plan(collection, condition, &[])?;
    if best.narrow || !best.exact {
        return Ok(best);
    }
    let has_all = |known: &&KnownIndex| known.index.as_text().is_none() && holds_all_matches(known, &[]);
    let mut of_entries = collection.indexes.iter().filter(has_all).map(|known| entries(known, &[], &[]).1);
    Ok(of_entries.find(|plan| plan.exact).unwrap_or(best))
}

/// The documents of a collection after the key of one.
pub(super) fn documents_after(collection: u32, key: Vec<u8>) -> Plan {
    let prefix = keys::documents(collection);
    let range = Range { from: std::ops::Bound::Excluded(key), to: Range::prefix(&prefix).to };
    Plan {
        index: None,
        prefix,
        ranges: vec![range],
        descending: false,
        ordered: Ordered::No,
        narrow: true,
        exact: false,
    }
}

/// The entries of each word of which a record must have one.
fn words(known: &KnownIndex, search: &TextSearch) -> Plan {
    let prefix = keys::entries(known.id);
    let entries: Vec<_> = search.words().map(|word| joined(&prefix, &text_entry(word))).collect();
    Plan {
        index: Some(known.clone()),
        prefix,
        ranges: whole(&entries),
        descending: false,
        ordered: Ordered::No,
        narrow: true,
        exact: false,
    }
}

/// What must all hold.
fn parts_of(condition: &Condition) -> Vec<&Condition> {
    match condition {
        Condition::All => Vec::new(),
        Condition::And(children) => children.iter().flat_map(parts_of).collect(),
        other => vec![other],
    }
}

/// Whether no record that matches can be without an entry.
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

fn documents(collection: &KnownCollection, parts: &[&Condition], sort: &[SortBy]) -> (Fit, Plan) {
    let prefix = keys::documents(collection.id);
    let looked_up = LookUp::new(prefix.clone(), &[("_id", Direction::Ascending)], parts, false);
    let by_id = sort.first().is_none_or(|by| by.path == "_id");
    let descending = sort.first().is_some_and(|by| by.direction == Direction::Descending);
    let fit = if looked_up.fields > 0 { FIT_OF_ONE } else { usize::from(looked_up.spans) };
    let ordered = if by_id { Ordered::Wholly } else { Ordered::No };
    ((fit, ordered), looked_up.plan(None, prefix, ordered, by_id && descending, parts.is_empty()))
}

fn entries(known: &KnownIndex, parts: &[&Condition], sort: &[SortBy]) -> (Fit, Plan) {
    let prefix = keys::entries(known.id);
    let fields = known.fields();
    let looked_up = LookUp::new(prefix.clone(), &fields, parts, known.several_entries);
    let (ordered, direction) = if known.several_entries || looked_up.prefixes != 1 {
        (Ordered::No, Direction::Ascending)
    } else {
        scan_order(&fields, looked_up.fields, known.ids_descend(), sort)
    };
    let fit = match looked_up.fields {
        all if all == fields.len() && known.index.is_unique() => FIT_OF_ONE,
        some => 2 * some + usize::from(looked_up.spans),
    };
    let descending = direction == Direction::Descending;
    let exact = !known.several_entries && known.index.partial().is_none() && is_exact(&fields, &looked_up, parts);
    ((fit, ordered), looked_up.plan(Some(known.clone()), prefix, ordered, descending, exact))
}

/// Whether the ranges of some fields leave out all that does not match: each part names the values of a field that is looked up, or an end
/// of the time to which the field after them is narrowed.
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

/// Whether a test names values that nothing else is equal to.
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

/// Whether a test is an end of a span of time that is part of it.
fn is_time(test: &Test) -> bool {
    match test {
        Test::Gte(value) | Test::Lte(value) => matches!(value, Bson::DateTime(_)),
        Test::Between(low, high) => matches!((low, high), (Bson::DateTime(_), Bson::DateTime(_))),
        _ => false,
    }
}

/// How the entries of an index stand to the sort, and in which direction they are to be read. The first `same` fields are the same in all
/// that are read, so they need no order. Of the others the sort may have some, or all: then the ids that order what is equal in all of them
/// decide whether nothing is left to sort.
fn scan_order(fields: &[(&str, Direction)], same: usize, ids_descend: bool, sort: &[SortBy]) -> (Ordered, Direction) {
    let is_same = |by: &SortBy| fields[..same].iter().any(|(path, _)| *path == by.path);
    let ids_should_descend = sort.last().is_some_and(|by| by.direction == Direction::Descending);
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

/// The ranges that a condition leaves of some fields.
struct LookUp {
    ranges: Vec<Range>,
    /// In how many ways the fields that are looked up can have their values.
    prefixes: usize,
    /// How many of the fields are looked up by their values.
    fields: usize,
    /// Whether the field after them is narrowed.
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
                    return Self { ranges, prefixes: prefixes.len(), fields: n, spans: true };
                }
                _ => return Self { ranges: whole(&prefixes), prefixes: prefixes.len(), fields: n, spans: false },
            }
        }
        Self { ranges: whole(&prefixes), prefixes: prefixes.len(), fields: fields.len(), spans: false }
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
        Plan { index, prefix, ranges: self.ranges, descending, ordered, narrow, exact }
    }
}

fn whole(prefixes: &[Vec<u8>]) -> Vec<Range> {
    sorted(prefixes.iter().map(|prefix| Range::prefix(prefix)).collect())
}

/// From the first key that begins with `low` or is above it, to the last that begins with `high`.
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

/// What a condition says about one field, in encodings.
#[derive(Default)]
struct Field {
    /// The values it can have.
    points: Option<Vec<Vec<u8>>>,
    /// The beginnings of the lowest and the highest value it can have.
    span: Option<(Vec<u8>, Vec<u8>)>,
    /// Values that it can have beside those.
    beside: Vec<Vec<u8>>,
}

impl Field {
    fn of(wanted: &str, parts: &[&Condition], several_entries: bool) -> Self {
        let mut field = Self::default();
        for part in parts {
            let Condition::Field { path, test } = part else { continue };
            if path != wanted {
                continue;
            }
            if let Some(points) = points_of(test)
                && field.points.as_ref().is_none_or(|known| points.len() < known.len())
            {
                field.points = Some(points);
            }
            field.beside.extend(beside(test));
            for (low, high) in spans_of(test) {
                field.span = Some(match field.span.take() {
                    None => (low, high),
                    // One element may keep one end and another the other.
                    Some(known) if several_entries => known,
                    Some((known_low, known_high)) => (known_low.max(low), lower_end(known_high, high)),
                });
            }
        }
        field
    }
}

fn lower_end(a: Vec<u8>, b: Vec<u8>) -> Vec<u8> {
    match (after_prefix(&a), after_prefix(&b)) {
        (Some(end_of_a), Some(end_of_b)) if end_of_b < end_of_a => b,
        (None, Some(_)) => b,
        _ => a,
    }
}

fn points_of(test: &Test) -> Option<Vec<Vec<u8>>> {
    let mut points = match test {
        Test::Eq(value) => points_of_value(value)?,
        Test::In(values) => values.iter().map(points_of_value).collect::<Option<Vec<_>>>()?.concat(),
        _ => return None,
    };
    points.sort_unstable();
    points.dedup();
    Some(points)
}

/// The entries of records that are equal to a value. An array is equal to an array and to an element that is one, which an index holds
/// in different ways.
fn points_of_value(value: &Bson) -> Option<Vec<Vec<u8>>> {
    match value {
        Bson::Array(_) => None,
        Bson::Null | Bson::Undefined => Some(vec![vec![TypeOrder::Undefined as u8], vec![TypeOrder::Null as u8]]),
        other => Some(vec![encoding(other)?]),
    }
}

/// The ends of what passes a comparison: all of its type on one side of the value.
fn spans_of(test: &Test) -> Vec<(Vec<u8>, Vec<u8>)> {
    let from = |value: &Bson| rangeable(value).map(|encoding| (encoding.clone(), vec![encoding[0]]));
    let to = |value: &Bson| rangeable(value).map(|encoding| (vec![encoding[0]], encoding));
    match test {
        Test::Gt(value) | Test::Gte(value) => from(value).into_iter().collect(),
        Test::Lt(value) | Test::Lte(value) => to(value).into_iter().collect(),
        Test::Between(low, high) => from(low).into_iter().chain(to(high)).collect(),
        Test::StartsWith(fragment) if !fragment.ignore_case => {
            let mut beginning = encoded(RawBsonRef::String(&fragment.text));
            beginning.truncate(beginning.len() - order::TEXT_END.len());
            vec![(beginning.clone(), beginning)]
        }
        _ => Vec::new(),
    }
}

/// Texts are looked for by a regular expression, which finds itself too.
fn beside(test: &Test) -> Option<Vec<u8>> {
    let Test::StartsWith(fragment) = test else { return None };
    let pattern = CString::try_from(fragment.pattern("^", "")).ok()?;
    let options = CString::try_from(fragment.options()).ok()?;
    encoding(&Bson::RegularExpression(Regex { pattern, options }))
}

fn rangeable(value: &Bson) -> Option<Vec<u8>> {
    match value {
        Bson::Array(_) | Bson::Null | Bson::Undefined | Bson::MinKey | Bson::MaxKey => None,
        other => encoding(other),
    }
}

fn encoding(value: &Bson) -> Option<Vec<u8>> {
    RawBson::try_from(value.clone()).ok().map(|raw| encoded(raw.as_raw_bson_ref()))
}
