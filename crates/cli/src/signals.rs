//! The signals that stop a running command.

use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;

/// Waits for SIGTERM or SIGINT (Ctrl-C), which are caught from the first poll on.
pub async fn stop() -> Result<(), Failure> {
    caught()?.await;
    Ok(())
}

/// Catches SIGTERM and SIGINT from now on, and returns a future that waits for one of them.
pub fn caught() -> Result<impl Future<Output = ()>, Failure> {
    let fault = |error| Failure::internal(format!("signal handlers cannot be installed: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(fault)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(fault)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
