//! Measures queries of many snapshots by declared indexes: how much each store examines, the time beside the bare driver, and the cost of
//! compiling a condition into a filter.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use annals_core::{
    Aggregate, Condition, DEFAULT_TENANT, Data, DocumentKind, Index, Now, RecordChange, RecordQuery, Records, Snapshot,
    Timestamp, snapshot_collection,
};
use mongodb::bson::{Document, RawDocumentBuf, doc};

use super::backends::{Backed, Backend};
use super::figures::Figures;
use super::{Arguments, Place, sample, text};
use crate::cell::{self, Cell, Commits};

/// Snapshots of one customer: the result of an equality.
const OF_A_CUSTOMER: u64 = 10;
/// The size of a page of a range.
const PAGE: usize = 20;
/// Documents that are written at once.
const AT_ONCE: u64 = 2_000;
/// Queries whose plans are examined.
const EXPLAINED: u64 = 100;
/// Conditions that are compiled into filters.
const COMPILED: u32 = 20_000;

/// The query.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// The snapshots of one customer.
    Equality,
    /// A page of those whose total lies in a range, lowest first.
    Range,
}

impl Asked {
    pub const ALL: [Self; 2] = [Self::Equality, Self::Range];

    pub fn name(self) -> &'static str {
        match self {
            Self::Equality => "equality",
            Self::Range => "range",
        }
    }

    fn condition(self, n: u64, all: u64) -> Condition {
        let condition = match self {
            Self::Equality => Condition::eq("state.customer", customer(n % all)),
            Self::Range => {
                let low = (n % all) as i64;
                Condition::between("state.total", low, low + 100)
            }
        };
        condition.guarded()
    }

    fn query(self, n: u64, all: u64) -> RecordQuery {
        let query = RecordQuery::new(collection()).matching(self.condition(n, all));
        match self {
            Self::Equality => query,
            Self::Range => query.ascending("state.total").limit(PAGE),
        }
    }
}

/// The system that is queried.
#[derive(Clone, Copy)]
pub enum Side {
    Store(Backend),
    Bare,
}

impl Side {
    pub const ALL: [Self; 3] = [Self::Store(Backend::Embedded), Self::Store(Backend::MongoDb), Self::Bare];

    fn name(self) -> &'static str {
        match self {
            Self::Store(backend) => backend.name(),
            Self::Bare => "bare driver",
        }
    }

    /// Returns the name of the figure for the time of one query.
    pub fn figure(self, asked: Asked) -> String {
        format!("{}: {} p50 µs", self.name(), asked.name())
    }
}

/// The figure for compiling a condition into a filter.
pub const COMPILER: &str = "condition to filter µs";

fn collection() -> String {
    snapshot_collection(sample::NAME).unwrap_or_default()
}

fn customer(n: u64) -> String {
    format!("c-{:07}", n / OF_A_CUSTOMER)
}

pub async fn measure(place: &Place, arguments: &Arguments, figures: &mut Figures) -> Result<(), String> {
    let embedded = Backend::Embedded.open(place).await?;
    let mongodb = Backend::MongoDb.open(place).await?;
    for (backend, backed) in [(Backend::Embedded, &embedded), (Backend::MongoDb, &mongodb)] {
        let begun = Instant::now();
        fill(place, backed, arguments.snapshots).await?;
        figures.add(&format!("{}: loading the snapshots s", backend.name()), begun.elapsed().as_secs_f64());
        eprintln!("{} snapshots are in the store ({})", arguments.snapshots, backend.name());
        examined(backed, backend, arguments.snapshots, figures).await?;
    }
    for round in 0..arguments.rounds {
        for asked in Asked::ALL {
            for turn in 0..Side::ALL.len() {
                let side = Side::ALL[(round + turn) % Side::ALL.len()];
                let asker = match side {
                    Side::Store(Backend::Embedded) => Asker::through(&embedded)?,
                    Side::Store(Backend::MongoDb) => Asker::through(&mongodb)?,
                    Side::Bare => Asker::Bare(place.client.database("annals_bench_both").collection(&collection())),
                };
                let cell = Cell::new(arguments.seconds);
                let all = arguments.snapshots;
                let asking = Asking { asker, asked, all, random: fastrand::Rng::with_seed(round as u64) };
                let measured = cell::run(&cell, vec![asking]).await?;
                figures.add(&side.figure(asked), measured.latency_us(0.5));
            }
        }
        figures.add(COMPILER, compiled(arguments.snapshots)?);
    }
    embedded.close(place).await?;
    mongodb.close(place).await
}

/// Declares the indexes of the snapshots and stores many of them: copies of a document that a store wrote, with other ids and states.
async fn fill(place: &Place, backed: &Backed, count: u64) -> Result<(), String> {
    let snapshots = backed.store().snapshots(DEFAULT_TENANT).map_err(text)?;
    let indexes = ["state.customer", "state.total"].map(|path| Index::on(path).into()).to_vec();
    snapshots.declare(sample::NAME, indexes).await.map_err(text)?;
    let records = backed.store().records(DEFAULT_TENANT).map_err(text)?;
    let first = Snapshot::new(Aggregate::new(sample::NAME, "first"), 1, Data::empty());
    snapshots.save(&first).await.map_err(text)?;
    let sample = records.get(&collection(), &"first".into()).await.map_err(text)?.ok_or("nothing was saved")?;
    let sample = Document::try_from(&*sample.document).map_err(text)?;
    snapshots.delete(&first.info.aggregate, None).await.map_err(text)?;
    let mut next = 0;
    while next < count {
        let end = (next + AT_ONCE).min(count);
        let documents = (next..end).map(|n| document(&sample, n, count)).collect::<Result<Vec<_>, _>>()?;
        match backed {
            Backed::Embedded(..) => {
                let changes = documents.into_iter().map(|document| RecordChange::insert(collection(), document));
                records.write(changes.collect()).await.map_err(text)?;
            }
            // Written as other software would: a transaction for each would take hours.
            Backed::MongoDb(opened) => {
                let bare = place.client.database(&opened.name).collection::<RawDocumentBuf>(&collection());
                bare.insert_many(documents).ordered(false).await.map_err(text)?;
            }
        }
        next = end;
    }
    Ok(())
}

fn document(sample: &Document, n: u64, count: u64) -> Result<RawDocumentBuf, String> {
    let mut document = sample.clone();
    document.insert("_id", format!("o-{n:09}"));
    document.insert("version", 1 + (n % 100) as i32);
    // Neighbours in one index are far apart in the other.
    document.insert("state", doc! {
        "customer": customer(n), "total": (n * 7_919 % count) as i64, "currency": "EUR", "note": "leave it at the door, please",
    });
    RawDocumentBuf::try_from(&document).map_err(text)
}

/// Measures how many documents an equality examines beyond those that it finds, at most.
async fn examined(backed: &Backed, backend: Backend, all: u64, figures: &mut Figures) -> Result<(), String> {
    let records = backed.store().records(DEFAULT_TENANT).map_err(text)?;
    let mut beyond = 0;
    for n in 0..EXPLAINED {
        let explained = records.explain(Asked::Equality.query(n * 7_919, all)).await.map_err(text)?;
        if explained.found != OF_A_CUSTOMER.min(all) {
            return Err(format!("an equality finds {} snapshots", explained.found));
        }
        beyond = beyond.max(explained.documents_examined.saturating_sub(explained.found));
    }
    figures.add(
        &format!("{}: documents examined beyond the results of an equality (meant: ≤ 1)", backend.name()),
        beyond as f64,
    );
    Ok(())
}

enum Asker {
    Store(Arc<dyn Records>),
    Bare(mongodb::Collection<RawDocumentBuf>),
}

impl Asker {
    fn through(backed: &Backed) -> Result<Self, String> {
        backed.store().records(DEFAULT_TENANT).map(Self::Store).map_err(text)
    }
}

/// A caller that queries one customer or range after the other.
struct Asking {
    asker: Asker,
    asked: Asked,
    all: u64,
    random: fastrand::Rng,
}

impl Commits for Asking {
    async fn commit(&mut self) -> Result<(), String> {
        let n = self.random.u64(0..self.all);
        let query = self.asked.query(n, self.all);
        let found = match &self.asker {
            Asker::Store(records) => records.find(query).await.map_err(text)?.records.len(),
            Asker::Bare(bare) => {
                let filter = annals_mongodb::filter_of(&query.condition).ok_or("no filter")?;
                let sort = match self.asked {
                    Asked::Equality => doc! { "_id": 1 },
                    Asked::Range => doc! { "state.total": 1, "_id": 1 },
                };
                let mut cursor = bare.find(filter).sort(sort).limit(query.limit as i64).await.map_err(text)?;
                let mut found = 0;
                while cursor.advance().await.map_err(text)? {
                    found += usize::from(black_box(cursor.current()).as_bytes().len() > 5);
                }
                found
            }
        };
        match found {
            0 => Err(format!("{} finds nothing", self.asked.name())),
            _ => Ok(()),
        }
    }
}

/// Returns the microseconds to compile a parsed condition into the filter that is sent.
fn compiled(all: u64) -> Result<f64, String> {
    let condition = Asked::Equality.condition(7, all);
    let now = Now::utc(Timestamp::from_millis(1_700_000_000_000));
    let begun = Instant::now();
    for _ in 0..COMPILED {
        let resolved = black_box(&condition).resolved(DocumentKind::Snapshot, &now).map_err(text)?;
        resolved.validate().map_err(text)?;
        black_box(annals_mongodb::filter_of(&resolved));
    }
    Ok(begun.elapsed().as_secs_f64() * 1e6 / f64::from(COMPILED))
}
