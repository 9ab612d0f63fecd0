//! The command line as types: what clap reads and what `--help` says.

mod held;
mod keys;
mod operations;
mod queries;
mod records;
mod snapshots;

use std::path::PathBuf;

pub use held::{Held, HeldOne};
pub use keys::{Key, KeyOf, KeyPrepare};
pub use operations::{Adopt, Backup, Export, Repair, Restore, Stats};
pub use queries::{How, Query, Source};
pub use records::{
    Documents, Expectation, Id, Record, RecordDeclare, RecordDelete, RecordFind, RecordGet, RecordInsert,
    RecordReplace, RecordWatch,
};
pub use snapshots::{Snapshot, SnapshotDeclare, SnapshotOf};

use clap::{Args, Parser, Subcommand, ValueEnum};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  a defect of Annals
  2  wrong usage or bad input
  3  refused because of what the store holds, for example a version conflict
  4  not found, for example an unknown tenant
  5  try again later
  6  needs an operator, for example a full disk, or a store that another process has open
Errors are printed to standard error as `error[code]: …` with a `help: …` line.

Configuration: defaults, then annals.toml or --config FILE, then the environment (ANNALS__SECTION__KEY, for example \
ANNALS__STORE__URL), then flags; `annals config show` prints the result.

Example:
  annals commit --aggregate order/o-1 --type order_placed --data '{\"total\": 12.5}'
  annals log read --output json";

/// An event store in one program: commit events, read them again in one order, follow them.
#[derive(Debug, Parser)]
#[command(name = "annals", version, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Args)]
pub struct Global {
    /// The store to open: embedded:PATH, memory: or mongodb://HOST/DATABASE [default: embedded:./data]
    #[arg(long, global = true, value_name = "URL")]
    pub store: Option<String>,
    /// A server to talk to instead of opening a store, for example http://127.0.0.1:4000; not for adopt, check, config, demo, export,
    /// pack, repair, restore, serve and import --whole, which work on a store themselves
    #[arg(long, global = true, value_name = "URL", conflicts_with = "store")]
    pub server: Option<String>,
    /// The tenant whose store is meant
    #[arg(long, global = true, default_value = annals::DEFAULT_TENANT)]
    pub tenant: String,
    /// How to print: a table (the default on a terminal) or JSON, one document a line (the default elsewhere)
    #[arg(long, global = true, value_enum)]
    pub output: Option<Format>,
    /// The configuration file [default: annals.toml, if there is one]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the demo: a service that executes programs, on this engine, with a page that shows its events
    #[command(
        after_help = "Its store stays in ./demo-data (or at --store), and it goes on where it was.\n\nExample:\n  annals demo --fresh"
    )]
    Demo(Demo),
    /// Serve a store over HTTP until SIGTERM or Ctrl-C
    #[command(
        after_help = "It is ready when GET /health/ready answers 200, and stops within 10 s.\n\nExample:\n  annals serve --store embedded:./data --listen 127.0.0.1:4000 --dev"
    )]
    Serve(Serve),
    /// Commit events: bodies of POST /v1/commits as JSON lines, or one event by flags
    #[command(
        after_help = "Answers are printed in the order of the lines; lines of one aggregate are committed in their order, and a line with an append_condition or prepare keys after all before it and before all after it. A refused line is reported and the others go on; the exit code is that of the first refusal.\n\nExample:\n  annals commit --aggregate order/o-1 --type order_placed --data '{\"total\": 12.5}' --expect empty\n  annals commit --server http://127.0.0.1:4000 < commits.jsonl"
    )]
    Commit(Box<Commit>),
    /// Commit to several aggregates at once, all or none: bodies of POST /v1/transactions as JSON lines
    #[command(
        after_help = "A line is a transaction of 2 to 16 commits of different aggregates, and is stored whole or not at all. Answers are printed in the order of the lines, each a list with an answer for every commit; lines that share an aggregate are stored in their order. A refused line is reported with the part that was refused, and the others go on; the exit code is that of the first refusal.\n\nExample:\n  echo '{\"commits\": [{\"aggregate\": {\"name\": \"account\", \"id\": \"1\"}, \"events\": [{\"type\": \"taken\", \"data\": {\"amount\": 5}}]}, {\"aggregate\": {\"name\": \"account\", \"id\": \"2\"}, \"events\": [{\"type\": \"given\", \"data\": {\"amount\": 5}}]}]}' | annals transact\n  annals transact --server http://127.0.0.1:4000 --file transfers.jsonl"
    )]
    Transact(Transact),
    /// Read or list aggregates
    #[command(subcommand)]
    Aggregate(Aggregate),
    /// Read or follow the event log
    #[command(subcommand)]
    Log(Log),
    /// List or read streams, which are filtered sequences of the log
    #[command(subcommand)]
    Stream(Stream),
    /// Read or change records: documents in collections, beside the log
    #[command(subcommand)]
    Record(Record),
    /// Show, save or delete snapshots: the states of aggregates at a version
    #[command(subcommand)]
    Snapshot(Snapshot),
    /// Find snapshots or commits of the aggregates of a name by what they say
    #[command(
        after_help = "Documents have the fields that a server answers (docs/http.md): state.… of snapshots, body.name, body.tags, body.body.… of commits. Snapshots of deleted aggregates are left out unless the condition is deleted, or joins it by and.\n\nExample:\n  annals query order snapshots list --where \"state.total >= 100 and state.status = 'paid'\" --sort -state.total --limit 10\n  annals query order commits count --where \"body.name = 'order_placed'\""
    )]
    Query(Box<Query>),
    /// Show, take, change or give back prepare keys: names that one holder at a time may have
    #[command(subcommand, visible_alias = "keys")]
    Key(Key),
    /// Import a file of JSON lines, each a body of POST /v1/commits; or with --whole an export of another store
    #[command(
        after_help = "With --whole every commit is copied with its number, ids, times and version into a store that is new, or that an earlier import of the same export began; the hashes of the logs are compared at the end. Where it is refused the message says what was written, and it can be run again. Without it a line without request_id gets one from the digest of the file and its line number, so that an import that was interrupted can simply be run again: lines that are there already count as duplicates. A file that was changed since has another digest: give --id-prefix with the prefix that the first import used. Given ids and times are kept. Many lines are under way at once; those of one aggregate keep their order.\n\nExample:\n  annals import history.jsonl\n  zcat history.jsonl.gz | annals import - --id-prefix history-2025\n  annals import --whole store.jsonl --store embedded:./new"
    )]
    Import(Import),
    /// Export a whole store as JSON lines, to be imported into another one
    #[command(
        after_help = "Numbers, ids, times, versions, tenants and scopes are kept, and records, indexes and streams; revisions of records are given anew. A backup is smaller and faster; an export moves to another backend. A file that is there already is not written over: the command is refused.\n\nExample:\n  annals export store.jsonl\n  annals export - | gzip > store.jsonl.gz"
    )]
    Export(Export),
    /// Count what a log holds: aggregates, events of each type, bytes
    #[command(after_help = "Example:\n  annals stats --server http://127.0.0.1:4000 --output table")]
    Stats(Stats),
    /// Make a store of a MongoDB that Wow or a Dolittle Runtime wrote; without --apply only say what would be done
    #[command(
        after_help = "Nothing that other software wrote is changed. Commits in {aggregate}_event_stream get numbers in the log, those that are malformed or have a gap before them are held back; an event-log of a Dolittle Runtime is read as it is and goes on with its next number. Run it again after it was broken off, or after anything was in the way; once all is done it changes nothing. A Runtime must be stopped before, because it would go on giving numbers; so must processes of Annals.\n\nExample:\n  annals adopt --store mongodb://127.0.0.1/shop?replicaSet=rs0\n  annals adopt --store mongodb://127.0.0.1/shop?replicaSet=rs0 --output json | jq .names > names.json\n  annals adopt --store mongodb://127.0.0.1/shop?replicaSet=rs0 --names names.json --apply"
    )]
    Adopt(Adopt),
    /// Check every checksum of a store that no process has open, and every promise that its bytes can show
    #[command(
        after_help = "Nothing is written. Damage is printed with the file, the byte and the sequence number, and what to do; the exit code is 6 then.\n\nExample:\n  annals check --store embedded:./data"
    )]
    Check,
    /// Cut a damaged log, keep what is cut away, and begin a new incarnation; or make the indexes of records again
    #[command(
        after_help = "`annals check` says where the damage begins. Nothing is lost: the files that go are kept below cut/ in the store's folder. Streams are cut with their log, when the store is opened; records are not touched by a cut.\n\nExample:\n  annals repair --cut-at 17003 --yes\n  annals repair --indexes --yes"
    )]
    Repair(Repair),
    /// Pack the closed segments of a store that no process has open, so that they take less room
    #[command(
        after_help = "A store that is served does this by itself, slowly and behind the newest segments. Nothing that is read changes; a segment that would save less than a tenth stays as it is.\n\nExample:\n  annals pack --store embedded:./data"
    )]
    Pack,
    /// Back up a whole store, also of a running server, up to what is durable when it begins
    #[command(
        after_help = "A backup holds the secret key by which the store finds requests: keep it as safe as the store.\n\nExample:\n  annals backup --server http://127.0.0.1:4000 --to backup.tar\n  annals backup --to /backups/annals"
    )]
    Backup(Backup),
    /// Make a new store of a backup; it begins a new incarnation
    #[command(
        after_help = "The folder of --store must be new or empty.\n\nExample:\n  annals restore --from backup.tar --store embedded:./restored\n  annals restore --from backup.tar --store embedded:./before --to-sequence-number 17003"
    )]
    Restore(Restore),
    /// Show which process gives commits their numbers, and how far it is; for a store on MongoDB
    #[command(after_help = "Example:\n  annals sequencer --server http://127.0.0.1:4000")]
    Sequencer,
    /// List, retry or accept commits that are stored and held back without numbers; for a store on MongoDB
    #[command(subcommand)]
    Held(Held),
    /// Show the configuration
    #[command(subcommand)]
    Config(Config),
}

#[derive(Debug, Args)]
pub struct Demo {
    /// Start anew: remove what earlier runs stored in ./demo-data; not with --store
    #[arg(long)]
    pub fresh: bool,
    /// Where the page is served [default: 127.0.0.1:7171, or a free port]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
}

#[derive(Debug, Args)]
pub struct Serve {
    /// The address to listen on; port 0 takes a free one and prints it [default: 127.0.0.1:4000]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Needs no credentials, and listens on loopback only
    #[arg(long)]
    pub dev: bool,
}

#[derive(Debug, Args)]
pub struct Commit {
    /// A file of JSON lines; standard input when neither it nor --aggregate is given
    #[arg(long, value_name = "FILE", conflicts_with = "aggregate")]
    pub file: Option<PathBuf>,
    /// The aggregate of one event given by flags
    #[arg(long, value_name = "NAME/ID", requires = "event_type")]
    pub aggregate: Option<String>,
    /// The event's type
    #[arg(long = "type", id = "event_type", value_name = "TYPE", requires = "aggregate")]
    pub event_type: Option<String>,
    /// The event's data, a JSON object [default: {}]
    #[arg(long, value_name = "JSON", requires = "aggregate")]
    pub data: Option<String>,
    /// A tag of the event; may be repeated
    #[arg(long = "tag", value_name = "TAG", requires = "aggregate")]
    pub tags: Vec<String>,
    /// The event's metadata, a JSON object of strings and numbers
    #[arg(long, value_name = "JSON", requires = "aggregate")]
    pub metadata: Option<String>,
    /// The version the aggregate must have: a number, any, empty or exists
    #[arg(long, value_name = "VERSION", requires = "aggregate", allow_hyphen_values = true)]
    pub expect: Option<String>,
    /// Names the request, so that a repeat is recognised
    #[arg(long, value_name = "ID", requires = "aggregate")]
    pub request_id: Option<String>,
    /// What to wait for: committed (stored), logged (has its sequence number), or snapshot (its aggregate's snapshot has reached it)
    #[arg(long, value_name = "STAGE", requires = "aggregate")]
    pub wait: Option<String>,
    /// Groups everything that follows from one cause
    #[arg(long, value_name = "ID", requires = "aggregate")]
    pub correlation_id: Option<String>,
    /// What directly caused it
    #[arg(long, value_name = "ID", requires = "aggregate")]
    pub causation_id: Option<String>,
}

#[derive(Debug, Args)]
pub struct Transact {
    /// A file of JSON lines; standard input when absent
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Aggregate {
    /// Print the commits of one aggregate, in order of version
    #[command(
        after_help = "Both ends of a range are included.\n\nExample:\n  annals aggregate read order o-1 --from-version 2"
    )]
    Read(AggregateRead),
    /// Print the ids of the aggregates of one name, in order
    #[command(after_help = "Example:\n  annals aggregate list order --after o-1000")]
    List(AggregateList),
}

#[derive(Debug, Args)]
pub struct AggregateRead {
    /// The aggregate's name
    pub name: String,
    /// The aggregate's id
    pub id: String,
    /// The first version wanted
    #[arg(long, value_name = "VERSION", default_value_t = 1)]
    pub from_version: u64,
    /// The last version wanted
    #[arg(long, value_name = "VERSION")]
    pub to_version: Option<u64>,
    /// The earliest time wanted, RFC 3339
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub from_time: Option<annals::Timestamp>,
    /// The latest time wanted, RFC 3339
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub to_time: Option<annals::Timestamp>,
    /// Only the last commit of the range
    #[arg(long)]
    pub last: bool,
    #[command(flatten)]
    pub scope: Scope,
}

#[derive(Debug, Args)]
pub struct AggregateList {
    /// The aggregates' name
    pub name: String,
    /// Only ids after this one
    #[arg(long, value_name = "ID")]
    pub after: Option<String>,
    #[command(flatten)]
    pub scope: Scope,
}

#[derive(Debug, Subcommand)]
pub enum Log {
    /// Print the events of the log
    #[command(after_help = "Example:\n  annals log read --types order_placed --limit 10 --backwards")]
    Read(LogRead),
    /// Print the events of the log and then each new one, until Ctrl-C
    #[command(
        after_help = "A store that this command opens has no other writer; use --server to see what others commit.\n\nExample:\n  annals log tail --server http://127.0.0.1:4000 --new"
    )]
    Tail(LogTail),
}

#[derive(Debug, Args)]
pub struct LogRead {
    /// The sequence number to start at; backwards, the events below it
    #[arg(long, value_name = "NUMBER")]
    pub from: Option<u64>,
    /// Most events to print
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    /// From newer to older
    #[arg(long)]
    pub backwards: bool,
    #[command(flatten)]
    pub filter: Filter,
    #[command(flatten)]
    pub scope: Scope,
}

#[derive(Debug, Args)]
pub struct LogTail {
    /// The sequence number to start at [default: 0]
    #[arg(long, value_name = "NUMBER")]
    pub from: Option<u64>,
    /// Only what comes from now on
    #[arg(long, conflicts_with = "from")]
    pub new: bool,
    #[command(flatten)]
    pub filter: Filter,
    #[command(flatten)]
    pub scope: Scope,
}

#[derive(Debug, Subcommand)]
pub enum Stream {
    /// Print the streams, each with its number of entries and how far its filter has judged the log
    #[command(after_help = "Example:\n  annals stream list")]
    List(StreamList),
    /// Print the events of a stream, in order of position
    #[command(after_help = "Example:\n  annals stream read stream-7 --partition o-1 --limit 10")]
    Read(StreamRead),
}

#[derive(Debug, Args)]
pub struct StreamList {
    /// Only names after this one
    #[arg(long, value_name = "NAME")]
    pub after: Option<String>,
    #[command(flatten)]
    pub scope: Scope,
}

#[derive(Debug, Args)]
pub struct StreamRead {
    /// The stream's name
    pub name: String,
    /// The position to start at
    #[arg(long, value_name = "POSITION", default_value_t = 0)]
    pub from: u64,
    /// The position to end before
    #[arg(long, value_name = "POSITION")]
    pub to: Option<u64>,
    /// Most events to print
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    /// Only events of this partition
    #[arg(long, value_name = "PARTITION", conflicts_with = "without_partition")]
    pub partition: Option<String>,
    /// Only events without a partition
    #[arg(long)]
    pub without_partition: bool,
    #[command(flatten)]
    pub scope: Scope,
}

#[derive(Debug, Args)]
pub struct Filter {
    /// Only events of these types
    #[arg(long, value_name = "TYPE,…", value_delimiter = ',')]
    pub types: Vec<String>,
    /// Only events that have all of these tags
    #[arg(long, value_name = "TAG,…", value_delimiter = ',')]
    pub tags: Vec<String>,
    /// Only events of this aggregate, or of all aggregates of this name
    #[arg(long, value_name = "NAME[/ID]")]
    pub aggregate: Option<String>,
}

#[derive(Debug, Args)]
pub struct Scope {
    /// The scope to read
    #[arg(long, default_value = annals::DEFAULT_SCOPE)]
    pub scope: String,
}

#[derive(Debug, Args)]
pub struct Import {
    /// The file, or - for standard input
    pub file: PathBuf,
    /// The file is an export of a whole store
    #[arg(long, conflicts_with_all = ["id_prefix", "keep_going"])]
    pub whole: bool,
    /// Makes the request ids of lines without one from this and the line number; standard input has no digest
    #[arg(long, value_name = "PREFIX")]
    pub id_prefix: Option<String>,
    /// Go on after a line that is refused
    #[arg(long)]
    pub keep_going: bool,
    /// Write refused lines to this file as they are
    #[arg(long, value_name = "FILE", requires = "keep_going")]
    pub rejects: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Config {
    /// Print the configuration in force, and where each value comes from
    #[command(after_help = "Example:\n  ANNALS__LOG__LEVEL=debug annals config show")]
    Show,
}

fn time(text: &str) -> Result<annals::Timestamp, String> {
    annals::Timestamp::parse(text)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        fn check(command: &clap::Command) {
            let leaf = command.get_subcommands().next().is_none();
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(!leaf || help.contains("Example:\n  "), "{} has no example", command.get_name());
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }
}
