//! `annals sequencer`.

use crate::target::Target;
use annals::Sequencing;
use clap::Args;
use std::sync::Arc;

use super::Run;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};

/// Show which process assigns sequence numbers, and how far it lags; for stores on MongoDB
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  annals sequencer --server http://127.0.0.1:4000")]
pub struct Sequencer {}

impl Run for Sequencer {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        let target = context.to_read(annals::DEFAULT_SCOPE).await?;
        target
            .run(async |target| {
                let state = target.sequencing()?.state().await?;
                let mut output = context.output();
                if output.format() == Format::Json {
                    output.json(&state)?;
                    return output.flush();
                }
                match &state.leader {
                    Some(leader) => {
                        let here = if leader.here { " (the responding process)" } else { "" };
                        output.text(format_args!("leader   {}{here}", leader.process))?;
                        output.text(format_args!("epoch    {}", leader.epoch))?;
                        output.text(format_args!("until    {}", leader.until))?;
                        output.text(format_args!("lag      {} ms", leader.lag_ms))?;
                    }
                    None => output.text(format_args!("leader   none at the moment"))?,
                }
                output.text(format_args!("head     {}", state.head))?;
                output.text(format_args!("held     {}", state.held))?;
                for context in &state.other_contexts {
                    output
                        .text(format_args!("warning  this database also has commits of context {context:?}"))?;
                }
                for annals::MissingDocument { collection, sequence_number } in &state.missing {
                    output.text(format_args!(
                        "warning  other software has deleted {sequence_number} from {collection}; restore it from a backup"
                    ))?;
                }
                output.flush()
            })
            .await
    }
}

impl Target {
    /// Returns the port to the sequencer of the tenant's commits, for stores whose log does not itself assign sequence numbers.
    pub fn sequencing(&self) -> Result<Arc<dyn Sequencing>, Failure> {
        self.port::<dyn Sequencing>(
            |client| Arc::new(client.sequencing()),
            |opened| opened.store.sequencing(&self.tenant),
        )
    }
}
