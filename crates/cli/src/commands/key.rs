//! `annals key …`.

use annals::wire::write_found_key;
use annals::{Code, DocumentView, Invalid, KeyChange, KeyValue, Release, Reserve, Timestamp};
use serde_json::json;

use crate::args::{Format, Global, Key, KeyOf, KeyPrepare};
use crate::config::Config;
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::target::Target;

pub async fn run(global: &Global, args: &Key, config: &Config) -> Result<(), Stop> {
    let change = match args {
        Key::Show(of) => return show(global, of, config).await,
        Key::Prepare(args) => KeyChange::Prepare(of(args)?),
        Key::Reprepare(args) => KeyChange::Reprepare { old: maybe("--old", args.old.as_deref())?, new: of(&args.new)? },
        Key::Move(args) => KeyChange::Move {
            old: Release::new(args.name.as_str(), args.old_key.as_str()).of_value(value("OLD_VALUE", &args.old_value)?),
            new: reserve(&args.name, &args.key, &args.value, args.until)?,
        },
        Key::Release(args) => KeyChange::Rollback(Release {
            value: maybe("--value", args.value.as_deref())?,
            ..Release::new(args.of.name.as_str(), args.of.key.as_str())
        }),
    };
    change.validate()?;
    let target = Target::to_write(global, config).await?;
    target
        .run(async |target| {
            let changed = target.keys.change(change).await?;
            let mut output = Output::new(global.output);
            match output.format() {
                Format::Json => output.json(&json!({ "changed": changed }))?,
                Format::Table if changed => output.text(format_args!("changed"))?,
                Format::Table => output.text(format_args!("not changed"))?,
            }
            output.flush()
        })
        .await
}

async fn show(global: &Global, KeyOf { name, key }: &KeyOf, config: &Config) -> Result<(), Stop> {
    let target = Target::to_read(global, annals::DEFAULT_SCOPE, config).await?;
    target
        .run(async |target| {
            let Some(found) = target.keys.look(name, key).await? else {
                return Err(Failure::new(Code::UnknownKey, format!("nobody holds the key {key:?} of {name}")).into());
            };
            let mut output = Output::new(global.output);
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

fn of(args: &KeyPrepare) -> Result<Reserve, Invalid> {
    reserve(&args.of.name, &args.of.key, &args.value, args.until)
}

fn reserve(name: &str, key: &str, json: &str, ttl_at: Option<Timestamp>) -> Result<Reserve, Invalid> {
    Ok(Reserve { ttl_at, ..Reserve::new(name, key, value("VALUE", json)?) })
}

fn maybe(path: &str, json: Option<&str>) -> Result<Option<KeyValue>, Invalid> {
    json.map(|json| value(path, json)).transpose()
}

fn value(path: &str, json: &str) -> Result<KeyValue, Invalid> {
    let wrong = |error| Invalid::new(Code::InvalidKeys, path, format!("is not JSON: {error}; a text has quotes"));
    serde_json::from_str(json).map_err(wrong)
}
