//! What happens inside, on standard error.

use std::io;

use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, LogSection};
use crate::failure::Failure;

/// Starts logging as configured. Call it once.
pub fn start(section: &LogSection) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&section.level)
        .map_err(|error| Failure::config(format!("log.level: {:?} is not a level: {error}", section.level)))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match section.format {
        LogFormat::Text => builder.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).init(),
        LogFormat::Json => builder.json().init(),
    }
    Ok(())
}
