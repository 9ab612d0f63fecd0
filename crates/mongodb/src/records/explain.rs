//! Explains how the server finds the records of a query.

use annals_core::bson::{Bson, Document, doc};
use annals_core::{Collection, Explained, RecordError, RecordQuery};
use mongodb::Database;

use super::find::{Ask, page, refused};

/// Reads the page of a query, and adds up the server's statistics about each request that this took.
pub(super) async fn explain(
    database: &Database,
    query: &RecordQuery,
    declared: Option<&Collection>,
) -> Result<Explained, RecordError> {
    let (page, asked) = page(database, query, declared).await?;
    let mut explained = Explained { found: page.records.len() as u64, ..Explained::default() };
    for Ask { filter, sort, limit } in asked {
        // Without `_id`, equal records are sorted by the store.
        let is_whole = sort.contains_key("_id");
        let mut find = doc! { "find": &query.collection, "filter": filter, "sort": sort };
        if limit > 0 {
            find.insert("limit", limit);
        }
        find.insert("allowDiskUse", true);
        let command = doc! { "explain": find, "verbosity": "executionStats" };
        let answer = database.run_command(command).await.map_err(|error| refused(&query.condition, &error))?;
        let statistics = answer.get_document("executionStats").cloned().unwrap_or_default();
        let plan = answer.get_document("queryPlanner").and_then(|planner| planner.get_document("winningPlan"));
        let plan = plan.cloned().unwrap_or_default();
        let index = index_of(&plan);
        explained.entries_examined += number(&statistics, "totalKeysExamined");
        explained.documents_examined += number(&statistics, "totalDocsExamined");
        explained.sorted |= has_stage(&plan, "SORT") || (index.is_some() && !is_whole);
        explained.index = explained.index.or(index);
    }
    Ok(explained)
}

fn number(document: &Document, name: &str) -> u64 {
    let number = match document.get(name) {
        Some(Bson::Int32(number)) => i64::from(*number),
        Some(Bson::Int64(number)) => *number,
        Some(Bson::Double(number)) => *number as i64,
        _ => 0,
    };
    number.unsigned_abs()
}

/// Returns the name of the first index that a plan reads.
fn index_of(plan: &Document) -> Option<String> {
    match plan.get_str("stage") {
        Ok("IDHACK") => return Some("_id_".to_owned()),
        _ => {
            if let Ok(name) = plan.get_str("indexName") {
                return Some(name.to_owned());
            }
        }
    }
    below(plan).find_map(index_of)
}

fn has_stage(plan: &Document, stage: &str) -> bool {
    plan.get_str("stage").is_ok_and(|found| found == stage) || below(plan).any(|plan| has_stage(plan, stage))
}

/// Returns the input stages of a stage. A plan of the slot-based engine contains one in the classic form.
fn below(plan: &Document) -> impl Iterator<Item = &Document> {
    let one = ["queryPlan", "inputStage"].into_iter().filter_map(|name| plan.get_document(name).ok());
    let several = plan.get_array("inputStages").into_iter().flatten().filter_map(Bson::as_document);
    one.chain(several)
}
