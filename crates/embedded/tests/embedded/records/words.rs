//! Pages in any order beside the model, above all of searches for words, and how much of a store they read.

use std::collections::BTreeSet;
use std::sync::Arc;

use annals_conformance::records::RecordsModel;
use annals_core::bson::{Bson, Document, RawDocumentBuf, doc};
use annals_core::order::Direction::{Ascending, Descending};
use annals_core::{
    Collection, Condition, DEFAULT_TENANT, Expected, Explained, Index, Record, RecordChange, RecordQuery, Records,
    Store,
};
use annals_embedded::disk::MemoryDisk;

use crate::stores::{block_on, open, repeatable, roomy_segments};

const THINGS: &str = "things";
const WORDS: &str = "t_text_u_text";

fn things() -> Collection {
    Collection::new(THINGS)
        .index(Index::text(["t", "u"]))
        .index(Index::on("n"))
        .index(Index::ordered([("k", Ascending), ("n", Descending)]))
}

fn insert(document: &Document) -> RecordChange {
    RecordChange::insert(THINGS, RawDocumentBuf::try_from(document).expect("a document"))
}

fn id_of(record: &Record) -> i32 {
    record.document.get_i32("_id").expect("it has an id")
}

fn matching(search: &str) -> RecordQuery {
    RecordQuery::new(THINGS).matching(Condition::matching_text(search))
}

/// Records, and the model of them.
struct Beside {
    random: fastrand::Rng,
    model: RecordsModel,
    records: Arc<dyn Records>,
    ids: i32,
    /// The indexes by which pages were found.
    used: BTreeSet<String>,
}

/// So many pages of a query are read; each of those that are sorted reads all its matches.
const PAGES_MAX: usize = 25;

impl Beside {
    async fn write(&mut self, changes: Vec<RecordChange>) {
        let due = self.model.write(&changes).expect("they are accepted");
        assert_eq!(self.records.write(changes).await.expect("they are accepted"), due);
    }

    /// Inserts records, mostly after all others.
    async fn fill(&mut self, count: usize, arrays: bool) {
        let changes = (0..count).map(|_| insert(&self.any_document(arrays))).collect();
        self.write(changes).await;
    }

    fn any_document(&mut self, arrays: bool) -> Document {
        self.ids += 1;
        let id = if self.random.u8(0..20) == 0 { -self.ids } else { self.ids };
        let n = self.random.i32(0..30);
        let n: Bson =
            if arrays && self.random.u8(0..50) == 0 { Bson::Array(vec![n.into(), 7.into()]) } else { n.into() };
        let (k, m) = (self.random.i32(0..4), self.random.i32(0..5));
        doc! { "_id": id, "t": self.any_text(), "u": [self.any_text(), 5], "n": n, "k": k, "m": m }
    }

    fn any_text(&mut self) -> String {
        let mut words = Vec::new();
        for (word, of_a_hundred) in [("often", 60), ("half", 30), ("some", 5), ("rare", 1)] {
            if self.random.u8(0..100) < of_a_hundred {
                words.push(word);
            }
        }
        self.random.shuffle(&mut words);
        words.join(" ")
    }

    fn any_query(&mut self) -> RecordQuery {
        let words = ["often", "half", "some", "rare", "absent", "\"often half\"", "-some", "-\"half often\""];
        let count = self.random.usize(1..4);
        let search: Vec<_> = (0..count).map(|_| words[self.random.usize(0..words.len())]).collect();
        let mut all = vec![Condition::matching_text(search.join(" "))];
        let others = [
            Condition::eq("k", self.random.i32(0..5)),
            Condition::is_in("k", [0, 2, 7]),
            Condition::gte("n", self.random.i32(0..30)),
            Condition::is_in("n", [3, 7, 8]),
            Condition::gt("_id", self.random.i32(0..200)),
            Condition::or([Condition::eq("k", 1), Condition::is_in("n", [1, 3, 11])]),
        ];
        all.extend(others.into_iter().filter(|_| self.random.u8(0..8) == 0));
        if all.len() > 1 && self.random.bool() {
            all.remove(0);
        }
        let limit = [1, 7, 50, 1_000][self.random.usize(0..4)];
        let query = RecordQuery::new(THINGS).matching(Condition::and(all)).limit(limit);
        match self.random.u8(0..9) {
            0 => query,
            1 => query.descending("_id"),
            8 => query.descending("n").ascending("_id"),
            2 | 3 => query.ascending("n"),
            4 | 5 => query.descending("n"),
            6 => query.ascending("k").descending("n"),
            _ => query.descending("m"),
        }
    }

    /// Counts and reads a query page by page. In between, records are deleted, also those at which pages ended.
    async fn check(&mut self, mut query: RecordQuery) {
        let what = format!("{query:?}");
        let mut due: Vec<i32> = self.model.find(&query).expect("they are found").iter().map(id_of).collect();
        let all = due.len() as u64;
        for at_most in [1, 10, u64::MAX, 60] {
            let counted = self.records.count_up_to(THINGS, &query.condition, at_most).await;
            assert_eq!(counted, Ok(all.min(at_most)), "{what}");
        }
        let explained = self.records.explain(query.clone()).await.expect("it is explained");
        assert_eq!(explained.found, all.min(query.limit as u64), "{what}");
        self.used.extend(explained.index);
        for _ in 0..PAGES_MAX {
            let page = self.records.find(query.clone()).await.expect("the page is read");
            let found: Vec<i32> = page.records.iter().map(id_of).collect();
            let rest = due.split_off(due.len().min(query.limit));
            assert_eq!(found, due, "{what}");
            due = rest;
            assert_eq!(page.next.is_some(), !due.is_empty(), "{what}");
            let Some(next) = page.next else { return };
            query.after = Some(next);
            if self.random.u8(0..4) == 0 {
                let gone: BTreeSet<i32> = found.last().into_iter().chain(self.random.choice(&due)).copied().collect();
                let changes = gone.iter().map(|id| RecordChange::delete_if(THINGS, *id, Expected::Present));
                self.write(changes.collect()).await;
                due.retain(|id| !gone.contains(id));
            }
        }
    }
}

#[test]
fn pages_in_any_order_have_what_the_model_finds() {
    block_on(async {
        let mut used = BTreeSet::new();
        for seed in 0..24 {
            let opened = open(Arc::new(MemoryDisk::default()), repeatable(seed)).expect("it opens");
            let records = opened.store.records(DEFAULT_TENANT).expect("the tenant is declared");
            let (random, model) = (fastrand::Rng::with_seed(seed), RecordsModel::default());
            let mut beside = Beside { random, model, records, ids: 0, used: BTreeSet::new() };
            beside.records.declare(things()).await.expect("it is declared");
            beside.model.declare(&things()).expect("it is declared");
            // A record with two entries in an index makes the order of that index useless.
            let arrays = seed % 3 == 0;
            for _ in 0..3 {
                beside.fill(120, arrays).await;
            }
            for _ in 0..20 {
                let query = beside.any_query();
                beside.check(query).await;
                beside.fill(4, arrays).await;
            }
            used.append(&mut beside.used);
        }
        for index in [WORDS, "n_1", "k_1_n_-1", "k_1_n_-1, n_1"] {
            assert!(used.contains(index), "no page was found by {index}, only by {used:?}");
        }
    });
}

/// Records, each with the word `often`. The order of `n` is that of no other field.
const MANY: i32 = 4_900;
/// The records that come last in the descending order of `n`.
const LATE: i32 = 196;

fn one_of_many(id: i32) -> Document {
    let n = id % 700;
    let mut words = vec!["often"];
    words.extend((id % 2 == 0).then_some("half"));
    words.extend((id % 1_000 == 7).then_some("rare"));
    words.extend((n < LATE * 700 / MANY).then_some("late"));
    doc! { "_id": id, "t": words.join(" "), "n": n, "k": id % 49 }
}

#[track_caller]
fn has_read(explained: &Explained, index: &str, found: u64, entries: u64, documents: u64) {
    assert_eq!((explained.index.as_deref(), explained.found), (Some(index), found), "{explained:?}");
    assert!(explained.entries_examined <= entries && explained.documents_examined <= documents, "{explained:?}");
}

/// A page of 50 has one more record, which tells that another page follows. The entries of words are read 64 at a time; those of a rare
/// word are counted, and then read.
#[test]
fn a_page_reads_little_of_a_store_whether_its_word_is_frequent_or_rare() {
    block_on(async {
        let opened = open(Arc::new(MemoryDisk::default()), roomy_segments()).expect("it opens");
        let records = opened.store.records(DEFAULT_TENANT).expect("the tenant is declared");
        records.declare(things()).await.expect("it is declared");
        let all: Vec<_> = (0..MANY).map(|id| insert(&one_of_many(id))).collect();
        for some in all.chunks(500) {
            records.write(some.to_vec()).await.expect("they are written");
        }
        let explain = async |query: RecordQuery| records.explain(query.limit(50)).await.expect("it is explained");
        for sorted in [matching("often").descending("n"), matching("often absent rare").ascending("n")] {
            has_read(&explain(sorted).await, "n_1", 50, 51 + 3 * 64, 51);
        }
        // Half of the records have it, which come together.
        has_read(&explain(matching("half").descending("n")).await, "n_1", 50, 204 + 4 * 64, 204);
        let rare = explain(matching("rare").descending("n")).await;
        has_read(&rare, WORDS, 5, 2 * 5, 5);
        assert!(rare.sorted);
        has_read(&explain(matching("absent").descending("n")).await, WORDS, 0, 0, 0);
        // In this order all other records come first, so those with the word are sorted, after as many others at most.
        let late = LATE as u64;
        has_read(&explain(matching("late").descending("n")).await, WORDS, 50, 3 * late + 64, 2 * late);
        has_read(&explain(matching("late").ascending("n")).await, "n_1", 50, 51 + 64, 51);
        // Entries of words are in the order of the ids.
        for by_id in [matching("often"), matching("often").descending("_id")] {
            let explained = explain(by_id).await;
            has_read(&explained, WORDS, 50, 64, 51);
            assert!(!explained.sorted);
        }
        // 100 records have this `k`.
        let with = |search: &str| {
            let both = [Condition::eq("k", 7), Condition::matching_text(search)];
            RecordQuery::new(THINGS).matching(Condition::and(both))
        };
        has_read(&explain(with("often").descending("n")).await, "k_1_n_-1", 50, 51 + 64, 51);
        has_read(&explain(with("rare").descending("n")).await, WORDS, 1, 2 * 5, 5);
        has_read(&explain(with("half").ascending("m")).await, "k_1_n_-1", 50, 3 * 128 + 100, 100);
        // Several values, each with its own range.
        let some = RecordQuery::new(THINGS).matching(Condition::is_in("k", [7, 8, 9])).descending("n");
        has_read(&explain(some).await, "k_1_n_-1", 50, 3 * 64, 51);
        // Either of two fields.
        let any = |one, other| RecordQuery::new(THINGS).matching(Condition::or([one, other])).descending("n");
        let few = any(Condition::eq("k", 7), Condition::eq("n", 3));
        has_read(&explain(few).await, "k_1_n_-1, n_1", 50, 3 * 107, 2 * 107);
        let many = any(Condition::lt("k", 40), Condition::gte("n", 0));
        has_read(&explain(many).await, "n_1", 50, 2 * 51, 51);
        // No index has this order, so all matches are sorted: found by the entries of both fields, unless there are more than records.
        let any = |one, other| RecordQuery::new(THINGS).matching(Condition::or([one, other])).descending("m");
        let few = explain(any(Condition::eq("k", 7), Condition::eq("n", 3))).await;
        has_read(&few, "k_1_n_-1, n_1", 50, 2 * 107, 2 * 107);
        let many = explain(any(Condition::lt("k", 40), Condition::gte("n", 0))).await;
        let all = MANY as u64;
        assert_eq!((many.index.as_deref(), many.found, many.documents_examined), (None, 50, all), "{many:?}");
        assert!(many.sorted && many.entries_examined <= 2 * all, "{many:?}");
        let page = records.find(matching("late").descending("n").limit(50)).await.expect("the page is read");
        let next = explain(matching("late").descending("n").after(page.next.expect("there is more"))).await;
        has_read(&next, WORDS, 50, late, late);
    });
}
