//! Runs both services, places orders, and prints events until every order is shipped.

use std::process::ExitCode;

use annals::{Filter, Follower};
use annals_example_microservices::{Failure, Service, orders, shipping};
use clap::Parser;

/// Two services that exchange orders and shipments over the event horizon.
#[derive(Parser)]
struct Arguments {
    /// The store of the service that takes orders.
    #[arg(long, default_value = "memory:")]
    orders: String,
    /// The store of the service that ships them.
    #[arg(long, default_value = "memory:")]
    shipping: String,
    /// The ids of the orders to place.
    #[arg(default_values = ["o-1", "o-2", "o-3"])]
    ids: Vec<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Arguments::parse()).await {
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

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn say(line: &str) {
    println!("{line}");
}

async fn run(arguments: &Arguments) -> Result<(), Failure> {
    let taking = orders::start(&arguments.orders).await?;
    let sending = shipping::start(&arguments.shipping).await?;
    orders::connect(&taking, &sending.url).await?;
    shipping::connect(&sending, &taking.url).await?;
    say(&format!("orders at {}, shipping at {}", taking.url, sending.url));
    let first = taking.log.head().await?;
    for id in &arguments.ids {
        orders::place(&taking, id, "tea").await?;
    }
    follow(&taking, first, arguments.ids.len()).await?;
    sending.stop().await?;
    taking.stop().await
}

/// Prints the events of the orders service until this many orders are shipped.
async fn follow(taking: &Service, from: u64, mut open: usize) -> Result<(), Failure> {
    let mut follower = Follower::new(taking.log.clone(), from, Filter::default());
    while open > 0 {
        for event in follower.next_page().await? {
            let order = &event.commit.aggregate.id;
            say(&format!("{} {order} {}", event.event_type, serde_json::to_string(&event.data)?));
            open -= usize::from(*event.event_type == *"order_shipped");
        }
    }
    Ok(())
}
