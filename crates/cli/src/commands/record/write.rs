//! `annals record insert`, `replace`, `set`, `delete` and `check`.

use std::path::PathBuf;

use annals::bson::{Bson, RawDocumentBuf};
use annals::wire::records::{Encoding, extended_value, read_document};
use annals::{Code, Condition, Expected, RecordChange, RecordError, limits, valid_document};
use clap::Args;
use tokio::sync::mpsc::Receiver;

use super::{Id, id, not_of_the_system, to_read};
use crate::context::Context;
use crate::failure::{Failure, Stop};
use crate::lines::{Line, Spread};
use crate::output::Output;
use crate::requests;
use crate::selection::condition;
use crate::target::Target;

/// Where documents come from.
#[derive(Debug, Args)]
struct Documents {
    /// The document, a JSON object
    #[arg(long, value_name = "JSON")]
    document: Option<String>,
    /// A file of documents, one per line; standard input when neither it nor --document is given
    #[arg(long, value_name = "FILE", conflicts_with = "document")]
    file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Insert {
    /// The collection
    collection: String,
    #[command(flatten)]
    documents: Documents,
}

#[derive(Debug, Args)]
pub struct Replace {
    /// The collection
    collection: String,
    #[command(flatten)]
    documents: Documents,
    #[command(flatten)]
    expectation: Expectation,
    /// Insert the document if it does not exist
    #[arg(long, conflicts_with = "revision")]
    or_insert: bool,
}

#[derive(Debug, Args)]
pub struct Delete {
    /// The collection
    collection: String,
    #[command(flatten)]
    id: Id,
    #[command(flatten)]
    expectation: Expectation,
}

#[derive(Debug, Args)]
pub struct Set {
    /// The collection
    collection: String,
    #[command(flatten)]
    id: Id,
    /// The paths and their values, a JSON object
    #[arg(long, value_name = "JSON", required_unless_present = "unset")]
    fields: Option<String>,
    /// Paths of fields to remove
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',')]
    unset: Vec<String>,
    #[command(flatten)]
    expectation: Expectation,
    /// Insert the record if it does not exist
    #[arg(long, conflicts_with = "revision")]
    or_insert: bool,
}

#[derive(Debug, Args)]
pub struct Check {
    /// The collection
    collection: String,
    #[command(flatten)]
    id: Id,
    #[command(flatten)]
    expectation: Expectation,
    /// The record must not exist
    #[arg(long, conflicts_with_all = ["revision", "matching"])]
    absent: bool,
}

/// The expected state of the record.
#[derive(Debug, Args)]
struct Expectation {
    /// The revision that the record must have
    #[arg(long, value_name = "NUMBER", conflicts_with = "matching")]
    revision: Option<u64>,
    /// A condition that the record must match
    #[arg(long, value_name = "CONDITION")]
    matching: Option<String>,
}

/// Most lines that are written in one batch.
const AT_ONCE: usize = 200;

pub async fn insert(context: &Context, args: &Insert) -> Result<(), Stop> {
    let collection = args.collection.clone();
    let change = move |document| RecordChange::insert(collection.as_str(), document);
    put(context, &args.collection, &args.documents, change).await
}

pub async fn replace(context: &Context, args: &Replace) -> Result<(), Stop> {
    let expected = or_absent(expected(&args.expectation)?, args.or_insert);
    let collection = args.collection.clone();
    let change = move |document| RecordChange::replace_if(collection.as_str(), document, expected.clone());
    put(context, &args.collection, &args.documents, change).await
}

pub async fn set(context: &Context, args: &Set) -> Result<(), Stop> {
    not_of_the_system(&args.collection)?;
    let expected = or_absent(expected(&args.expectation)?, args.or_insert);
    let fields = args.fields.as_deref().map_or(Ok(Vec::new()), fields)?;
    let (collection, id) = (args.collection.clone(), id(&args.id)?);
    one(context, RecordChange::Set { collection, id: id.clone(), fields, unset: args.unset.clone(), expected }, id)
        .await
}

pub async fn check(context: &Context, args: &Check) -> Result<(), Stop> {
    let expected = if args.absent { Expected::Absent } else { expected(&args.expectation)? };
    let id = id(&args.id)?;
    one(context, RecordChange::check(args.collection.as_str(), id.clone(), expected), id).await
}

/// Writes one change and prints the resulting revision.
async fn one(context: &Context, change: RecordChange, id: Bson) -> Result<(), Stop> {
    let target = to_read(context).await?;
    target
        .run(async |target| {
            let mut output = context.output();
            for revision in target.records()?.write(vec![change.clone()]).await? {
                output.written(id.clone(), revision)?;
            }
            output.flush()
        })
        .await
}

/// Parses the paths and values of `--fields`.
fn fields(text: &str) -> Result<Vec<(String, Bson)>, Failure> {
    let wrong = |message: String| Failure::new(Code::NotJson, format!("--fields: {message}"));
    match extended_value(text).map_err(wrong)? {
        Bson::Document(fields) => Ok(fields.into_iter().collect()),
        _ => Err(wrong("is not a JSON object".to_owned())),
    }
}

/// Also accepts an absent record if `or_insert` is set.
fn or_absent(expected: Expected, or_insert: bool) -> Expected {
    match (expected, or_insert) {
        (Expected::Present, true) => Expected::AbsentOr(Condition::All),
        (Expected::Matching(condition), true) => Expected::AbsentOr(condition),
        (expected, _) => expected,
    }
}

pub async fn delete(context: &Context, args: &Delete) -> Result<(), Stop> {
    not_of_the_system(&args.collection)?;
    let (id, expected) = (id(&args.id)?, expected(&args.expectation)?);
    let target = to_read(context).await?;
    target
        .run(async |target| {
            let number = target.records()?.delete_if(&args.collection, id.clone(), expected).await?;
            let mut output = context.output();
            output.written(id, number)?;
            output.flush()
        })
        .await
}

fn expected(args: &Expectation) -> Result<Expected, Failure> {
    Ok(match (args.revision, &args.matching) {
        (Some(revision), _) => Expected::Revision(revision),
        (None, Some(text)) => Expected::Matching(condition("--matching", Some(text))?),
        (None, None) => Expected::Present,
    })
}

/// Converts each document to a change and writes it.
async fn put(
    context: &Context,
    collection: &str,
    documents: &Documents,
    change: impl Fn(RawDocumentBuf) -> RecordChange,
) -> Result<(), Stop> {
    not_of_the_system(collection)?;
    if let Some(document) = &documents.document {
        let one = Written::read(document.as_bytes())?;
        let target = to_read(context).await?;
        let alone = async |target: &Target| {
            let mut output = context.output();
            one.write(target, &change, &mut output).await?;
            output.flush()
        };
        return target.run(alone).await;
    }
    let lines = requests::read(documents.file.as_deref(), "documents")?;
    let target = to_read(context).await?;
    target
        .run(async |target| {
            let output = context.output();
            Lines { target, change: &change, output, first_refusal: None, spread: Spread::default() }.write(lines).await
        })
        .await
}

/// A document to write.
struct Written {
    id: Bson,
    document: RawDocumentBuf,
}

impl Written {
    fn read(text: &[u8]) -> Result<Self, Failure> {
        let document = read_document(text, Encoding::ExtendedJson)?;
        valid_document(&document)?;
        let id = document.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok()).unwrap_or(Bson::Null);
        Ok(Self { id, document })
    }

    async fn write(
        self,
        target: &Target,
        change: &impl Fn(RawDocumentBuf) -> RecordChange,
        output: &mut Output,
    ) -> Result<(), Stop> {
        let numbers = target.records()?.write(vec![change(self.document)]).await?;
        numbers.into_iter().try_for_each(|number| output.written(self.id.clone(), number))
    }
}

/// Documents, one per line, that are being written.
struct Lines<'a, C> {
    target: &'a Target,
    change: &'a C,
    output: Output,
    /// The code of the first refusal, which determines the exit code.
    first_refusal: Option<Code>,
    spread: Spread,
}

impl<C: Fn(RawDocumentBuf) -> RecordChange> Lines<'_, C> {
    /// Writes the lines that were read together as one batch, until the input ends.
    async fn write(mut self, mut lines: Receiver<Line>) -> Result<(), Stop> {
        while let Some(first) = lines.recv().await {
            let (mut batch, mut bytes, mut next) = (Vec::new(), 0, Some(first));
            while let Some(Line { number, text, .. }) = next {
                match text.map(|text| (Written::read(&text), text)) {
                    Ok((Ok(written), _)) => {
                        self.spread.whole();
                        bytes += written.document.as_bytes().len();
                        batch.push((number, written));
                    }
                    Ok((Err(failure), text)) => {
                        if let Some(failure) = self.spread.refused(&text, failure) {
                            self.refused(number, failure);
                        }
                    }
                    Err(failure) => self.refused(number, failure),
                }
                let room = batch.len() < AT_ONCE && bytes < limits::RECORD_BYTES_MAX;
                next = if room { lines.try_recv().ok() } else { None };
            }
            self.write_batch(batch).await?;
            // The caller may wait for this answer before writing the next line.
            self.output.flush()?;
        }
        self.first_refusal.map_or(Ok(()), |code| Err(Stop::Reported(code)))
    }

    /// Writes a batch. If it is refused, each document is written alone, so that a refused line does not affect the others.
    async fn write_batch(&mut self, batch: Vec<(u64, Written)>) -> Result<(), Stop> {
        let changes = batch.iter().map(|(_, written)| (self.change)(written.document.clone())).collect();
        match self.target.records()?.write(changes).await {
            Ok(numbers) => {
                let mut all = batch.into_iter().zip(numbers);
                return all.try_for_each(|((_, one), number)| self.output.written(one.id, number));
            }
            Err(RecordError::Store(error)) => return Err(RecordError::Store(error).into()),
            Err(_) => {}
        }
        for (number, one) in batch {
            match one.write(self.target, self.change, &mut self.output).await {
                Err(Stop::Failed(failure)) if !goes_on(failure.code) => return Err(Stop::Failed(failure)),
                Err(Stop::Failed(failure)) => self.refused(number, failure),
                other => other?,
            }
        }
        Ok(())
    }

    fn refused(&mut self, number: u64, failure: Failure) {
        self.first_refusal.get_or_insert(failure.code);
        failure.at_line(number).print();
    }
}

/// Returns whether a refusal concerns one document rather than the store.
fn goes_on(code: Code) -> bool {
    matches!(code, Code::DuplicateKey | Code::RecordConflict | Code::InvalidRecord)
}
