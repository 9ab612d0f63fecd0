//! `annals health`.

use annals::{Client, DEFAULT_SCOPE};
use clap::Args;

use super::Run;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};

/// Check whether a server is ready; exits with 5 or 6 if it is not
#[derive(Debug, Args)]
#[command(
    after_help = "It needs no credential, so container images use it as their health check.\n\nExample:\n  annals health --server http://127.0.0.1:4000"
)]
pub struct Health {}

impl Run for Health {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        let Some(server) = &context.server else {
            return Err(Failure::config("health: checks a server, not a store; add --server URL".to_owned()).into());
        };
        let client = Client::with(server, &context.tenant, DEFAULT_SCOPE, &context.client)?;
        let ready = client.ready().await?;
        let mut output = context.output();
        output.json(&ready)?;
        output.flush()
    }
}
