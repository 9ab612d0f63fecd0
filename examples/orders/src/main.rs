//! Manages the orders of a store from the command line.

use std::process::ExitCode;

use annals::runtime::{Aggregates, IdRange, Request};
use annals::{Condition, DEFAULT_TENANT, DocumentQuery, Known, Loaded, SnapshotQueryService};
use annals_example_orders::{Line, Order};
use clap::{Parser, Subcommand};

type Failure = Box<dyn std::error::Error>;

/// Orders in an event store.
#[derive(Parser)]
struct Arguments {
    /// The store: embedded:PATH or mongodb://HOST/DATABASE.
    #[arg(long, default_value = "embedded:./orders-data", global = true)]
    store: String,
    /// The id of the request; repeating the command with the same id has no effect.
    #[arg(long, global = true)]
    request_id: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Places an order.
    Place {
        id: String,
        /// The lines of the order, such as "tea*2@350": two of tea at 350 cents each.
        #[arg(required = true)]
        lines: Vec<String>,
    },
    /// Pays an order; with a carrier, also ships it.
    Pay {
        id: String,
        cents: u64,
        #[arg(long)]
        carrier: Option<String>,
    },
    /// Ships an order that is paid.
    Ship { id: String, carrier: String },
    /// Cancels an order.
    Cancel { id: String, reason: String },
    /// Shows the current state of an order, or its state at a version.
    Show {
        id: String,
        #[arg(long)]
        version: Option<u64>,
    },
    /// Shows the history of an order.
    History { id: String },
    /// Lists the orders with a status: placed, paid, shipped or cancelled. The order with the latest event comes first.
    Find {
        status: String,
        #[arg(long, default_value_t = 10)]
        limit: u64,
    },
    /// Rebuilds the snapshots of orders: of all, or of those after an id.
    Regenerate {
        #[arg(long)]
        after: Option<String>,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    match open_and_run(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report(&*failure);
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "this is what the program is for")]
fn report(failure: &dyn std::error::Error) {
    eprintln!("{failure}");
}

async fn open_and_run(arguments: &Arguments) -> Result<(), Failure> {
    let store = annals::open(&arguments.store).await?;
    let orders = Aggregates::<Order>::open(&*store, DEFAULT_TENANT)?;
    let queries = SnapshotQueryService::of(store.queries(DEFAULT_TENANT)?)?;
    let done = run(&orders, &queries, arguments).await;
    store.close().await;
    done
}

async fn run(
    orders: &Aggregates<Order>,
    queries: &SnapshotQueryService<Order>,
    arguments: &Arguments,
) -> Result<(), Failure> {
    let request = |id: &str| Request { request_id: arguments.request_id.clone().map(Into::into), ..Request::new(id) };
    let handled = match &arguments.command {
        Command::Place { id, lines } => {
            let lines = lines.iter().map(|line| read_line(line)).collect::<Result<Vec<_>, _>>()?;
            orders.handle(request(id), |order| order.place(&lines)).await?
        }
        Command::Pay { id, cents, carrier } => {
            orders.handle(request(id), |order| order.pay(*cents, carrier.as_deref())).await?
        }
        Command::Ship { id, carrier } => orders.handle(request(id), |order| order.ship(carrier)).await?,
        Command::Cancel { id, reason } => orders.handle(request(id), |order| order.cancel(reason)).await?,
        Command::Show { id, version: Some(version) } => return show(&orders.load_at(id.clone(), *version).await?),
        Command::Show { id, version: None } => return show(&orders.load(id.clone()).await?),
        Command::History { id } => return history(orders, id).await,
        Command::Regenerate { after } => return regenerate(orders, after.clone()).await,
        Command::Find { status, limit } => return find(queries, status, *limit).await,
    };
    show(&handled.aggregate)
}

/// Every handled command saves a snapshot, so snapshots show the current state of orders.
#[expect(clippy::print_stdout, reason = "this is what the program is for")]
async fn find(orders: &SnapshotQueryService<Order>, status: &str, limit: u64) -> Result<(), Failure> {
    let query = DocumentQuery::new(Condition::eq("state.status", status)).descending("eventTime");
    for order in orders.list(query, limit).await? {
        println!("{} version {}: {} cents paid", order.info.aggregate, order.info.version, order.state.paid_cents);
    }
    Ok(())
}

fn read_line(text: &str) -> Result<Line, String> {
    let parts = || {
        let (product, rest) = text.split_once('*')?;
        let (count, price) = rest.split_once('@')?;
        Some(Line { product: product.to_owned(), count: count.parse().ok()?, price_cents: price.parse().ok()? })
    };
    parts().ok_or_else(|| format!("{text:?} is not a product, a count and a price in cents, such as \"tea*2@350\""))
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn show(order: &Loaded<Order>) -> Result<(), Failure> {
    let Order { status, lines, paid_cents } = &order.state;
    println!("{} version {}: {status:?}", order.info.aggregate, order.version());
    for line in lines {
        println!("  {} × {} at {} cents", line.count, line.product, line.price_cents);
    }
    println!("  {paid_cents} of {} cents paid", order.due_cents());
    Ok(())
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
async fn regenerate(orders: &Aggregates<Order>, after: Option<String>) -> Result<(), Failure> {
    let range = IdRange { after: after.map(Into::into), until: None };
    let tell = |done: &annals::runtime::Regenerated| {
        if done.saved.is_multiple_of(1_000) {
            println!("{} snapshots, up to {}", done.saved, done.after.as_deref().unwrap_or_default());
        }
    };
    match orders.regenerate_range(range, tell).await {
        Ok(done) => println!("{} snapshots were rebuilt", done.saved),
        Err(error) => {
            let after = error.done.after.as_deref().unwrap_or_default();
            return Err(format!("{error}; fix the cause, then continue with --after {after:?}").into());
        }
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
async fn history(orders: &Aggregates<Order>, id: &str) -> Result<(), Failure> {
    let mut from = 1;
    loop {
        let past = orders.history(id, from).await?;
        for commit in &past.commits {
            for event in &commit.events {
                match event {
                    Known::Event(event) => println!("{} {} {event:?}", commit.info.version, commit.info.time),
                    Known::Unknown(event) => println!("{} {} {event:?}", commit.info.version, commit.info.time),
                }
            }
        }
        match past.commits.last() {
            Some(last) => from = last.info.version + 1,
            None => return Ok(()),
        }
    }
}
