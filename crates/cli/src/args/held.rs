//! What an operator gives to see what gives commits their numbers, and what it holds back.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum Held {
    /// Print the commits that are held back, each with the reason
    #[command(after_help = "Example:\n  annals held list --server http://127.0.0.1:4000")]
    List,
    /// Look at a held commit again as it is stored now: after it was mended, or deleted
    #[command(
        after_help = "Prints what came of it: it has numbers, it is held back still and why, or it is gone.\n\nExample:\n  annals held retry order_event_stream 0190ff"
    )]
    Retry(HeldOne),
    /// Give a held commit the next numbers although versions before it are missing
    #[command(
        after_help = "Only a gap is accepted; a malformed commit is mended or deleted where it is stored, and tried again. Should the missing versions come after all, they are held back as late.\n\nExample:\n  annals held accept order_event_stream 0190ff"
    )]
    Accept(HeldOne),
}

#[derive(Debug, Args)]
pub struct HeldOne {
    /// The collection that it is stored in
    pub collection: String,
    /// Its _id
    pub commit: String,
}
