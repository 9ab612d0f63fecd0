//! Reading: index → frames → events. Everything that an index names is durable, so readers need no other bound.
//!
//! The index knows the terms of a commit, not of an event: with several terms it may name any number of commits of which no event matches.
//! So a page can take as long as the whole log. It yields between two runs of frames.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::ops::{ControlFlow, Range};

use annals_core::{
    AggregateCommits, AggregateIdsQuery, AggregateNamesQuery, AggregateQuery, ByteString, Filter, KnownAggregate,
    LogPage, LogQuery, RecordedCommit, RecordedEvent, SequenceNumber, StoreError, Version, limits,
};

use super::core::Core;
use super::lookup;
use super::segment::{Segment, runs};
use super::turns::Turns;
use crate::index::{Answer, Index, aggregate_key};
use crate::record::Record;
use crate::terms::{Term, TermKey, short};

/// Entries are looked up in groups of at most this size.
pub(super) const GROUP: usize = 128;

/// A page that is being filled.
struct Page {
    events: Vec<RecordedEvent>,
    limit: usize,
    bytes: usize,
}

impl Page {
    fn full(&self) -> bool {
        self.events.len() >= self.limit || self.bytes >= limits::PAGE_BYTES_MAX
    }

    /// Returns the largest number of commits that could still be needed.
    fn wanted(&self) -> usize {
        self.limit - self.events.len().min(self.limit)
    }

    fn push(&mut self, event: RecordedEvent) {
        self.bytes += event.page_bytes();
        self.events.push(event);
    }
}

pub(super) async fn page(core: &Core, query: &LogQuery) -> Result<LogPage, StoreError> {
    // The head is read before the view, so the view holds at least as much.
    let head = core.head();
    let from = query.from.unwrap_or(if query.backwards { head } else { 0 }).min(head);
    // A follower at the head reads many pages of few events, or none.
    let most = if query.backwards { from } else { head - from };
    let room = query.limit.min(usize::try_from(most).unwrap_or(usize::MAX));
    let mut page = Page { events: Vec::with_capacity(room), limit: query.limit, bytes: 0 };
    let next = if query.backwards {
        backwards(core, query, from, &mut page).await?
    } else {
        forwards(core, query, from..head, &mut page).await?
    };
    Ok(LogPage { events: page.events, next, head })
}

async fn forwards(
    core: &Core,
    query: &LogQuery,
    range: Range<SequenceNumber>,
    page: &mut Page,
) -> Result<SequenceNumber, StoreError> {
    let (view, mut turns) = (core.view(), Turns::of_read(core));
    let start = view.position_of(range.start).unwrap_or(0);
    for segment in view.segments[start..].iter().take_while(|segment| segment.first < range.end) {
        let first = segment.index.ordinal_of(range.start)?.unwrap_or(0);
        let mut candidates = Candidates::new(core.key, segment, &query.filter, first..segment.index.commits());
        while let Some(group) = candidates.next_group(page.wanted())? {
            let mut entries = segment.index.entries(&group)?;
            if query.filter.is_all() {
                // These entries suffice to fill the page.
                let end = entries.first().map_or(0, |entry| entry.sequence_number.max(range.start));
                let end = end.saturating_add(page.wanted() as u64);
                entries.truncate(entries.partition_point(|entry| entry.sequence_number < end));
            }
            for (n, run) in runs(&entries).enumerate() {
                if n == 1 {
                    segment.at.announce(&entries);
                }
                // Where to continue, once the page is full or the range ends.
                let mut next = range.end;
                let visited = segment.visit(run, |event, owner| {
                    let n = event.sequence_number;
                    if n >= range.end {
                        return ControlFlow::Break(());
                    }
                    if n >= range.start && query.filter.admits_ref(&event) {
                        page.push(owner.own(&event));
                        if page.full() {
                            next = n + 1;
                            return ControlFlow::Break(());
                        }
                    }
                    ControlFlow::Continue(())
                })?;
                if visited.is_break() {
                    return Ok(next);
                }
                turns.give_way().await;
            }
        }
        // Many terms of which no commit has any take their time as well.
        turns.give_way().await;
    }
    Ok(range.end)
}

async fn backwards(
    core: &Core,
    query: &LogQuery,
    from: SequenceNumber,
    page: &mut Page,
) -> Result<SequenceNumber, StoreError> {
    let Some(last) = from.checked_sub(1) else { return Ok(0) };
    let (view, mut turns) = (core.view(), Turns::of_read(core));
    let Some(position) = view.position_of(last) else { return Ok(0) };
    for segment in view.segments[..=position].iter().rev() {
        let end = segment.index.ordinal_of(last)?.map_or(0, |ordinal| ordinal + 1);
        let mut candidates = Candidates::new(core.key, segment, &query.filter, 0..end);
        while let Some(group) = candidates.last_group(page.wanted())? {
            let entries = segment.index.entries(&group)?;
            for run in runs(&entries).rev() {
                for record in segment.read(run)?.rev() {
                    for event in record?.commit.events.into_iter().rev() {
                        let n = event.sequence_number;
                        if n < from && query.filter.admits(&event) {
                            page.push(event);
                            if page.full() {
                                return Ok(n);
                            }
                        }
                    }
                }
                turns.give_way().await;
            }
        }
        turns.give_way().await;
    }
    Ok(0)
}

/// The commits of a segment that may match a filter, taken in groups from either end.
pub(super) struct Candidates<'a> {
    key: TermKey,
    segment: &'a Segment,
    filter: &'a Filter,
    /// Ordinals that have not been listed yet.
    rest: Range<u32>,
    /// Ordinals that have been listed but not taken.
    listed: VecDeque<u32>,
}

impl<'a> Candidates<'a> {
    pub(super) fn new(key: TermKey, segment: &'a Segment, filter: &'a Filter, rest: Range<u32>) -> Self {
        Self { key, segment, filter, rest, listed: VecDeque::new() }
    }

    /// Returns the next group from the front in ascending order, or `None` at the end.
    pub(super) fn next_group(&mut self, most: usize) -> Answer<Option<Vec<u32>>> {
        while self.listed.is_empty() && !self.rest.is_empty() {
            let end = self.rest.end.min(self.rest.start.saturating_add(self.stride()));
            self.listed = self.list(self.rest.start..end)?.into();
            self.rest.start = end;
        }
        let group: Vec<u32> = self.listed.drain(..self.listed.len().min(GROUP).min(most)).collect();
        Ok((!group.is_empty()).then_some(group))
    }

    /// Returns the last group from the back in ascending order, or `None` at the end.
    fn last_group(&mut self, most: usize) -> Answer<Option<Vec<u32>>> {
        while self.listed.is_empty() && !self.rest.is_empty() {
            let start = self.rest.start.max(self.rest.end.saturating_sub(self.stride()));
            self.listed = self.list(start..self.rest.end)?.into();
            self.rest.end = start;
        }
        let group: Vec<u32> = self.listed.drain(self.listed.len().saturating_sub(GROUP.min(most))..).collect();
        Ok((!group.is_empty()).then_some(group))
    }

    fn stride(&self) -> u32 {
        if self.filter.is_all() { GROUP as u32 } else { self.segment.index.stride() }
    }

    /// Lists the commits with any of the types, all of the tags and the aggregate.
    fn list(&self, within: Range<u32>) -> Answer<Vec<u32>> {
        if self.filter.is_all() {
            return Ok(within.collect());
        }
        let required: Vec<Term> = required(self.key, self.filter).collect();
        let types: Vec<Term> = self.filter.types.iter().map(|name| self.key.event_type(name)).collect();
        commits_with(&self.segment.index, &required, &types, within)
    }
}

/// Returns the ordinals of the commits that may have all terms of `all` and, unless `any` is empty, one of `any`, ascending.
fn commits_with(index: &Index, all: &[Term], any: &[Term], within: Range<u32>) -> Answer<Vec<u32>> {
    if all.is_empty() && any.is_empty() {
        return Ok(within.collect());
    }
    let postings = |term: &Term| index.postings(*term, within.clone());
    let mut lists = Vec::with_capacity(all.len() + 1);
    for term in all {
        let list = postings(term)?;
        if list.is_empty() {
            return Ok(list);
        }
        lists.push(list);
    }
    if !any.is_empty() {
        let mut union = any.iter().map(postings).collect::<Answer<Vec<_>>>()?.concat();
        // Each list is ascending, so this sort merges them.
        union.sort();
        union.dedup();
        lists.push(union);
    }
    Ok(intersection(lists))
}

/// Returns the terms that a commit must have, all of them.
fn required(key: TermKey, filter: &Filter) -> impl Iterator<Item = Term> {
    let tags = filter.tags.iter().map(move |tag| key.tag(tag));
    tags.chain(filter.aggregate.iter().map(move |aggregate| key.aggregate_filter(aggregate)))
}

fn intersection(mut lists: Vec<Vec<u32>>) -> Vec<u32> {
    lists.sort_unstable_by_key(Vec::len);
    let mut lists = lists.into_iter();
    let shortest = lists.next().unwrap_or_default();
    lists.fold(shortest, |mut common, list| {
        common.retain(|ordinal| list.binary_search(ordinal).is_ok());
        common
    })
}

pub(super) async fn aggregate(core: &Core, query: &AggregateQuery) -> Result<AggregateCommits, StoreError> {
    let exact = core.key.aggregate(&query.aggregate);
    let (view, mut turns) = (core.view(), Turns::of_read(core));
    let head = lookup::head(&view, .., &query.aggregate, exact)?;
    let head = head.filter(|head| query.tenant_id.as_ref().is_none_or(|wanted| *wanted == head.tenant_id));
    let Some(head) = head else { return Ok(AggregateCommits { commits: Vec::new(), version: 0 }) };
    let mut selected = Selected { query, version: head.version, commits: Vec::new(), bytes: 0 };
    if query.last {
        'newest: for segment in view.segments.iter().rev() {
            let mut rest = &versions(segment, short(exact), query)?[..];
            while !rest.is_empty() {
                let (older, group) = rest.split_at(rest.len().saturating_sub(query.limit.min(GROUP)));
                rest = older;
                let entries = segment.index.entries(group)?;
                for run in runs(&entries).rev() {
                    for record in segment.read(run)?.rev() {
                        if selected.take(record?) {
                            break 'newest;
                        }
                    }
                    turns.give_way().await;
                }
            }
        }
        selected.commits.reverse();
    } else {
        'oldest: for segment in &view.segments {
            for group in versions(segment, short(exact), query)?.chunks(query.limit.min(GROUP)) {
                let entries = segment.index.entries(group)?;
                for (n, run) in runs(&entries).enumerate() {
                    if n == 1 {
                        segment.at.announce(&entries);
                    }
                    for record in segment.read(run)? {
                        if selected.take(record?) {
                            break 'oldest;
                        }
                    }
                    turns.give_way().await;
                }
            }
        }
    }
    Ok(AggregateCommits { commits: selected.commits, version: head.version })
}

/// The commits of an aggregate that a query selects, up to its limits.
struct Selected<'q> {
    query: &'q AggregateQuery,
    /// The version of the aggregate when the read began.
    version: Version,
    commits: Vec<RecordedCommit>,
    bytes: usize,
}

impl Selected<'_> {
    /// Takes a commit if the query selects it. Returns whether the limits are reached.
    fn take(&mut self, record: Record) -> bool {
        let (query, info) = (self.query, &record.commit.info);
        let is_selected = *record.filed_under() == query.aggregate
            && (query.from_version..=query.to_version.min(self.version)).contains(&record.version)
            && query.from_time.is_none_or(|from| info.time >= from)
            && query.to_time.is_none_or(|to| info.time <= to);
        if is_selected {
            self.bytes += record.commit.events.iter().map(RecordedEvent::page_bytes).sum::<usize>();
            self.commits.push(record.commit);
        }
        self.commits.len() >= query.limit || self.bytes >= limits::PAGE_BYTES_MAX
    }
}

/// Returns the commits of a segment that may belong to the aggregate and have a wanted version.
fn versions(segment: &Segment, term: Term, query: &AggregateQuery) -> Result<Vec<u32>, StoreError> {
    let ordinals = segment.index.all_postings(term)?;
    if ordinals.is_empty() || (query.from_version <= 1 && query.to_version == u64::MAX) {
        return Ok(ordinals);
    }
    let entries = segment.index.entries(&ordinals)?;
    let version = |n: usize| segment.at.version(entries[n]);
    // The versions of one aggregate ascend by one. If another aggregate's term collides, the whole list is searched.
    let (first, last) = (version(0)?, version(entries.len() - 1)?);
    if last.checked_sub(first) != Some(entries.len() as u64 - 1) {
        return Ok(ordinals);
    }
    let from = query.from_version.saturating_sub(first).min(entries.len() as u64) as usize;
    let to = (query.to_version.saturating_add(1)).saturating_sub(first).min(entries.len() as u64) as usize;
    Ok(ordinals[from.min(to)..to].to_vec())
}

pub(super) async fn aggregate_ids(core: &Core, query: &AggregateIdsQuery) -> Result<Vec<KnownAggregate>, StoreError> {
    let prefix = aggregate_key(&query.name, "");
    let after = query.after.as_ref().map_or_else(|| prefix.clone(), |id| aggregate_key(&query.name, id));
    let mut found: BTreeMap<ByteString, ByteString> = BTreeMap::new();
    let (view, mut turns) = (core.view(), Turns::of_read(core));
    for segment in &view.segments {
        found.extend(segment.index.aggregates(prefix.as_bytes(), after.as_bytes(), query.limit)?);
        turns.give_way().await;
    }
    let known = found
        .into_iter()
        .take(query.limit)
        .map(|(key, tenant_id)| KnownAggregate { id: key[prefix.len()..].into(), tenant_id });
    Ok(known.collect())
}

/// Lists aggregate names. Each name takes one look-up per segment, which skips to the next name.
pub(super) async fn aggregate_names(core: &Core, query: &AggregateNamesQuery) -> Result<Vec<ByteString>, StoreError> {
    let (view, mut turns) = (core.view(), Turns::of_read(core));
    // An aggregate's key is its name, a NUL and its id; no name contains a byte this low.
    let past = |name: &str| [name, "\u{1}"].concat();
    let mut after = past(query.after.as_deref().unwrap_or_default());
    let mut names: Vec<ByteString> = Vec::new();
    while names.len() < query.limit {
        let mut next: Option<ByteString> = None;
        for segment in &view.segments {
            let found = segment.index.aggregates(&[], after.as_bytes(), 1)?.pop();
            let name = found.and_then(|(key, _)| key.split_once('\0').map(|(name, _)| ByteString::from(name)));
            next = next.into_iter().chain(name).min();
        }
        let Some(name) = next else { break };
        after = past(&name);
        names.push(name);
        turns.give_way().await;
    }
    Ok(names)
}
