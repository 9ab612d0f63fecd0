//! The fault battery of records: clients on a failing disk, life after life.
//!
//! Accounts hold 10 each at first, and clients move money between two of them in one batch, if both are as they were read. So whatever
//! happens, the sum stays; each change of an account has a number that was told or not; and whatever anybody was told in any life, a
//! revision or a record or a change, must hold in all later ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use annals_core::bson::{RawDocumentBuf, doc};
use annals_core::{
    Collection, Condition, DEFAULT_TENANT, Expected, Index, Record, RecordChange, RecordError, RecordQuery,
    RecordedChange, Records, Revision, Store, limits,
};
use annals_embedded::Options;
use tokio::task::JoinSet;

use crate::faulty_disk::Fault;
use crate::lives::{self, Broken, Lives, WHILE_HELD, run_seeds};
use crate::stores::{Opened, block_on, repeatable};

const ACCOUNTS: &str = "accounts";
const COUNT: i32 = 8;
const CLIENTS: usize = 4;
const MOVES: usize = 30;

/// What anybody was told.
#[derive(Default)]
struct Facts {
    /// By revision: which account, and what it held.
    states: Mutex<BTreeMap<Revision, (i32, i64)>>,
    changes: Mutex<BTreeMap<Revision, RecordedChange>>,
    broken: Broken,
}

impl Facts {
    fn state(&self, revision: Revision, account: i32, balance: i64) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = states.insert(revision, (account, balance))
            && before != (account, balance)
        {
            self.broken.breaks(format!("revision {revision} was {before:?}, and then {:?}", (account, balance)));
        }
    }

    fn changes(&self, seen: Vec<RecordedChange>) {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        for change in seen {
            if let Some(before) = changes.insert(change.number, change.clone())
                && before != change
            {
                self.broken.breaks(format!("{before:?} was told, and then {change:?}"));
            }
        }
    }
}

/// An account; the larger, the sooner the file has to grow.
fn account(id: i32, balance: i64) -> RawDocumentBuf {
    let size = if id % 2 == 0 { 60_000 } else { 10 };
    let document = doc! { "_id": id, "balance": balance, "name": format!("account {id}"), "text": "x".repeat(size) };
    RawDocumentBuf::try_from(&document).expect("a document")
}

fn parts(record: &Record) -> (i32, i64) {
    let field = |error| panic!("a field is missing: {error}");
    let id = record.document.get_i32("_id").unwrap_or_else(field);
    (id, record.document.get_i64("balance").unwrap_or_else(|error| panic!("a field is missing: {error}")))
}

fn records_of(opened: &Opened) -> Arc<dyn Records> {
    opened.store.records(DEFAULT_TENANT).expect("the tenant is declared")
}

async fn declare(records: &Arc<dyn Records>) -> Result<(), RecordError> {
    let collection =
        Collection::new(ACCOUNTS).with_feed().index(Index::on("balance")).index(Index::on("name").unique());
    records.declare(collection).await?;
    let accounts = (0..COUNT).map(|id| RecordChange::insert(ACCOUNTS, account(id, 10))).collect();
    match records.write(accounts).await {
        Ok(_) | Err(RecordError::DuplicateKey { .. }) => Ok(()),
        Err(other) => Err(other),
    }
}

/// Moves money between accounts, if both are as they were read; now and then in a batch that must be refused.
async fn client(records: Arc<dyn Records>, facts: Arc<Facts>, mut random: fastrand::Rng) {
    for _ in 0..MOVES {
        let from = random.i32(0..COUNT);
        let to = (from + random.i32(1..COUNT)) % COUNT;
        let (Ok(Some(a)), Ok(Some(b))) =
            (records.get(ACCOUNTS, &from.into()).await, records.get(ACCOUNTS, &to.into()).await)
        else {
            return;
        };
        let ((_, balance_a), (_, balance_b)) = (parts(&a), parts(&b));
        facts.state(a.revision, from, balance_a);
        facts.state(b.revision, to, balance_b);
        let amount = random.i64(1..5);
        let after = [(from, balance_a - amount), (to, balance_b + amount)];
        let mut changes = vec![
            RecordChange::replace_if(ACCOUNTS, account(from, after[0].1), Expected::Revision(a.revision)),
            RecordChange::replace_if(ACCOUNTS, account(to, after[1].1), Expected::Revision(b.revision)),
        ];
        if random.u8(0..5) == 0 {
            // Nobody has the name of another; so the money must not move.
            changes.push(RecordChange::insert(ACCOUNTS, account(from, 1_000)));
        }
        match records.write(changes).await {
            Ok(numbers) => {
                numbers.iter().zip(after).for_each(|(number, (id, balance))| facts.state(*number, id, balance))
            }
            Err(RecordError::NotAsExpected { .. } | RecordError::DuplicateKey { .. }) => {}
            Err(RecordError::Store(_)) => return,
            Err(other) => return facts.broken.breaks(format!("{from} to {to}: {other}")),
        }
    }
}

/// Reads everything again and again, so that whatever can be seen is told to somebody.
async fn reader(records: Arc<dyn Records>, facts: Arc<Facts>) {
    let mut after = 0;
    loop {
        let query = RecordQuery::new(ACCOUNTS).matching(Condition::exists("balance")).descending("balance");
        let Ok(page) = records.find(query).await else { return };
        let sum: i64 = page.records.iter().map(|record| parts(record).1).sum();
        if page.records.len() != COUNT as usize || sum != 10 * i64::from(COUNT) {
            return facts.broken.breaks(format!("a reader saw {} accounts and {sum} in all", page.records.len()));
        }
        page.records.iter().for_each(|record| facts.state(record.revision, parts(record).0, parts(record).1));
        let Ok(changes) = records.changes(ACCOUNTS, after, limits::PAGE_MAX).await else { return };
        after = changes.last().map_or(after, |last| last.number);
        facts.changes(changes);
        tokio::task::yield_now().await;
    }
}

/// What the lives of one seed have told.
#[derive(Default)]
pub struct Battery {
    facts: Arc<Facts>,
}

impl lives::Battery for Battery {
    /// Changes of accounts that were told.
    type Checked = usize;

    fn begin(random: &mut fastrand::Rng, change: &dyn Fn(&mut Options)) -> (Self, Options) {
        let mut options = repeatable(random.u64(..));
        // Moved after every batch, after a few, or never before the end.
        options.journal_bytes_max = [1, 300_000, usize::MAX][random.usize(0..3)];
        change(&mut options);
        (Self::default(), options)
    }

    async fn live(&mut self, lives: &mut Lives, _: usize) -> Result<(), String> {
        let fault = lives.any_fault();
        let early = lives.random.u8(0..3) == 0;
        let (operation, power_stays) = (lives.random.u64(0..if early { 60 } else { 400 }), lives.random.bool());
        // Opening is done in place, so a sync that hangs would hang this test with it.
        if fault != Fault::Hold {
            lives.plan(operation, fault);
        }
        // An early fault may meet the opening itself, which may then fail, but never take anything away.
        let opened = match lives.open() {
            Ok(opened) => opened,
            Err(error) if lives.disk.fired().is_empty() => return Err(format!("it did not open: {error}")),
            Err(_) => {
                lives.end(power_stays);
                return Ok(());
            }
        };
        if fault == Fault::Hold {
            lives.plan(operation, fault);
        }
        let records = records_of(&opened);
        let declared = tokio::time::timeout(WHILE_HELD * 100, declare(&records)).await;
        if declared.is_ok_and(|declared| declared.is_ok()) {
            let (mut clients, mut readers) = (JoinSet::new(), JoinSet::new());
            for _ in 0..CLIENTS {
                clients.spawn(client(records.clone(), self.facts.clone(), lives.random.fork()));
            }
            readers.spawn(reader(records.clone(), self.facts.clone()));
            lives.watch(clients, readers).await?;
        }
        lives.close_now_and_then(&opened.store).await?;
        lives.end(power_stays);
        self.facts.broken.unbroken()
    }

    /// Opens the store without faults, and compares everything with what it must be and with what was told.
    async fn check(&mut self, lives: &mut Lives) -> Result<usize, String> {
        let opened = lives.open()?;
        let records = records_of(&opened);
        let failed = |error: RecordError| error.to_string();
        declare(&records).await.map_err(failed)?;
        let accounts = records.find(RecordQuery::new(ACCOUNTS)).await.map_err(failed)?.records;
        let sum: i64 = accounts.iter().map(|record| parts(record).1).sum();
        if accounts.len() != COUNT as usize || sum != 10 * i64::from(COUNT) {
            return Err(format!("there are {} accounts with {sum} in all", accounts.len()));
        }
        for record in &accounts {
            let (id, balance) = parts(record);
            let by_index = RecordQuery::new(ACCOUNTS).matching(Condition::eq("balance", balance));
            let found = records.find(by_index).await.map_err(failed)?.records;
            let expected: Vec<_> = accounts.iter().filter(|other| parts(other).1 == balance).cloned().collect();
            if found != expected {
                return Err(format!("the index finds {found:?} by {balance}, not {expected:?}"));
            }
            let newest = self.newest_told(id);
            if newest.is_some_and(|(revision, told)| {
                revision > record.revision || (revision == record.revision && told != balance)
            }) {
                return Err(format!("account {id} is {balance} by {}, but {newest:?} was told", record.revision));
            }
            self.facts.state(record.revision, id, balance);
        }
        self.compare_changes(&records).await?;
        self.facts.broken.unbroken()?;
        Ok(self.facts.states.lock().unwrap_or_else(PoisonError::into_inner).len())
    }

    fn add(sum: &mut usize, seed: usize) {
        *sum += seed;
    }
}

impl Battery {
    fn newest_told(&self, account: i32) -> Option<(Revision, i64)> {
        let states = self.facts.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.iter().rev().find(|(_, (id, _))| *id == account).map(|(revision, (_, balance))| (*revision, *balance))
    }

    /// Every change that was told, or was answered to a writer, is there; numbers go up and each account's last is its revision.
    async fn compare_changes(&self, records: &Arc<dyn Records>) -> Result<(), String> {
        let mut all: Vec<RecordedChange> = Vec::new();
        loop {
            let after = all.last().map_or(0, |last| last.number);
            let page = records.changes(ACCOUNTS, after, limits::PAGE_MAX).await.map_err(|error| error.to_string())?;
            if page.is_empty() {
                break;
            }
            all.extend(page);
        }
        let there: BTreeMap<Revision, &RecordedChange> = all.iter().map(|change| (change.number, change)).collect();
        let told = self.facts.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, lost)) = told.iter().find(|(number, told)| there.get(number) != Some(told)) {
            return Err(format!("{lost:?} was told and is not there"));
        }
        let states = self.facts.states.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |number: &Revision| there.get(number).and_then(|change| change.id.as_i32());
        if let Some((number, state)) = states.iter().find(|(number, (id, _))| of(number) != Some(*id)) {
            return Err(format!("revision {number} of {state:?} was told and is no change of it"));
        }
        Ok(())
    }
}

#[test]
fn whatever_the_disk_does_records_keep_what_was_told() {
    let done = block_on(run_seeds::<Battery>(0..120, |_| {})).unwrap_or_else(|broken| panic!("{broken}"));
    assert!(done.checked > 5_000 && done.faults > 100, "{done:?}");
}
