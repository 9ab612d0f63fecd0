//! Runs both parties in processes of their own, kills one of them partway, and compares their books.

use std::path::PathBuf;
use std::process::ExitCode;

use annals::server::Stop;
use annals_example_partners::{Failure, Party, Role, play};
use clap::{Parser, Subcommand};

/// A shop and its supplier, which exchange orders and invoices over HTTP
#[derive(Parser)]
struct Arguments {
    /// The number of orders to place
    #[arg(long, default_value_t = 30)]
    orders: usize,
    /// The folder of both stores
    #[arg(long, default_value = "partners-data")]
    folder: PathBuf,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// Run one party until its standard input ends
    Party {
        /// The party
        #[arg(value_enum)]
        role: Role,
        /// The store
        #[arg(long)]
        store: String,
        /// Where it listens
        #[arg(long)]
        listen: String,
        /// Where the other party listens
        #[arg(long)]
        other: String,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
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

/// Returns whether the books are equal.
async fn run(arguments: Arguments) -> Result<bool, Failure> {
    if let Some(What::Party { role, store, listen, other }) = arguments.what {
        Party { role, store, listen, other }.run(until_input_ends()).await?;
        return Ok(true);
    }
    let (shop, supplier) = play::run(&arguments.folder, arguments.orders, say).await?;
    for (name, books) in [("shop", &shop), ("supplier", &supplier)] {
        let count = |kind| books.of(kind).count();
        let (orders, invoices) = (count("order"), count("invoice"));
        say(&format!("{name}: {orders} orders, {invoices} invoices of {}", books.total("invoice")));
    }
    let equal = shop == supplier;
    say(if equal { "the books are equal" } else { "the books differ" });
    Ok(equal)
}

fn until_input_ends() -> Stop {
    let stop = Stop::default();
    let ends = stop.clone();
    std::thread::spawn(move || {
        // However the input ends, the party ends with it.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        ends.stop();
    });
    stop
}
