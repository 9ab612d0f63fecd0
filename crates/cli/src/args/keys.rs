//! What is said of prepare keys.

use annals::Timestamp;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum Key {
    /// Print who holds a key, also when its time is over
    #[command(after_help = "Example:\n  annals key show user eva")]
    Show(KeyOf),
    /// Take a key that is free, or whose time is over
    #[command(
        after_help = "The value is JSON, so a text has quotes. \"changed\" is false where the key is held.\n\nExample:\n  annals key prepare user eva '\"u-1\"' --until 2030-01-01T00:00:00Z"
    )]
    Prepare(KeyPrepare),
    /// Give a key that is there another value
    #[command(
        after_help = "\"changed\" is false where the key is not there, or has another value than --old.\n\nExample:\n  annals key reprepare user eva '\"u-2\"' --old '\"u-1\"'"
    )]
    Reprepare(KeyReprepare),
    /// Take a key and give another one back, or neither
    #[command(
        after_help = "\"changed\" is false where the new key is held.\n\nExample:\n  annals key move user eva '\"u-1\"' eve '\"u-1\"'"
    )]
    Move(KeyMove),
    /// Give a key back
    #[command(
        after_help = "Without --value it must not have expired; with it, it must have that value, expired or not.\n\nExample:\n  annals key release user eva --value '\"u-1\"'"
    )]
    Release(KeyRelease),
}

#[derive(Debug, Args)]
pub struct KeyOf {
    /// What the keys of this kind are called
    pub name: String,
    /// The key
    pub key: String,
}

#[derive(Debug, Args)]
pub struct KeyPrepare {
    #[command(flatten)]
    pub of: KeyOf,
    /// What is kept with it, as JSON
    pub value: String,
    /// From when on others may take it, RFC 3339; never when absent, at once when it is past
    #[arg(long, value_name = "TIME", value_parser = Timestamp::parse)]
    pub until: Option<Timestamp>,
}

#[derive(Debug, Args)]
pub struct KeyReprepare {
    #[command(flatten)]
    pub new: KeyPrepare,
    /// The value that it must have, as JSON; any when absent
    #[arg(long, value_name = "JSON")]
    pub old: Option<String>,
}

#[derive(Debug, Args)]
pub struct KeyMove {
    /// What the keys of this kind are called
    pub name: String,
    /// The key that is given back
    pub old_key: String,
    /// The value that it must have, as JSON
    pub old_value: String,
    /// The key that is taken
    pub key: String,
    /// What is kept with it, as JSON
    pub value: String,
    /// From when on others may take it, RFC 3339; never when absent, at once when it is past
    #[arg(long, value_name = "TIME", value_parser = Timestamp::parse)]
    pub until: Option<Timestamp>,
}

#[derive(Debug, Args)]
pub struct KeyRelease {
    #[command(flatten)]
    pub of: KeyOf,
    /// The value that it must have, as JSON; any when absent
    #[arg(long, value_name = "JSON")]
    pub value: Option<String>,
}
