//! `annals doctor`.

use annals::doctor::{Diagnosis, Finding, Severity};
use annals::operations;
use annals::{Client, Code, DEFAULT_SCOPE};
use clap::Args;

use super::Run;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::progress::Progress;
use crate::target::Target;

/// Examine a server or a store, and print what is wrong and what to do first
#[derive(Debug, Args)]
#[command(
    after_help = "Changes nothing. With --server, the server examines itself, which needs the role admin; with --store, this command opens the \
                  store and examines it. The exit code is 6 if a finding is critical.\n\nExample:\n  annals doctor --server http://127.0.0.1:4000\n  \
                  annals doctor --store embedded:./data --thorough"
)]
pub struct Doctor {
    /// Also read every byte of an embedded store, as `annals check` does
    #[arg(long)]
    thorough: bool,
}

impl Run for Doctor {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        let diagnosis = match &context.server {
            Some(_) if self.thorough => {
                let message = "--thorough: reads the files of a store, which a server cannot do; stop the server and use --store instead of --server";
                return Err(Failure::config(message).into());
            }
            Some(server) => of_server(context, server).await?,
            None => of_store(context, self.thorough).await?,
        };
        let mut output = context.output();
        print(&mut output, &diagnosis)?;
        output.flush()?;
        match diagnosis.worst() {
            Some(Severity::Critical) => Err(Stop::Reported(Code::StoreDamaged)),
            _ => Ok(()),
        }
    }
}

/// Diagnoses a server. A server that does not answer, or that accepts no commits, is a finding. A server that refuses the caller is a
/// failure of the command.
async fn of_server(context: &Context, server: &str) -> Result<Diagnosis, Stop> {
    let client = Client::with(server, &context.tenant, DEFAULT_SCOPE, &context.client)?;
    let server = annals::shown_url(server);
    let examined = vec![format!("the server {server}")];
    match client.diagnose().await {
        Ok(diagnosis) => Ok(Diagnosis::new(examined, Vec::new()).and(diagnosis)),
        Err(error) if matches!(error.code(), Code::Unreachable | Code::Closing | Code::Overloaded) => {
            let failure = Failure::from(error);
            Ok(Diagnosis::new(examined, vec![failed(format!("server {server}"), &failure)]))
        }
        Err(error) => Err(Failure::from(error).into()),
    }
}

/// Diagnoses a store. A store that cannot be opened is a finding.
async fn of_store(context: &Context, thorough: bool) -> Result<Diagnosis, Stop> {
    let url = annals::shown_url(&context.config.store.url);
    let examined = Diagnosis::new(vec![format!("the store {url}")], Vec::new());
    let opened = match Target::open(context, DEFAULT_SCOPE, true).await {
        Ok(target) => {
            let mut found = Diagnosis::default();
            let closed = target
                .run(async |target| {
                    if let Some(host) = target.host() {
                        found = host.diagnose().await;
                    }
                    Ok(())
                })
                .await;
            // Closing can only report damage that the diagnosis already contains, or the end of this process.
            match closed {
                Err(Stop::Failed(failure)) if found.worst() != Some(Severity::Critical) => {
                    found.and(Diagnosis::new(Vec::new(), vec![failed(format!("store {url}"), &failure)]))
                }
                Err(stop @ (Stop::ReaderGone | Stop::Interrupted)) => return Err(stop),
                _ => found,
            }
        }
        Err(failure) => Diagnosis::new(Vec::new(), vec![failed(format!("store {url}"), &failure)]),
    };
    let checked = if thorough { checked(&context.config.store.url)? } else { Diagnosis::default() };
    Ok(examined.and(opened).and(checked))
}

/// Verifies every checksum of an embedded store.
fn checked(url: &str) -> Result<Diagnosis, Stop> {
    let bar = Progress::of_bytes();
    let report = operations::check(url, &mut |done, all| bar.reach(done, all))?;
    drop(bar);
    let of = |severity| {
        move |found: &operations::Finding| Finding::new(severity, "files", found.what.clone(), found.advice.clone())
    };
    let mut findings: Vec<_> = report.damage.iter().map(of(Severity::Critical)).collect();
    findings.extend(report.notes.iter().map(of(Severity::Note)));
    if report.more_damage > 0 {
        let what = format!("{} more places are damaged.", report.more_damage);
        findings.push(Finding::new(Severity::Critical, "files", what, "`annals check` lists them."));
    }
    Ok(Diagnosis::new(vec!["every byte of its files".to_owned()], findings))
}

fn failed(about: String, failure: &Failure) -> Finding {
    Finding::new(Severity::Critical, about, failure.message.clone(), failure.advice())
}

fn print(output: &mut Output, diagnosis: &Diagnosis) -> Result<(), Stop> {
    if output.format() == Format::Json {
        return output.json(diagnosis);
    }
    output.text(format_args!("Examined: {}.", diagnosis.examined.join("; ")))?;
    for finding in &diagnosis.findings {
        output.text(format_args!(""))?;
        output.text(format_args!("{}  {}", finding.severity, finding.about))?;
        output.text(format_args!("  {}", finding.what))?;
        output.text(format_args!("  help: {}", finding.advice))?;
    }
    if !diagnosis.findings.is_empty() {
        output.text(format_args!(""))?;
    }
    match (diagnosis.first(), diagnosis.findings.is_empty()) {
        (Some(first), _) => output.text(format_args!("First, about {}: {}", first.about, first.advice)),
        (None, false) => output.text(format_args!("Nothing needs to be done.")),
        (None, true) => output.text(format_args!("Nothing is wrong.")),
    }
}
