//! Leading: opens the change stream at the position of the logs, brings up the commits it does not cover, then processes batches of
//! commits.

use std::collections::HashMap;
use std::time::Duration;

use annals_system::Instant;
use futures_util::future::join_all;
use tokio::sync::mpsc;

use super::lease::{Lease, Stalled};
use super::place::Place;
use super::state::{Token, earlier};
use super::step::Step;
use super::stream::{self, Changed, Incoming, News, Replaced, Stream};
use super::{Cluster, Ended, backlog};
use crate::reach;

/// Commits after which a batch is complete; those received together with the last one are included.
const BATCH_MAX: usize = 1000;
/// How often the position is saved while the stream is idle, so that it stays within the oplog.
const SAVE_EVERY: Duration = Duration::from_secs(10);
/// How often logs that were put aside are checked.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Leads until something ends it. `forgotten` means that the stored positions cannot be used.
pub(super) async fn lead(cluster: &Cluster, lease: &Lease, epoch: i64, forgotten: bool) -> Ended {
    match work(cluster, lease, epoch, forgotten).await {
        Ok(never) => match never {},
        Err(ended) => ended,
    }
}

async fn work(
    cluster: &Cluster,
    lease: &Lease,
    epoch: i64,
    forgotten: bool,
) -> Result<std::convert::Infallible, Ended> {
    let opened = open(cluster, lease, epoch, forgotten).await?;
    let mut work = Work { cluster, lease, epoch, places: opened.places, stalled: opened.stalled };
    let (mut stream, mut saved, mut looked) = (opened.stream, Instant::now(), Instant::now());
    let mut more = false;
    loop {
        cluster.progress.rests();
        let Batch { commits, changed, asked, replaced, idle, ended } = next(&mut stream.news, more).await;
        cluster.progress.moves();
        let stored = commits.last().and_then(|commit| commit.stored);
        if !commits.is_empty() {
            (cluster.at_step)(Step::CommitsTaken);
        }
        let worked = !commits.is_empty() || idle.is_some();
        work.take(commits).await?;
        // Everything before the replacement is numbered or held. If a log is put aside, its request is repeated.
        for Replaced { database, collection, uuid } in replaced {
            if let Some(place) = work.places.get(&database) {
                let admitted = place.admit(&collection, uuid).await;
                work.aside_if_failed(&database, admitted)?;
            }
        }
        for changed in changed {
            let place = work.places.get(&changed.database);
            changed.report(place.is_some_and(|place| place.holds(&changed.collection, &changed.commit)));
        }
        for Held { database, collection, commit } in asked {
            if let Some(place) = work.places.get_mut(&database) {
                let answered = place.answer(&collection, &commit).await;
                work.aside_if_failed(&database, answered.map(drop))?;
            }
        }
        more = work.release().await?;
        cluster.note_lag(stored.filter(|_| idle.is_none()));
        if worked {
            lease.tell(epoch, &work.stalled).await?;
        }
        let due = saved.elapsed() >= SAVE_EVERY || work.places.values().any(|place| place.token.is_none());
        if let Some(token) = idle.filter(|_| due) {
            work.save(&token).await?;
            saved = Instant::now();
            (cluster.at_step)(Step::PositionSaved);
        }
        if looked.elapsed() >= LOOK_EVERY {
            if work.can_go_on().await? {
                return Err(Ended::Deposed("a log that was put aside can go on"));
            }
            looked = Instant::now();
        }
        if let Some(ended) = ended {
            return Err(ended);
        }
    }
}

/// The logs of all tenants. INVARIANT: a log that fails does not affect the others; it is put aside and retried later.
struct Work<'a> {
    cluster: &'a Cluster,
    lease: &'a Lease,
    epoch: i64,
    places: HashMap<String, Place>,
    stalled: Stalled,
}

impl Work<'_> {
    /// Passes its commits to each log, in order.
    async fn take(&mut self, commits: Vec<Incoming>) -> Result<(), Ended> {
        let mut of: HashMap<String, Vec<Incoming>> = HashMap::new();
        for commit in commits {
            of.entry(commit.database.clone()).or_default().push(commit);
        }
        let busy = self.places.iter_mut().filter_map(|(database, place)| Some((of.remove(database)?, database, place)));
        let taken = busy.map(|(commits, database, place)| async { (database.clone(), place.sequence(commits).await) });
        for (database, taken) in join_all(taken).await {
            self.aside_if_failed(&database, taken)?;
        }
        Ok(())
    }

    /// Releases held commits that are ready, a limited number at a time. Returns whether there may be more.
    async fn release(&mut self) -> Result<bool, Ended> {
        let released =
            self.places.iter_mut().map(|(database, place)| async { (database.clone(), place.release().await) });
        let mut more = false;
        for (database, released) in join_all(released).await {
            more |= matches!(released, Ok(true));
            self.aside_if_failed(&database, released.map(drop))?;
        }
        Ok(more)
    }

    async fn save(&mut self, token: &Token) -> Result<(), Ended> {
        let saved =
            self.places.iter_mut().map(|(database, place)| async { (database.clone(), place.save(token).await) });
        for (database, saved) in join_all(saved).await {
            self.aside_if_failed(&database, saved)?;
        }
        Ok(())
    }

    /// Puts a log aside if it failed for a reason that concerns only this log.
    fn aside_if_failed(&mut self, database: &str, done: Result<(), Ended>) -> Result<(), Ended> {
        if let Err(ended) = done {
            let why = ended.of_one()?;
            put_aside(self.cluster, database, &why);
            self.places.remove(database);
            self.stalled.insert(database.to_owned(), why);
        }
        Ok(())
    }

    /// Returns whether a log that was put aside is consistent again and its pause is over.
    async fn can_go_on(&mut self) -> Result<bool, Ended> {
        let aside: Vec<_> =
            self.cluster.logs.iter().filter(|log| !self.places.contains_key(log.database.name())).collect();
        if aside.is_empty() {
            return Ok(false);
        }
        self.lease.tell(self.epoch, &self.stalled).await?;
        for log in aside {
            let reach = reach::read(&log.database).await;
            let is_due = matches!(reach, Ok(reach) if reach::fault_of_open(log.database.name(), &reach).is_none());
            if is_due && self.cluster.may_try(log.database.name()) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn put_aside(cluster: &Cluster, database: &str, why: &str) {
    tracing::error!(database, why, "a log gets no numbers; the others go on, and it is tried again");
    cluster.put_aside(database);
}

/// The logs after everything older than the stream was brought up.
pub(super) struct Opened {
    pub(super) places: HashMap<String, Place>,
    pub(super) stream: Stream,
    /// Logs that cannot get sequence numbers.
    pub(super) stalled: Stalled,
}

/// Opens the stream at the earliest position of the logs, and brings up the commits it does not cover.
pub(super) async fn open(cluster: &Cluster, lease: &Lease, epoch: i64, forgotten: bool) -> Result<Opened, Ended> {
    cluster.progress.moves();
    let (mut places, mut stalled) = (HashMap::new(), Stalled::new());
    for log in &cluster.logs {
        let database = log.database.name();
        // The position of a log that was put aside may be old, and the stream of the other logs must not go back that far.
        let forgotten = forgotten || cluster.was_aside(database);
        match Place::open(cluster, lease, log.clone(), forgotten).await {
            Ok(place) => drop(places.insert(database.to_owned(), place)),
            Err(ended) => {
                let why = ended.of_one()?;
                put_aside(cluster, database, &why);
                stalled.insert(database.to_owned(), why);
            }
        }
    }
    let after = places.values().filter_map(|place| place.token.clone()).reduce(earlier);
    let stream = stream::open(cluster, after.as_ref()).await?;
    (cluster.at_step)(Step::StreamOpened);
    // INVARIANT: this write is acknowledged by a majority and later than the start of the stream. So everything that is too old for the
    // stream can be read with read concern majority from here on.
    let sessions = places.values().map(Place::session_id).collect();
    if !lease.note_sessions(epoch, sessions).await? {
        return Err(Ended::Deposed("another process has taken the lease"));
    }
    (cluster.at_step)(Step::SessionsNoted);
    let mut failed = Vec::new();
    for (database, place) in &mut places {
        cluster.progress.moves();
        if let Err(ended) = bring_up(cluster, place, stream.start.as_ref()).await {
            failed.push((database.clone(), ended.of_one()?));
        }
    }
    for (database, why) in failed {
        put_aside(cluster, &database, &why);
        places.remove(&database);
        stalled.insert(database, why);
    }
    Ok(Opened { places, stream, stalled })
}

async fn bring_up(cluster: &Cluster, place: &mut Place, start: Option<&Token>) -> Result<(), Ended> {
    // The stream is open before the collections are read: a commit stored in between is in both, and is recognised the second time.
    if place.token.is_none() {
        backlog::bring_up(place).await?;
        (cluster.at_step)(Step::BroughtUp);
        if let Some(start) = start {
            place.save(start).await?;
        }
    }
    place.retry_held().await?;
    while place.release().await? {
        cluster.progress.moves();
    }
    cluster.goes_on(place.log.database.name());
    Ok(())
}

/// What the stream had ready.
#[derive(Default)]
struct Batch {
    commits: Vec<Incoming>,
    /// Changes that other software made to commits.
    changed: Vec<Changed>,
    /// Held commits with a request of an operator.
    asked: Vec<Held>,
    /// Collections to be admitted.
    replaced: Vec<Replaced>,
    /// The position of the stream after this batch, if nothing more is pending.
    idle: Option<Token>,
    ended: Option<Ended>,
}

/// A held commit with a request of an operator.
struct Held {
    database: String,
    collection: String,
    commit: String,
}

/// Waits for news and takes all that are ready. With `more`, returns at once if none are.
async fn next(news: &mut mpsc::Receiver<Vec<News>>, more: bool) -> Batch {
    let mut batch = Batch::default();
    let mut some = match news.try_recv() {
        Ok(some) => Some(some),
        Err(mpsc::error::TryRecvError::Empty) if more => return batch,
        Err(_) => news.recv().await,
    };
    loop {
        match some {
            Some(some) => some.into_iter().for_each(|one| batch.add(one)),
            None => batch.ended = Some(Ended::Deposed("the change stream's reader has ended")),
        }
        if batch.ended.is_some() || batch.commits.len() >= BATCH_MAX {
            return batch;
        }
        match news.try_recv() {
            Ok(more) => some = Some(more),
            Err(_) => return batch,
        }
    }
}

impl Batch {
    fn add(&mut self, one: News) {
        match one {
            News::Commit(commit) => {
                self.commits.push(commit);
                self.idle = None;
            }
            News::Changed(changed) => self.changed.push(changed),
            News::Asked { database, collection, commit } => self.asked.push(Held { database, collection, commit }),
            News::Replaced(replaced) => self.replaced.push(replaced),
            News::Idle(token) => self.idle = token,
            News::Ended(ended) => self.ended = Some(ended),
        }
    }
}
