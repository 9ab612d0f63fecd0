//! Leading: opens the stream where the logs stand, brings up what it does not cover, then takes what comes, batch by batch.

use std::collections::HashMap;
use std::time::Duration;

use annals_system::Instant;
use futures_util::future::try_join_all;
use tokio::sync::mpsc;

use super::place::Place;
use super::state::{Token, earlier};
use super::step::Step;
use super::stream::{self, Changed, Incoming, News, Stream};
use super::{Cluster, Ended, backlog, lease::Lease};
use crate::reach;

/// So many commits are taken out of the stream in one go, and what came together with the last of them.
const BATCH_MAX: usize = 1000;
/// How often the position is saved while nothing comes, so that the oplog does not run away from it.
const SAVE_EVERY: Duration = Duration::from_secs(10);

/// Leads until something ends it. `forgotten` says that the stored positions are of no use.
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
    let Opened { mut places, mut stream } = open(cluster, lease, epoch, forgotten).await?;
    let mut saved = Instant::now();
    loop {
        let Batch { commits, changed, asked, idle, ended } = next(&mut stream.news).await;
        let stored = commits.last().and_then(|commit| commit.stored);
        if !commits.is_empty() {
            (cluster.at_step)(Step::CommitsTaken);
        }
        take(&mut places, commits).await?;
        for changed in changed {
            let place = places.get(&changed.database);
            changed.report(place.is_some_and(|place| place.holds(&changed.collection, &changed.commit)));
        }
        for Held { database, collection, commit } in asked {
            if let Some(place) = places.get_mut(&database) {
                place.answer(&collection, &commit).await?;
            }
        }
        cluster.note_lag(stored.filter(|_| idle.is_none()));
        let due = saved.elapsed() >= SAVE_EVERY || places.values().any(|place| place.token.is_none());
        if let Some(token) = idle.filter(|_| due) {
            try_join_all(places.values().map(Place::look_for_others)).await?;
            if recovered(cluster, &places).await? {
                return Err(Ended::Deposed("a log that was disturbed can go on"));
            }
            try_join_all(places.values_mut().map(|place| place.save(&token))).await?;
            saved = Instant::now();
            (cluster.at_step)(Step::PositionSaved);
        }
        if let Some(ended) = ended {
            return Err(ended);
        }
    }
}

/// Logs that have all that came before the stream.
pub(super) struct Opened {
    pub(super) places: HashMap<String, Place>,
    pub(super) stream: Stream,
}

/// Opens the stream where the logs stand, and brings up what it does not cover.
pub(super) async fn open(cluster: &Cluster, lease: &Lease, epoch: i64, forgotten: bool) -> Result<Opened, Ended> {
    let mut places = HashMap::new();
    for log in &cluster.logs {
        match Place::open(cluster, log.clone(), forgotten).await {
            Ok(place) => drop(places.insert(log.database.name().to_owned(), place)),
            // No log waits for another: this one says itself that it is disturbed.
            Err(Ended::Disturbed(why)) => tracing::error!(why, "a log gets no numbers"),
            Err(ended) => return Err(ended),
        }
    }
    let after = places.values().filter_map(|place| place.token.clone()).reduce(earlier);
    let stream = stream::open(cluster, after.as_ref()).await?;
    (cluster.at_step)(Step::StreamOpened);
    // Acknowledged at majority and later than the stream's beginning: so whatever the stream does not show because it is older can be
    // read at majority from here on.
    let sessions = places.values().map(Place::session_id).collect();
    if !lease.note_sessions(epoch, sessions).await? {
        return Err(Ended::Deposed("another process has taken the lease"));
    }
    (cluster.at_step)(Step::SessionsNoted);
    for place in places.values_mut() {
        // First the stream, then the collections: what comes in between is in both, and known the second time.
        if place.token.is_none() {
            backlog::bring_up(place).await?;
            (cluster.at_step)(Step::BroughtUp);
            if let Some(start) = &stream.start {
                place.save(start).await?;
            }
        }
        place.retry_held().await?;
    }
    Ok(Opened { places, stream })
}

/// Whether a log that was left out because other software gave numbers is as it must be again.
async fn recovered(cluster: &Cluster, places: &HashMap<String, Place>) -> Result<bool, Ended> {
    for log in cluster.logs.iter().filter(|log| !places.contains_key(log.database.name())) {
        let reach = reach::read(&log.database).await?;
        if reach::fault(log.database.name(), &reach).is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What the stream had ready.
struct Batch {
    commits: Vec<Incoming>,
    /// What other software did to commits.
    changed: Vec<Changed>,
    /// Held commits that an operator asks for.
    asked: Vec<Held>,
    /// Where the stream stands behind them, if it has nothing more.
    idle: Option<Token>,
    ended: Option<Ended>,
}

/// A held commit of a log.
struct Held {
    database: String,
    collection: String,
    commit: String,
}

/// Waits for news and takes what is there with it.
async fn next(news: &mut mpsc::Receiver<Vec<News>>) -> Batch {
    let mut batch = Batch { commits: Vec::new(), changed: Vec::new(), asked: Vec::new(), idle: None, ended: None };
    let mut some = news.recv().await;
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
            News::Idle(token) => self.idle = token,
            News::Ended(ended) => self.ended = Some(ended),
        }
    }
}

/// Each log gets its own commits, in their order, and no log waits for another.
async fn take(places: &mut HashMap<String, Place>, commits: Vec<Incoming>) -> Result<(), Ended> {
    let mut of: HashMap<String, Vec<Incoming>> = HashMap::new();
    for commit in commits {
        of.entry(commit.database.clone()).or_default().push(commit);
    }
    let busy = places.iter_mut().filter_map(|(database, place)| Some((of.remove(database)?, place)));
    try_join_all(busy.map(|(commits, place)| place.sequence(commits))).await.map(|_| ())
}
