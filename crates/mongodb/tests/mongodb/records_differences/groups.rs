//! Random groups of random documents: the embedded store, with and without indexes, and a real mongod have the same groups with the same
//! figures on the same pages.

use annals_core::bson::{Bson, RawBson};
use annals_core::{Aggregation, Code, Every, Figure, Group, GroupQuery, RecordError, Records, order};
use proptest::prelude::*;
use proptest::sample::select;

use super::documents::Held;
use super::pair::Pair;
use super::{DOCUMENTS, Set, made, queries};

const SETS: u64 = 24;
const QUERIES: usize = 60;
/// How far two sums of the same doubles may be apart, relative to the larger one: they are added in different orders.
const ROUNDING: f64 = 1e-9;

fn group_query(held: &Held) -> BoxedStrategy<GroupQuery> {
    let path = || held.pair().prop_map(|(path, _)| path);
    let every = prop_oneof![4 => Just(None), 1 => Just(Some(Every::Hour)), 1 => Just(Some(Every::Day))];
    let figure = (select(Aggregation::ALL.to_vec()), path());
    let figures = prop::collection::vec(figure, 0..4);
    let condition = prop_oneof![1 => Just(annals_core::Condition::All), 2 => queries::condition(held)];
    let by = prop_oneof![1 => Just(None), 6 => path().prop_map(Some)];
    (condition, by, every, figures, select(vec![1_usize, 3, 100]))
        .prop_map(|(condition, by, every, figures, limit)| {
            let named =
                |(n, (what, path)): (usize, (Aggregation, String))| Figure { name: format!("f{n}"), what, path };
            let figures = figures.into_iter().enumerate().map(named).collect();
            let every = every.filter(|_| by.is_some());
            GroupQuery { condition, by, every, figures, limit, ..GroupQuery::new("") }
        })
        .boxed()
}

/// The value without types that `$group` of a mongod 6.0 takes for others: MinKey becomes `{"": MinKey}`, code and symbols become texts.
fn grouped_as_it_is(value: &mut Bson) {
    match value {
        Bson::MinKey | Bson::MaxKey | Bson::Symbol(_) | Bson::Undefined => *value = Bson::Null,
        Bson::JavaScriptCode(_) | Bson::JavaScriptCodeWithScope(_) => *value = Bson::Null,
        Bson::Array(inner) => inner.iter_mut().for_each(grouped_as_it_is),
        Bson::Document(inner) => inner.iter_mut().for_each(|(_, value)| grouped_as_it_is(value)),
        _ => {}
    }
}

/// All pages, with how many groups each one has.
async fn pages(records: &dyn Records, query: &GroupQuery, collection: &str) -> Result<Vec<Vec<Group>>, RecordError> {
    let mut query = GroupQuery { collection: collection.to_owned(), ..query.clone() };
    let mut pages = Vec::new();
    loop {
        let page = records.group(query.clone()).await?;
        pages.push(page.groups);
        match page.next {
            None => return Ok(pages),
            Some(next) => query.after = Some(next),
        }
    }
}

/// Whether two values are the same for whoever reads a group: which of equal numbers stands for them is not promised.
fn is_same(one: &Bson, other: &Bson) -> bool {
    let encoded = |value: &Bson| order::encoded(RawBson::try_from(value.clone()).expect("a value").as_raw_bson_ref());
    match (one, other) {
        (Bson::Double(one), Bson::Double(other)) if one.is_finite() && other.is_finite() => {
            (one - other).abs() <= ROUNDING * one.abs().max(other.abs())
        }
        _ => encoded(one) == encoded(other),
    }
}

fn are_same(found: &[Vec<Group>], due: &[Vec<Group>]) -> bool {
    let same = |(one, other): (&Group, &Group)| {
        let mut figures = one.figures.iter().zip(&other.figures);
        is_same(&one.key, &other.key) && one.count == other.count && figures.all(|(one, other)| is_same(one, other))
    };
    let same_page =
        |(one, other): (&Vec<Group>, &Vec<Group>)| one.len() == other.len() && one.iter().zip(other).all(same);
    found.len() == due.len() && found.iter().zip(due).all(same_page)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_groups_are_those_of_mongodb() {
    let pair = Pair::open().await;
    let (mut several, mut refused) = (0, 0);
    for number in 0..SETS {
        let Set { mut documents, indexes, mut runner, .. } = Set::of(number, DOCUMENTS);
        documents.iter_mut().flat_map(|document| document.iter_mut()).for_each(|(_, value)| grouped_as_it_is(value));
        let asked = group_query(&Held::by(&documents));
        let loaded = pair.load(&format!("grouped-{number}"), &documents, &indexes).await.expect("loaded");
        for n in 0..QUERIES {
            let query = made(&asked, &mut runner).current();
            let due = pages(&**loaded.mongodb(), &query, &loaded.collection()).await;
            for collection in [loaded.collection(), loaded.plain()] {
                let found = pages(&**loaded.embedded(), &query, &collection).await;
                let agree = match (&found, &due) {
                    (Ok(found), Ok(due)) => are_same(found, due),
                    // Only the collection with the indexes has one of text.
                    (Err(error), Ok(_)) => error.code() == Code::NoTextIndex && collection == loaded.plain(),
                    (Err(found), Err(due)) => found.code() == due.code(),
                    (Ok(_), Err(_)) => false,
                };
                assert!(agree, "set {number}, query {n} of {collection}:\n{query:?}\n{found:?}\non MongoDB {due:?}");
            }
            several += u64::from(due.as_ref().is_ok_and(|pages| pages.iter().map(Vec::len).sum::<usize>() > 1));
            refused += u64::from(due.is_err());
        }
    }
    let whole = SETS * QUERIES as u64;
    assert!(
        several * 6 >= whole && refused * 2 <= whole,
        "{several} of {whole} have several groups, {refused} are refused"
    );
    pair.close().await;
}
