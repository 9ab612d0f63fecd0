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
    // `--store` and `--server` are ordinary configuration values here.
    const REACHES: Reaches = Reaches::Nothing;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        match self.what {
            What::Show => show(context),
        }
    }
}

/// Returns the configuration without its secrets, as a table.
fn shown(context: &Context) -> Result<(crate::config::Config, toml::Table), Failure> {
    let mut config = context.config.clone();
    config.store.url = annals::shown_url(&config.store.url);
    config.server.url = annals::shown_url(&config.server.url);
    config.queue.url = annals::shown_url(&config.queue.url);
    config.broker.url = annals::shown_url(&config.broker.url);
    for own in config.broker.tenants.values_mut() {
        own.url = own.url.as_deref().map(annals::shown_url);
    }
    let table = toml::Table::try_from(&config)
        .map_err(|error| Failure::new(Code::Internal, format!("the configuration cannot be printed: {error}")))?;
    Ok((config, table))
}

fn origin<'a>(context: &'a Context, section: &str, key: &str) -> &'a str {
    context.origins.get(&format!("{section}.{key}")).map_or("default", String::as_str)
}

/// Returns the configuration without its secrets, as key, value and origin.
pub(super) fn rows(context: &Context) -> Result<Vec<(String, String, String)>, Failure> {
    let (_, table) = shown(context)?;
    let rows = table.iter().flat_map(|(section, keys)| {
        keys.as_table().into_iter().flatten().map(move |(key, value)| {
            (format!("{section}.{key}"), without_secrets(key, value), origin(context, section, key).to_owned())
        })
    });
    Ok(rows.collect())
}

/// Returns a value that is safe to show on a page. The configuration names files instead of holding secrets, and URLs lose everything
/// before their host. This also covers keys that are added later.
fn without_secrets(key: &str, value: &toml::Value) -> String {
    let secret = ["secret", "password", "token", "credential"].iter().any(|word| key.contains(word));
    match value {
        _ if secret && !key.ends_with("_file") => "(not shown)".to_owned(),
        toml::Value::String(text) if text.contains("://") => format!("{:?}", annals::shown_url(text)),
        other => other.to_string(),
    }
}

/// Prints TOML that is a valid configuration file, with the origin of each value as a comment. With `--output json` both are printed as
/// JSON.
fn show(context: &Context) -> Result<(), Stop> {
    let (config, table) = shown(context)?;
    let mut output = context.output();
    if context.format == Some(Format::Json) {
        output.json(&serde_json::json!({ "config": config, "origins": context.origins }))?;
        return output.flush();
    }
    for (section, keys) in &table {
        output.text(format_args!("[{section}]"))?;
        for (key, value) in keys.as_table().into_iter().flatten() {
            let origin = origin(context, section, key);
            output.text(format_args!("{key} = {value}  # {origin}"))?;
        }
        output.text(format_args!(""))?;
    }
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_no_password_of_any_url_and_no_secret_key() {
        let shown = |key: &str, value: &str| without_secrets(key, &toml::Value::String(value.to_owned()));
        assert!(!shown("url", "mongodb://eva:hunter2@db/a").contains("hunter2"));
        assert!(!shown("webhook_secret", "hunter2").contains("hunter2"));
        assert_eq!(shown("credential_file", "/etc/annals/key"), "\"/etc/annals/key\"");
    }
}
