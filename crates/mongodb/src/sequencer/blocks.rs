//! Writes blocks of entries (`layout/block.rs`) in the background: the leader writes one whenever a log has enough commits after its last
//! block. An existing log gets blocks for all of its entries.

use std::convert::Infallible;
use std::time::Duration;

use annals_system::{Instant, sleep};

use super::Cluster;
use crate::log::blocks::Reach;

/// Interval between two checks. They query the server only if a log has grown enough.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pause after an error, which affects only readers of whole logs.
const LEFT_ALONE: Duration = Duration::from_secs(60);

/// Writes blocks that are due, forever.
pub(super) async fn write(cluster: &Cluster) -> Infallible {
    let mut logs: Vec<_> = cluster.logs.iter().map(|log| (log, Reach::default(), Instant::now())).collect();
    let mut pause = LOOK_EVERY;
    loop {
        sleep(pause).await;
        let begun = Instant::now();
        let mut written = false;
        for (log, reach, due) in logs.iter_mut().filter(|(_, _, due)| *due <= begun) {
            match log.means.answers.of(log.extend_blocks(reach)).await {
                Ok(more) => written |= more,
                Err(error) => {
                    *due = Instant::now() + LEFT_ALONE;
                    let database = log.database.name();
                    tracing::warn!(%error, database, "blocks of entries are not written; it is tried again in a minute");
                }
            }
        }
        // While a log is being brought up, commits get most of the time.
        pause = if written { begun.elapsed() * 2 } else { LOOK_EVERY };
    }
}
