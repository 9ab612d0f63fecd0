//! Logs to standard error.

use std::io;

use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, LogSection};
use crate::failure::Failure;

/// Refuses an unknown level. The filter would take a misspelt one for the name of a module and log nothing.
fn valid_level(text: &str) -> Result<(), Failure> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    for directive in text.split(',') {
        let level = directive.rsplit_once('=').map_or(directive, |(_, level)| level).trim();
        if !LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level)) {
            let message = format!(
                "log.level: {level:?} in {text:?} is not a level; write one of {}, or a list with levels of single modules such as \
                 info,annals_server=debug",
                LEVELS.join(", ")
            );
            return Err(Failure::config(message));
        }
    }
    Ok(())
}

/// Starts logging as configured. Call it once.
pub fn start(section: &LogSection) -> Result<(), Failure> {
    valid_level(&section.level)?;
    let filter = EnvFilter::try_new(&section.level)
        .map_err(|error| Failure::config(format!("log.level: {:?} is not a level: {error}", section.level)))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match section.format {
        LogFormat::Text => builder.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).init(),
        LogFormat::Json => builder.json().init(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_level_is_refused_with_the_levels_there_are() {
        for good in ["info", "WARN", "off", "info,annals_server=debug", "error, annals::x=trace"] {
            assert!(valid_level(good).is_ok(), "{good}");
        }
        for bad in ["inof", "", "info,", "annals_server", "annals_server=inof", "info,debgu"] {
            let refused = valid_level(bad).expect_err(bad);
            assert!(refused.message.contains("error, warn, info"), "{refused}");
        }
    }
}
