//! One term as leader without following the stream: assigns numbers to all existing commits and ends.

use std::time::Duration;

use annals_core::{Code, OpenError};
use annals_system::sleep;
use mongodb::Database;

use super::lease::Lease;
use super::progress::Progress;
use super::{Cluster, Ended, lead, step};
use crate::refused::asking;

/// The duration of the lease.
const HOLDS: Duration = Duration::from_secs(3);
/// Interval between two attempts to take the lease.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Attempts to take a lease that another process holds: enough to outlast the lease of a process that was killed.
const TRIES: usize = 6;

/// A lease that was taken.
pub(crate) struct Turn {
    lease: Lease,
    epoch: i64,
    database: Database,
}

impl Turn {
    /// Takes the lease that is stored in `database`.
    ///
    /// # Errors
    /// `store_locked` if another process keeps it; `unreachable`.
    pub(crate) async fn take(database: Database, holder: String) -> Result<Self, OpenError> {
        let lease = Lease::new(database.clone(), holder, HOLDS, step::nothing);
        for _ in 0..TRIES {
            if let Some(epoch) = lease.take().await.map_err(|error| asking(database.name(), &error))? {
                return Ok(Self { lease, epoch, database });
            }
            sleep(ASK_EVERY).await;
        }
        let message =
            format!("a process of Annals has the store in database {} open, and gives numbers", database.name());
        Err(OpenError::new(Code::StoreLocked, message))
    }

    /// Runs `work` as long as the lease is kept.
    ///
    /// # Errors
    /// `store_locked` if the lease is lost; the errors of `work`.
    pub(crate) async fn keep<T>(&self, work: impl Future<Output = Result<T, OpenError>>) -> Result<T, OpenError> {
        // The progress is not reported, because only existing commits are brought up.
        let progress = Progress::default();
        let worked = tokio::select! {
            lost = self.lease.keep(self.epoch, &progress) => {
                Err(OpenError::new(Code::StoreLocked, format!("database {}: {lost}", self.database.name())))
            }
            worked = work => worked,
        };
        self.lease.release(self.epoch).await;
        worked
    }

    /// Assigns numbers to every commit that has none and can have them.
    ///
    /// # Errors
    /// `foreign_numbers`, `store_locked`, `store_damaged`, `unreachable`.
    pub(crate) async fn bring_up(&self, cluster: &Cluster) -> Result<(), OpenError> {
        let name = self.database.name();
        // The position in the change stream does not matter: every commit in the collections is looked up in the log.
        let ended = match lead::open(cluster, &self.lease, self.epoch, true).await {
            Ok(opened) => match opened.stalled.into_values().next() {
                None => return Ok(()),
                Some(why) => Ended::Disturbed(why),
            },
            Err(ended) => ended,
        };
        Err(match ended {
            Ended::Disturbed(why) => OpenError::new(Code::ForeignNumbers, why),
            Ended::Damaged(why) => OpenError::new(Code::StoreDamaged, format!("database {name}: {why}")),
            Ended::Failed(error) => asking(name, &error),
            Ended::Deposed(why) => OpenError::new(Code::StoreLocked, format!("database {name}: {why}")),
            Ended::Stopped | Ended::Forgotten => {
                OpenError::new(Code::Unreachable, format!("database {name}: the change stream cannot be opened"))
            }
        })
    }
}
