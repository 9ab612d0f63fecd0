//! `annals import --whole`: imports an export of a whole store into this one.

use std::path::Path;

use annals::operations::ExportReader;

use crate::commands::export::print;
use crate::context::Context;
use crate::failure::{Stop, note};
use crate::lines;
use crate::progress::Progress;
use crate::target::open_store;

/// Imports the export in `file`, with the tenants and scopes that it holds.
pub async fn run(context: &Context, file: &Path) -> Result<(), Stop> {
    let reader = ExportReader::new(lines::open(file)?)?;
    let mut declared = context.config.clone();
    for (tenant, scope) in reader.logs() {
        if !declared.tenants.names.contains(&tenant) {
            declared.tenants.names.push(tenant);
        }
        if scope != annals::DEFAULT_SCOPE && !declared.tenants.scopes.contains(&scope) {
            declared.tenants.scopes.push(scope);
        }
    }
    let store = open_store(&declared, false).await?;
    let bar = Progress::of_events();
    let moved = reader.import_into(&*store, &mut |done, all| bar.reach(done, all)).await;
    drop(bar);
    store.close().await;
    let moved = moved?;
    if declared != context.config {
        note("the export contains tenants or scopes that are not declared; declare them under [tenants] to use them");
    }
    print(context, &moved)
}
