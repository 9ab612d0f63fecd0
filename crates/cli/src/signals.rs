//! The signals that stop a running command, and one that must not.

use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;

/// SIGXFSZ, which has this number on every Unix that has it.
const FILE_TOO_LARGE: i32 = 25;

/// Makes a write beyond the largest size of a file (`ulimit -f`) fail with an error that names the file. By default it ends the process.
pub fn survive_large_files() -> Result<(), Failure> {
    // The signal stays caught when its receiver is dropped.
    signal(SignalKind::from_raw(FILE_TOO_LARGE)).map(drop).map_err(not_installed)
}

fn not_installed(error: std::io::Error) -> Failure {
    Failure::internal(format!("signal handlers cannot be installed: {error}"))
}

/// Waits for SIGTERM or SIGINT (Ctrl-C), which are caught from the first poll on.
pub async fn stop() -> Result<(), Failure> {
    caught()?.await;
    Ok(())
}

/// Catches SIGTERM and SIGINT from now on, and returns a future that waits for one of them.
pub fn caught() -> Result<impl Future<Output = ()>, Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(not_installed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(not_installed)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
