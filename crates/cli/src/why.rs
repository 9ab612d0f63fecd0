//! The flags for the reason of an act, shared by every act that is recorded with one.

use annals::handlers::Reason;
use clap::Args;

#[derive(Debug, Args)]
pub struct Why {
    /// The reason, for the record
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// The user who acts, for the record
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

impl Why {
    pub fn reason(&self) -> Reason {
        Reason { reason: self.reason.clone(), by: self.by.clone() }
    }
}
