//! `annals query …`.

use crate::target::Target;
use annals::Queries;
use annals::{Code, DocumentQuery, Pagination, QuerySource};
use clap::{Args, ValueEnum};
use std::sync::Arc;

use super::Run;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::selection::Selection;

/// Search the snapshots or commits of all aggregates with the same name
#[derive(Debug, Args)]
#[command(
    after_help = "Documents have the fields that a server returns (docs/http.md): state.… of snapshots, body.name, body.tags and \
                  body.body.… of commits. Snapshots of deleted aggregates are excluded unless the condition contains deleted, alone or \
                  joined by and.\n\nExample:\n  annals query order snapshots list --where \"state.total >= 100 and state.status = 'paid'\" \
                  --sort -state.total --limit 10\n  annals query order commits count --where \"body.name = 'order_placed'\""
)]
pub struct Query {
    /// The name of the aggregates, such as order
    aggregate: String,
    /// The documents to search
    #[arg(value_enum)]
    source: Source,
    /// The form of the result
    #[arg(value_enum)]
    how: How,
    #[command(flatten)]
    selection: Selection,
    /// The page to print, from 1 [default: 1]
    #[arg(long, value_name = "NUMBER")]
    page: Option<u64>,
    /// The number of documents per page [default: 10]
    #[arg(long, value_name = "COUNT")]
    size: Option<u64>,
    /// Print the query plan instead: the index that is used, and how much is read
    #[arg(long)]
    explain: bool,
}

/// The documents to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Source {
    /// The saved states of aggregates
    Snapshots,
    /// The commits of aggregates
    Commits,
}

/// The form of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum How {
    /// The first document
    Single,
    /// All documents, or --limit of them
    List,
    /// One page, and the total
    Paged,
    /// The total
    Count,
}

impl Run for Query {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        refuse_flags_without_effect(self)?;
        let query = query(self)?;
        let source = match self.source {
            Source::Snapshots => QuerySource::Snapshots(self.aggregate.as_str().into()),
            Source::Commits => QuerySource::Commits(self.aggregate.as_str().into()),
        };
        source.validate()?;
        let page = Pagination { index: self.page.unwrap_or(1), size: self.size.unwrap_or(10) };
        let target = context.to_read(annals::DEFAULT_SCOPE).await?;
        target
            .run(async |target| {
                let (queries, mut output) = (target.queries()?, context.output());
                match self.how {
                    how if self.explain => {
                        let limit = if how == How::Single { 1 } else { self.selection.limit.unwrap_or(0) };
                        output.explained(&queries.explain(&source, query, limit).await?)?;
                    }
                    How::Single => match queries.single(&source, query).await? {
                        Some(document) => output.queried(&document)?,
                        None => return Err(nothing_found(self).into()),
                    },
                    How::List => {
                        for document in queries.list(&source, query, self.selection.limit.unwrap_or(0)).await? {
                            output.queried(&document)?;
                        }
                    }
                    How::Paged => output.queried_page(&queries.paged(&source, query, page).await?)?,
                    How::Count => output.count(queries.count(&source, &query.condition).await?)?,
                }
                output.flush()
            })
            .await
    }
}

fn nothing_found(args: &Query) -> Failure {
    let what = match args.source {
        Source::Snapshots => "snapshot",
        Source::Commits => "commit",
    };
    Failure::new(Code::NothingFound, format!("no {what} of {} matches the condition", args.aggregate))
}

/// Builds the query from the flags.
fn query(args: &Query) -> Result<DocumentQuery, Failure> {
    let mut query = DocumentQuery::new(args.selection.matching.condition()?);
    for (field, descending) in args.selection.sort() {
        query = if descending { query.descending(field) } else { query.ascending(field) };
    }
    query.projection = args.selection.projection();
    Ok(query)
}

/// Refuses flags that have no effect, because they are mistakes.
fn refuse_flags_without_effect(args: &Query) -> Result<(), Failure> {
    let how = args.how;
    let refused = |flags: &str, with: &str| {
        Err(Failure::new(Code::InvalidQuery, format!("{flags}: only valid with {with}; omit it, or use {with}")))
    };
    if args.selection.limit.is_some() && how != How::List {
        return refused("--limit", "list");
    }
    if (args.page.is_some() || args.size.is_some()) && how != How::Paged {
        return refused("--page and --size", "paged");
    }
    let Selection { sort, fields, without, .. } = &args.selection;
    let shaped = !sort.is_empty() || !fields.is_empty() || !without.is_empty();
    if how == How::Count && shaped {
        return refused("--sort, --fields and --without", "single, list or paged");
    }
    if args.explain && !matches!(how, How::Single | How::List) {
        return refused("--explain", "single or list");
    }
    Ok(())
}

impl Target {
    /// Returns the queries of the tenant's snapshots and commits.
    pub fn queries(&self) -> Result<Arc<dyn Queries>, Failure> {
        self.port::<dyn Queries>(|client| Arc::new(client.queries()), |opened| opened.store.queries(&self.tenant))
    }
}
