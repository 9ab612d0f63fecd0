//! What tells a running command to stop.

use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;

/// Waits for SIGTERM or SIGINT (Ctrl-C). The signals are caught from the first poll on.
pub async fn stop() -> Result<(), Failure> {
    let fault = |error| Failure::internal(format!("signals cannot be caught: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(fault)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(fault)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
