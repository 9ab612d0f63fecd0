//! `annals config show`.

use annals::Code;
use clap::{Args, Subcommand};

use super::Run;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};

/// Show the configuration
#[derive(Debug, Args)]
pub struct Config {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print the configuration in force, with the origin of each value
    #[command(after_help = "Example:\n  ANNALS__LOG__LEVEL=debug annals config show")]
    Show,
}

impl Run for Config {
    // --store and --server are values like any other here.
    const REACHES: Reaches = Reaches::Nothing;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        match self.what {
            What::Show => show(context),
        }
    }
}

/// Prints TOML that is a valid configuration file, with the origin of each value as a comment; with `--output json` both as JSON.
fn show(context: &Context) -> Result<(), Stop> {
    let mut config = context.config.clone();
    config.store.url = annals::shown_url(&config.store.url);
    config.server.url = annals::shown_url(&config.server.url);
    config.queue.url = annals::shown_url(&config.queue.url);
    let table = toml::Table::try_from(&config)
        .map_err(|error| Failure::new(Code::Internal, format!("the configuration cannot be written: {error}")))?;
    let mut output = context.output();
    if context.format == Some(Format::Json) {
        output.json(&serde_json::json!({ "config": config, "origins": context.origins }))?;
        return output.flush();
    }
    for (section, keys) in &table {
        output.text(format_args!("[{section}]"))?;
        for (key, value) in keys.as_table().into_iter().flatten() {
            let origin = context.origins.get(&format!("{section}.{key}")).map_or("default", String::as_str);
            output.text(format_args!("{key} = {value}  # {origin}"))?;
        }
        output.text(format_args!(""))?;
    }
    output.flush()
}
