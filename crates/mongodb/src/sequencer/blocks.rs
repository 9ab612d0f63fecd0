//! Blocks of entries (`layout/block.rs`), behind the log and beside everything else: whoever leads writes one whenever a log has enough
//! commits behind the last. A log that is there already gets all of its own.

use std::convert::Infallible;
use std::time::Duration;

use annals_system::{Instant, sleep};

use super::Cluster;
use crate::log::blocks::Reach;

/// Between two looks, which ask the server only where a log has grown enough.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a log is left alone after an error, which nobody but readers of whole logs feels.
const LEFT_ALONE: Duration = Duration::from_secs(60);

/// Writes what is due, for ever.
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
                    tracing::warn!(%error, database, "blocks of entries could not be written; retrying in a minute");
                }
            }
        }
        // Of a log that is being brought up the commits get most of the time.
        pause = if written { begun.elapsed() * 2 } else { LOOK_EVERY };
    }
}
