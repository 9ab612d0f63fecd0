//! Groups of random documents: the embedded store, with and without indexes, and a real mongod compute the same.

use annals_core::bson::{Bson, Document, RawBson};
use annals_core::{Aggregation, Every, Group, GroupQuery, RecordError, Records, order};

use super::pair::{Loaded, Pair};
use super::{Set, documents::Held};

const SETS: u64 = 12;
/// Groups of each set.
const QUERIES: usize = 40;

#[tokio::test]
async fn random_groups_are_the_same_as_mongodb_s() {
    let pair = Pair::open().await;
    let (mut asked, mut grouped, mut refused) = (0, 0, 0);
    let mut differing = Vec::new();
    for number in 0..SETS {
        let mut set = Set::new(5_000 + number);
        let loaded = pair.load(&format!("groups-{number}"), &set.documents, &set.indexes).await.expect("loaded");
        let held = Held::by(&set.documents);
        let is_path = |path: &String| GroupQuery::new("c").by(path).validate().is_ok();
        let paths: Vec<String> = held.paths().into_iter().filter(is_path).collect();
        // MongoDB's engine answers with a document {"": MinKey} for the key MinKey, and sorts it as one; so with MaxKey.
        let keys: Vec<&String> =
            paths.iter().filter(|path| !held.leads_to(path, &[Bson::MinKey, Bson::MaxKey])).collect();
        for n in 0..QUERIES {
            let path = |at: usize| paths[(n * 7 + at * 13) % paths.len()].clone();
            let mut query = GroupQuery::new("").limit([1, 2, 1_000][n % 3]);
            if n % 9 > 0 {
                query = query.by(keys[n * 7 % keys.len()]);
            }
            if n % 9 > 6 {
                query = query.every(if n % 2 == 0 { Every::Hour } else { Every::Day });
            }
            if n % 4 == 0 {
                query = query.matching(set.next_query().current().condition);
            }
            for (at, what) in Aggregation::ALL.into_iter().enumerate().take(n % 5) {
                query = query.figure(format!("{}.{at}", what.name()), what, path(at + 1));
            }
            match same(&loaded, &query, &set.documents).await {
                Ok(Some(groups)) => {
                    asked += 1;
                    grouped += groups;
                }
                Ok(None) => refused += 1,
                Err(why) => differing.push(format!("set {number}, query {n}: {why}\n{query:?}")),
            }
        }
    }
    assert!(differing.is_empty(), "{} differ:\n{}", differing.len(), differing[..differing.len().min(8)].join("\n\n"));
    println!("{asked} queries made {grouped} groups, {refused} were refused");
    assert!(asked >= 200 && grouped >= 1_000, "{asked} {grouped}");
    pair.close().await;
}

/// The number of groups, if all make the same; none if all refuse.
async fn same(loaded: &Loaded, query: &GroupQuery, documents: &[Document]) -> Result<Option<usize>, String> {
    let largest: Vec<f64> = query.figures.iter().map(|figure| largest(documents, &figure.path)).collect();
    let mut answers = Vec::new();
    for (records, name) in loaded.all() {
        answers.push(pages(&**records, GroupQuery { collection: name, ..query.clone() }).await);
    }
    let due = answers.pop().expect("three answers");
    for (how, found) in ["with its indexes", "without an index"].into_iter().zip(&answers) {
        let is_same = match (found, &due) {
            (Ok(found), Ok(due)) => {
                found.len() == due.len() && found.iter().zip(due).all(|(a, b)| same_group(a, b, &largest))
            }
            (Err(found), Err(due)) => found.code() == due.code(),
            _ => false,
        };
        if !is_same {
            return Err(format!("{how} answers {found:?}, on MongoDB {due:?}"));
        }
    }
    Ok(due.ok().map(|groups| groups.len()))
}

async fn pages(records: &dyn Records, mut query: GroupQuery) -> Result<Vec<Group>, RecordError> {
    let mut all = Vec::new();
    loop {
        let page = records.group(query.clone()).await?;
        all.extend(page.groups);
        match page.next {
            None => return Ok(all),
            Some(next) => query.after = Some(next),
        }
    }
}

fn same_group(a: &Group, b: &Group, largest: &[f64]) -> bool {
    let figures = || a.figures.iter().zip(&b.figures).zip(largest).all(|((a, b), largest)| same_value(a, b, *largest));
    same_value(&a.key, &b.key, 0.0) && a.count == b.count && a.figures.len() == b.figures.len() && figures()
}

/// Sums of doubles may differ in what is lost beside the largest of them, and in overflows: the server adds in another order.
fn same_value(a: &Bson, b: &Bson, largest: f64) -> bool {
    let encoded = |value: &Bson| order::encoded(RawBson::try_from(value.clone()).expect("a value").as_raw_bson_ref());
    match (a, b) {
        (Bson::Double(a), Bson::Double(b)) if a.is_finite() && b.is_finite() => (a - b).abs() <= 1e-12 * largest,
        (Bson::Double(a), Bson::Double(b)) => !a.is_finite() && !b.is_finite(),
        _ => encoded(a) == encoded(b),
    }
}

/// The largest number at a path, without its sign.
fn largest(documents: &[Document], path: &str) -> f64 {
    let number = |document: &Document| {
        let (inner, name) = path.rsplit_once('.').map_or((Some(document), path), |(above, name)| {
            let inner = above.split('.').try_fold(document, |inner, name| inner.get_document(name).ok());
            (inner, name)
        });
        match inner?.get(name)? {
            Bson::Int32(number) => Some(f64::from(*number)),
            Bson::Int64(number) => Some(*number as f64),
            Bson::Double(number) if number.is_finite() => Some(*number),
            _ => None,
        }
    };
    documents.iter().filter_map(number).map(f64::abs).fold(1e-300, f64::max)
}
