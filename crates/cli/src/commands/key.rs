//! `annals key …`.

use crate::target::Target;
use annals::PrepareKeys;
use annals::wire::write_found_key;
use annals::{Code, DocumentView, Invalid, KeyChange, KeyValue, Release, Reserve, Timestamp};
use clap::{Args, Subcommand};
use serde_json::json;
use std::sync::Arc;

use super::Run;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};

/// Show, take, change or release prepare keys: unique names that one holder at a time can have
#[derive(Debug, Args)]
#[command(visible_alias = "keys")]
pub struct Key {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print the holder of a key, even if the reservation has expired
    #[command(after_help = "Example:\n  annals key show user eva")]
    Show(Of),
    /// Take a key that is free or has expired
    #[command(
        after_help = "The value is JSON, so write a string in quotes. If the key is held, \"changed\" is false and the exit code is 3.\n\nExample:\n  annals key prepare user eva '\"u-1\"' --until 2030-01-01T00:00:00Z"
    )]
    Prepare(Prepare),
    /// Replace the value of a key that exists
    #[command(
        after_help = "If the key does not exist, or has another value than --old, \"changed\" is false and the exit code is 3.\n\nExample:\n  annals key reprepare user eva '\"u-2\"' --old '\"u-1\"'"
    )]
    Reprepare(Reprepare),
    /// Take a key and release another one, both or neither
    #[command(
        after_help = "If the new key is held, \"changed\" is false and the exit code is 3.\n\nExample:\n  annals key move user eva '\"u-1\"' eve '\"u-1\"'"
    )]
    Move(Move),
    /// Release a key
    #[command(
        after_help = "Without --value the key must not have expired; with --value, the key must have that value, expired or not. Otherwise \"changed\" is false and the exit code is 3.\n\nExample:\n  annals key release user eva --value '\"u-1\"'"
    )]
    Release(Give),
}

#[derive(Debug, Args)]
struct Of {
    /// The kind of key, such as user
    name: String,
    /// The key
    key: String,
}

#[derive(Debug, Args)]
struct Prepare {
    #[command(flatten)]
    of: Of,
    /// The value to store with the key, as JSON
    value: String,
    /// When the key expires, as an RFC 3339 time; never when absent, immediately if the time is in the past
    #[arg(long, value_name = "TIME", value_parser = Timestamp::parse)]
    until: Option<Timestamp>,
}

#[derive(Debug, Args)]
struct Reprepare {
    #[command(flatten)]
    new: Prepare,
    /// The value that the key must have, as JSON; any when absent
    #[arg(long, value_name = "JSON")]
    old: Option<String>,
}

#[derive(Debug, Args)]
struct Move {
    /// The kind of key, such as user
    name: String,
    /// The key to release
    old_key: String,
    /// The value that the key must have, as JSON
    old_value: String,
    /// The key to take
    key: String,
    /// The value to store with the key, as JSON
    value: String,
    /// When the key expires, as an RFC 3339 time; never when absent, immediately if the time is in the past
    #[arg(long, value_name = "TIME", value_parser = Timestamp::parse)]
    until: Option<Timestamp>,
}

#[derive(Debug, Args)]
struct Give {
    #[command(flatten)]
    of: Of,
    /// The value that the key must have, as JSON; any when absent
    #[arg(long, value_name = "JSON")]
    value: Option<String>,
}

impl Run for Key {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        let change = match &self.what {
            What::Show(of) => return show(context, of).await,
            What::Prepare(args) => KeyChange::Prepare(of(args)?),
            What::Reprepare(args) => {
                KeyChange::Reprepare { old: maybe("--old", args.old.as_deref())?, new: of(&args.new)? }
            }
            What::Move(args) => KeyChange::Move {
                old: Release::new(args.name.as_str(), args.old_key.as_str())
                    .of_value(value("OLD_VALUE", &args.old_value)?),
                new: reserve(&args.name, &args.key, &args.value, args.until)?,
            },
            What::Release(args) => KeyChange::Rollback(Release {
                value: maybe("--value", args.value.as_deref())?,
                ..Release::new(args.of.name.as_str(), args.of.key.as_str())
            }),
        };
        change.validate()?;
        make(context, change).await
    }
}

/// Applies a change. A change that was not possible is printed, and is a refusal.
async fn make(context: &Context, change: KeyChange) -> Result<(), Stop> {
    let target = context.to_write().await?;
    target
        .run(async |target| {
            let refusal = refusal(&change);
            let changed = target.keys()?.change(change).await?;
            let mut output = context.output();
            match output.format() {
                Format::Json => output.json(&json!({ "changed": changed }))?,
                Format::Table if changed => output.text(format_args!("changed"))?,
                Format::Table => output.text(format_args!("not changed"))?,
            }
            output.flush()?;
            if changed { Ok(()) } else { Err(refusal.into()) }
        })
        .await
}

/// Returns the refusal for a change that the store did not apply.
fn refusal(change: &KeyChange) -> Failure {
    match change {
        KeyChange::Prepare(Reserve { name, key, .. }) | KeyChange::Move { new: Reserve { name, key, .. }, .. } => {
            let why = "it is held with another value; choose another key, or wait until it is released or expires";
            Failure::new(Code::KeyTaken, format!("the key {key:?} of {name} is taken: {why}"))
        }
        KeyChange::Reprepare { new: Reserve { name, key, .. }, .. }
        | KeyChange::Rollback(Release { name, key, .. }) => {
            let why = "it is not held, has expired, or has another value; see `annals key show`";
            Failure::new(Code::KeyNotHeld, format!("the key {key:?} of {name} is unchanged: {why}"))
        }
    }
}

async fn show(context: &Context, Of { name, key }: &Of) -> Result<(), Stop> {
    let target = context.to_read(annals::DEFAULT_SCOPE).await?;
    target
        .run(async |target| {
            let Some(found) = target.keys()?.look(name, key).await? else {
                return Err(Failure::new(Code::UnknownKey, format!("the key {key:?} of {name} is not held")).into());
            };
            let mut output = context.output();
            match output.format() {
                Format::Json => output.json(&DocumentView(&write_found_key(name, key, &found)))?,
                Format::Table => {
                    let value = serde_json::to_string(&found.holder.value).unwrap_or_default();
                    let until = found.holder.ttl_at.map_or(String::new(), |ttl_at| format!(" until {ttl_at}"));
                    let expired = if found.expired { ", expired" } else { "" };
                    output.text(format_args!("{name}/{key} {value}{until}{expired}"))?;
                }
            }
            output.flush()
        })
        .await
}

fn of(args: &Prepare) -> Result<Reserve, Invalid> {
    reserve(&args.of.name, &args.of.key, &args.value, args.until)
}

fn reserve(name: &str, key: &str, json: &str, ttl_at: Option<Timestamp>) -> Result<Reserve, Invalid> {
    Ok(Reserve { ttl_at, ..Reserve::new(name, key, value("VALUE", json)?) })
}

fn maybe(path: &str, json: Option<&str>) -> Result<Option<KeyValue>, Invalid> {
    json.map(|json| value(path, json)).transpose()
}

fn value(path: &str, json: &str) -> Result<KeyValue, Invalid> {
    let wrong =
        |error| Invalid::new(Code::InvalidKeys, path, format!("is not JSON: {error}; write a string in quotes"));
    serde_json::from_str(json).map_err(wrong)
}

impl Target {
    /// Returns the prepare keys of the tenant.
    pub fn keys(&self) -> Result<Arc<dyn PrepareKeys>, Failure> {
        self.port::<dyn PrepareKeys>(
            |client| Arc::new(client.prepare_keys()),
            |opened| opened.store.prepare_keys(&self.tenant),
        )
    }
}
