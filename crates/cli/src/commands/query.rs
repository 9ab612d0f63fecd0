//! `annals query …`.

use annals::{Code, DocumentQuery, Pagination, Projection, QuerySource};

use super::record::condition;
use crate::args::{Global, How, Query, Source};
use crate::config::Config;
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::target::Target;

pub async fn run(global: &Global, args: &Query, config: &Config) -> Result<(), Stop> {
    only_where_it_means_something(args)?;
    let query = query(args)?;
    let source = match args.source {
        Source::Snapshots => QuerySource::Snapshots(args.aggregate.as_str().into()),
        Source::Commits => QuerySource::Commits(args.aggregate.as_str().into()),
    };
    source.validate()?;
    let page = Pagination { index: args.page.unwrap_or(1), size: args.size.unwrap_or(10) };
    let target = Target::to_read(global, annals::DEFAULT_SCOPE, config).await?;
    target
        .run(async |target| {
            let (queries, mut output) = (&target.queries, Output::new(global.output));
            match args.how {
                how if args.explain => {
                    let limit = if how == How::Single { 1 } else { args.limit.unwrap_or(0) };
                    output.explained(&queries.explain(&source, query, limit).await?)?;
                }
                How::Single => match queries.single(&source, query).await? {
                    Some(document) => output.queried(&document)?,
                    None => return Err(nothing_found(args).into()),
                },
                How::List => {
                    for document in queries.list(&source, query, args.limit.unwrap_or(0)).await? {
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

fn nothing_found(args: &Query) -> Failure {
    let what = match args.source {
        Source::Snapshots => "snapshot",
        Source::Commits => "commit",
    };
    Failure::new(Code::NothingFound, format!("no {what} of {} passes the condition", args.aggregate))
}

/// The query that is asked for.
fn query(args: &Query) -> Result<DocumentQuery, Failure> {
    let mut query = DocumentQuery::new(match &args.typed {
        Some(typed) => condition("--where", Some(typed))?,
        None => condition("--condition", args.condition.as_deref())?,
    });
    for field in &args.sort {
        query = match field.strip_prefix('-') {
            Some(field) => query.descending(field),
            None => query.ascending(field.as_str()),
        };
    }
    query.projection = match (&args.fields[..], &args.without[..]) {
        ([], []) => Projection::Whole,
        (fields, []) => Projection::Only(fields.to_vec()),
        (_, without) => Projection::Without(without.to_vec()),
    };
    Ok(query)
}

/// A flag that would change nothing is a mistake.
fn only_where_it_means_something(args: &Query) -> Result<(), Failure> {
    let how = args.how;
    let refused = |flags: &str, with: &str| {
        Err(Failure::new(Code::InvalidQuery, format!("{flags}: only for {with}; leave that out, or ask for {with}")))
    };
    if args.limit.is_some() && how != How::List {
        return refused("--limit", "list");
    }
    if (args.page.is_some() || args.size.is_some()) && how != How::Paged {
        return refused("--page and --size", "paged");
    }
    let shaped = !args.sort.is_empty() || !args.fields.is_empty() || !args.without.is_empty();
    if how == How::Count && shaped {
        return refused("--sort, --fields and --without", "single, list and paged");
    }
    if args.explain && !matches!(how, How::Single | How::List) {
        return refused("--explain", "single and list");
    }
    Ok(())
}
