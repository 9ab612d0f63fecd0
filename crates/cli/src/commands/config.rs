//! `annals config show`.

use annals::Code;

use crate::args::{Format, Global};
use crate::config::Loaded;
use crate::failure::{Failure, Stop};
use crate::output::Output;

/// Prints TOML that could be a configuration file, with the origin of each value as a comment; with `--output json` both as JSON.
pub fn show(global: &Global, loaded: &Loaded) -> Result<(), Stop> {
    let mut config = loaded.config.clone();
    config.store.url = annals::shown_url(&config.store.url);
    let table = toml::Table::try_from(&config)
        .map_err(|error| Failure::new(Code::Internal, format!("the configuration cannot be written: {error}")))?;
    let mut output = Output::new(global.output);
    if global.output == Some(Format::Json) {
        output.json(&serde_json::json!({ "config": config, "origins": loaded.origins }))?;
        return output.flush();
    }
    for (section, keys) in &table {
        output.text(format_args!("[{section}]"))?;
        for (key, value) in keys.as_table().into_iter().flatten() {
            let origin = loaded.origins.get(&format!("{section}.{key}")).map_or("default", String::as_str);
            output.text(format_args!("{key} = {value}  # {origin}"))?;
        }
        output.text(format_args!(""))?;
    }
    output.flush()
}
