//! `annals audit`.

use annals::audit::{ActOutcome, AuditEntry};
use annals::limits;
use clap::Args;

use super::Run;
use super::credential::Keys;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::Stop;

/// List administrative acts, newest first, each with its caller, reason and origin
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  annals audit --limit 20 --server https://annals.example.com")]
pub struct Audit {
    /// The maximum number of entries to print
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    limit: usize,
}

impl Run for Audit {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        let keys = Keys::open(context, true).await?;
        let limit = self.limit;
        keys.run(async |keys| {
            let mut output = context.output();
            let (mut left, mut cursor) = (limit, None);
            while left > 0 {
                let page = keys.audit(cursor.as_deref(), left.min(limits::PAGE_MAX)).await?;
                left = left.saturating_sub(page.items.len());
                for entry in &page.items {
                    match output.format() {
                        Format::Json => output.json(entry)?,
                        Format::Table => output.text(format_args!("{}", line(entry)))?,
                    }
                }
                cursor = page.cursor;
                if cursor.is_none() {
                    break;
                }
            }
            output.flush()
        })
        .await
    }
}

fn line(entry: &AuditEntry) -> String {
    let AuditEntry { at, act, outcome, code, .. } = entry;
    let part = |text: &Option<String>| text.as_deref().unwrap_or("-").to_owned();
    let outcome = match outcome {
        ActOutcome::Done => "done".to_owned(),
        ActOutcome::Refused => format!("refused ({})", part(code)),
        ActOutcome::Unknown => "outcome unknown".to_owned(),
    };
    let (path, why, from) = (part(&act.path), part(&act.why), part(&act.from));
    format!("{at}  {}  {}  {path}  {outcome}  from {from}: {why}", act.who, act.what)
}
